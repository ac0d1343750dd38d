// The open conversation on the screen.
import { byId, el, oncePerFrame } from "./dom.js";
import { bytes, number, t } from "./i18n.js";
import { contextTokens } from "./rule.js";
import { server } from "./server.js";
import { AnswerTurn, UserTurn, systemTurn } from "./turn.js";

const NEAR = 80; // pixels from the end that count as being there

export class Thread {
  /** `acts`: { edit(message, text), again(message), goOn(message) }. */
  constructor(acts) {
    this.acts = acts;
    this.turns = new Map();
    this.talk = null;
    this.follows = true;
    this.scroll = byId("scroll");
    this.scroll.addEventListener("scroll", () => {
      this.follows = this.scroll.scrollHeight - this.scroll.scrollTop - this.scroll.clientHeight < NEAR;
      byId("jump").hidden = this.follows;
    }, { passive: true });
    byId("jump").addEventListener("click", () => this.toEnd());
    new ResizeObserver(() => { if (this.follows) this.toEnd(); }).observe(byId("thread"));
    this.refresh = oncePerFrame((message) => this.turns.get(message.id)?.update());
  }

  /** Show all of `talk` anew. */
  show(talk) {
    this.talk = talk;
    this.turns.clear();
    const nodes = talk.system && talk.messages.length ? [systemTurn(talk.system)] : [];
    for (const message of talk.messages) {
      const turn = message.role === "user" ? new UserTurn(message, this.acts) : new AnswerTurn(message, talk, this.acts);
      this.turns.set(message.id, turn);
      nodes.push(turn.node);
    }
    nodes.at(-1)?.classList.add("last");
    byId("thread").replaceChildren(...(nodes.length ? nodes : [start()]));
    this.toEnd();
  }

  toEnd() {
    this.follows = true;
    byId("jump").hidden = true;
    this.scroll.scrollTop = this.scroll.scrollHeight;
  }

  /** Facts of the server came: an empty conversation shows them. */
  refreshStart() {
    if (this.talk && !this.talk.messages.length) byId("thread").replaceChildren(start());
  }
}

function start() {
  const { props } = server, facts = [];
  if (contextTokens()) facts.push([t("startContext"), number(contextTokens())]);
  if (props?.kv_format) facts.push([t("startCache"), `${props.kv_layout} ${props.kv_format}`]);
  if (props?.available_memory) facts.push([t("startMemory"), bytes(props.available_memory)]);
  return el("div", { class: "start" },
    el("h2", {}, t("startTitle")),
    el("p", {}, t("startText")),
    props?.synthetic ? el("p", {}, t("synthetic")) : null,
    el("dl", {}, facts.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value)))));
}
