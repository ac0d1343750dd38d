// One message of the conversation, as nodes.
import { button, el, icon } from "./dom.js";
import { answerOf } from "./answer.js";
import { number, seconds, t } from "./i18n.js";
import { figures, readingText } from "./live.js";
import { MarkdownView, copied } from "./markdown.js";

const FOLD = 1200; // characters of a user's message that are shown at first

export function systemTurn(text) {
  return el("div", { class: "turn system" },
    el("details", { class: "body" }, el("summary", {}, t("systemPrompt")), el("p", {}, text)));
}

/** What the user said; `acts.edit(message, text)` is called with the changed text. */
export class UserTurn {
  constructor(message, acts) {
    this.message = message;
    this.acts = acts;
    this.node = el("article", { class: "turn user", data: { id: message.id } });
    this.show();
  }

  show() {
    const { content } = this.message;
    const body = el("div", { class: "body", dir: "auto" }, content);
    const bar = el("div", { class: "acts" });
    const copy = button({ name: "copy", text: t("copy"), on: () => copied(copy, content) });
    if (content.length > FOLD || content.split("\n").length > 14) {
      body.classList.add("folded");
      const more = button({ text: t("more"), on: () => {
        const folded = body.classList.toggle("folded");
        more.firstChild.textContent = t(folded ? "more" : "less");
      } });
      bar.append(more);
    }
    bar.append(copy, button({ name: "edit", text: t("edit"), on: () => this.edit() }));
    this.node.replaceChildren(el("div", {}, el("div", { class: "row end" }, body), bar));
  }

  edit() {
    const area = el("textarea", { "aria-label": t("editLabel"), dir: "auto" });
    area.value = this.message.content;
    const leave = () => { this.show(); this.node.querySelector(".acts button:last-child").focus(); };
    const send = () => { if (area.value.trim()) this.acts.edit(this.message, area.value); };
    area.addEventListener("keydown", (event) => {
      if (event.key === "Escape") { event.stopPropagation(); leave(); }
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); send(); }
    });
    this.node.replaceChildren(el("div", { class: "edit" }, area, el("div", { class: "row end" },
      button({ text: t("cancel"), kind: "plain", on: leave }), button({ text: t("sendEdited"), kind: "primary", on: send }))));
    area.style.height = `${Math.min(area.scrollHeight + 2, innerHeight / 2)}px`;
    area.focus();
  }

  update() {}
}

/** An answer: thoughts, text, how it ended, and in the margin what it cost. */
export class AnswerTurn {
  constructor(message, talk, acts) {
    Object.assign(this, { message, talk, acts });
    this.text = new MarkdownView();
    this.text.node.classList.add("said");
    this.thoughts = new MarkdownView();
    this.tail = el("span", { class: "tail" });
    this.thinkingLabel = el("span", {});
    this.thinking = el("details", { class: "thinking", hidden: true },
      el("summary", {}, icon("fold"), this.thinkingLabel, this.tail), el("div", { class: "thoughts" }, this.thoughts.node));
    this.thinking.addEventListener("toggle", () => this.updateThoughts());
    this.waiting = el("div", { class: "waiting", hidden: true });
    this.ended = el("div", { class: "ended", hidden: true });
    this.bar = el("div", { class: "acts" });
    this.cost = el("aside", { class: "cost" });
    this.node = el("article", { class: "turn assistant", data: { id: message.id } },
      el("div", { class: "body", dir: "auto" }, this.thinking, this.waiting, this.text.node, this.ended, this.bar), this.cost);
    this.update();
  }

  update() {
    const { message, talk } = this, answer = answerOf(talk)?.message === message ? answerOf(talk) : null;
    const writing = message.status === "writing";
    this.node.setAttribute("aria-busy", String(writing));
    this.updateThoughts();
    if (message.content || !writing) this.text.update(message.content, writing);
    this.updateWaiting(answer, writing);
    this.updateEnd(writing);
    if (this.acted !== message.status) this.updateActs(writing);
    this.updateCost(answer);
  }

  updateThoughts() {
    const { reasoning = "", content, status, thoughtFor } = this.message;
    this.thinking.hidden = !reasoning;
    if (!reasoning) return;
    const now = status === "writing" && !content;
    this.thinkingLabel.textContent = now ? t("thinking") : thoughtFor ? t("thoughtFor", { time: seconds(thoughtFor) }) : t("thoughts");
    this.tail.textContent = now ? reasoning.slice(-400).trimEnd().split("\n").at(-1) : "";
    if (this.thinking.open) this.thoughts.update(reasoning, now);
  }

  updateWaiting(answer, writing) {
    this.waiting.hidden = !writing || Boolean(this.message.content || this.message.reasoning);
    if (this.waiting.hidden) return;
    const known = answer?.phase === "reading" && answer.total > 0;
    if (this.waiting.dataset.known !== String(known)) {
      this.meter = el("i");
      this.what = el("span", { class: "what" });
      const values = known ? { "aria-valuemin": "0", "aria-valuemax": "100" } : {};
      this.waiting.replaceChildren(this.what, el("div", { class: known ? "meter" : "meter unsure", role: "progressbar", "aria-label": t("waiting"), ...values }, this.meter));
      this.waiting.dataset.known = String(known);
    }
    this.what.textContent = known ? readingText(answer) : t("waiting");
    if (known) {
      const share = Math.round((100 * answer.read) / answer.total);
      this.meter.style.width = `${share}%`;
      this.meter.parentNode.setAttribute("aria-valuenow", share);
    }
  }

  updateEnd(writing) {
    const said = writing ? null : ending(this.message);
    this.ended.hidden = !said;
    if (!said || this.ended.dataset.said === said.text) return;
    this.ended.dataset.said = said.text;
    this.ended.className = said.bad ? "ended bad" : "ended";
    const { content, reasoning, status } = this.message;
    const goOn = (content || reasoning) && status !== "failed" ? button({ name: "on", text: t("goOn"), kind: "plain", on: () => this.acts.goOn(this.message) }) : null;
    const again = button({ name: "again", text: t(status === "failed" ? "tryAgain" : "again"), kind: "plain", on: () => this.acts.again(this.message) });
    this.ended.replaceChildren(el("span", { class: "text" }, said.text), el("span", { class: "row only-last" }, ...[goOn, again].filter(Boolean)));
  }

  updateActs(writing) {
    this.acted = this.message.status;
    if (!writing) delete this.ended.dataset.said;
    this.bar.hidden = writing;
    const copy = button({ name: "copy", text: t("copy"), on: () => copied(copy, this.message.content) });
    const again = button({ name: "again", text: t("again"), on: () => this.acts.again(this.message) });
    this.bar.replaceChildren(...[this.message.content ? copy : null, this.message.status === "done" ? again : null].filter(Boolean));
    this.updateEnd(writing);
  }

  updateCost(answer) {
    const { timings } = this.message;
    const found = answer ? figures(null, answer) : figures(timings);
    if (timings && !answer) found.push([number(timings.prompt_tokens), t("promptTokens")], [number(timings.completion_tokens), t("answerTokens")]);
    this.cost.replaceChildren(el("dl", {}, found.map(([value, what]) => el("div", {}, el("dt", {}, what), el("dd", {}, value)))));
    this.cost.title = timings?.cached_reason ?? "";
  }
}

/** { text, bad } of how an answer ended, null where it just ended. */
function ending({ status, reason, error }) {
  if (status === "stopped") return { text: t("endedStopped") };
  if (status === "length") return { text: t("endedLength") };
  if (status === "interrupted") return { text: t(reason === "server" ? "endedServer" : "endedReload") };
  if (status !== "failed") return null;
  if (error.code === "context_length_exceeded") {
    const [needed, total] = [error.details?.needed_tokens, error.details?.context_tokens];
    return { bad: true, text: needed ? t("endedTooLong", { needed, total }) : t("endedTooLongPlain") };
  }
  if (error.status === 429) return { bad: true, text: t("endedBusy") };
  if (error.status === 401) return { bad: true, text: t("endedKey") };
  return { bad: true, text: t("endedFailed", { text: error.text }) };
}
