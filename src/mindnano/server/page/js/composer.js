// The message field: text, files, what it will cost, send and stop.
import { request } from "./api.js";
import { answerOf, requestMessages } from "./answer.js";
import { attach, joined } from "./files.js";
import { byId, el, icon, button, later } from "./dom.js";
import { seconds, t } from "./i18n.js";
import { contextTokens, sum, used } from "./rule.js";
import { server } from "./server.js";
import { change, settings } from "./settings.js";

const COUNT_AFTER = 350; // ms without typing
const WAIT_FROM = 3; // seconds of reading that are worth saying

export class Composer {
  /** acts: { send(text), stop(), drafted(text, tokens) }. */
  constructor(acts) {
    this.acts = acts;
    this.field = byId("draft");
    this.filesOf = new WeakMap(); // by conversation
    this.tokens = 0;
    this.talk = null;
    this.count = later(() => this.countTokens(), COUNT_AFTER);
    this.field.addEventListener("input", () => this.changed());
    this.field.addEventListener("keydown", (event) => this.key(event));
    byId("composer").addEventListener("submit", (event) => { event.preventDefault(); this.submit(); });
    byId("think").addEventListener("click", () => change({ thinking: !settings.thinking }));
    byId("attach").addEventListener("click", () => byId("file").click());
    byId("file").addEventListener("change", (event) => { this.add([...event.target.files]); event.target.value = ""; });
    this.takeDrops();
  }

  /** Show `talk`'s draft. */
  show(talk) {
    this.talk = talk;
    this.field.value = talk.draft;
    this.resize();
    this.drawFiles();
    this.countSoon();
    this.draw();
  }

  draw() {
    const running = Boolean(this.talk && answerOf(this.talk)), send = byId("send");
    send.classList.toggle("stop", running);
    send.querySelector("use").setAttribute("href", `icons.svg#${running ? "stop" : "send"}`);
    byId("send-label").textContent = send.title = t(running ? "stop" : "send");
    send.disabled = !running && !this.text().trim();
    byId("think").setAttribute("aria-pressed", String(settings.thinking));
  }

  get files() { return this.filesOf.get(this.talk) ?? []; }

  set files(list) { this.filesOf.set(this.talk, list); }

  text() { return joined(this.files, this.field.value); }

  key(event) {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing || event.keyCode === 229) return; // 229: an input method's Enter
    if (matchMedia("(pointer: coarse)").matches && !event.ctrlKey && !event.metaKey) return; // a phone's Enter is a new line
    event.preventDefault();
    this.submit();
  }

  submit() {
    if (answerOf(this.talk)) { this.acts.stop(); return; }
    const text = this.text();
    if (!text.trim() || server.state === "gone") return;
    this.field.value = "";
    this.files = [];
    this.changed();
    this.drawFiles();
    this.acts.send(text);
  }

  changed() {
    this.resize();
    this.draw();
    this.countSoon();
    this.acts.drafted(this.field.value);
  }

  resize() {
    this.field.style.height = "auto";
    this.field.style.height = `${this.field.scrollHeight}px`;
  }

  countSoon() {
    if (this.text().trim()) this.count();
    else this.setTokens(0);
  }

  async countTokens() {
    const text = this.text(), { talk } = this;
    if (!text.trim() || answerOf(talk)) return;
    const system = talk.system ?? settings.system;
    const messages = [...requestMessages({ ...talk, system }), { role: "user", content: text }];
    try {
      const { count } = await request("tokenize", { quiet: true, body: { messages, chat_template_kwargs: { enable_thinking: settings.thinking } } });
      if (talk === this.talk && text === this.text()) this.setTokens(Math.max(1, count - sum(used(talk))), count);
    } catch {
      this.setTokens(0); // what can't be counted isn't shown
    }
  }

  /** `count`: what sending adds; `needed`: the whole prompt. */
  setTokens(count, needed = 0) {
    this.tokens = count;
    const context = contextTokens(), over = Boolean(context) && needed >= context;
    const text = t("draftTokens", { n: count }), wait = this.rate ? count / this.rate : 0;
    byId("estimate").classList.toggle("bad", count > 0 && over);
    byId("estimate").textContent = !count ? "" : over ? t("draftTooLong", { needed, total: context })
      : wait >= WAIT_FROM ? t("draftWait", { tokens: text, time: seconds(wait) }) : text;
    this.acts.counted(count);
  }

  /** Remember how fast prompts are read, from an answer's timings. */
  learn({ prompt_tokens, cached_tokens, ttft_s }) {
    const computed = prompt_tokens - cached_tokens;
    if (computed >= 64 && ttft_s > 0) this.rate = computed / ttft_s;
  }

  async add(list) {
    const { talk } = this, found = await attach(list);
    this.filesOf.set(talk, [...(this.filesOf.get(talk) ?? []), ...found]);
    this.drawFiles();
    this.draw();
    this.countSoon();
    this.field.focus();
  }

  drawFiles() {
    const box = byId("files");
    box.hidden = !this.files.length;
    box.replaceChildren(...this.files.map((file) => el("span", { class: "file" }, icon("attach"), el("span", {}, file.name),
      button({ name: "close", label: t("fileRemove", { name: file.name }), kind: "icon", on: () => {
        this.files = this.files.filter((one) => one !== file);
        this.drawFiles();
        this.draw();
        this.countSoon();
        this.field.focus();
      } }))));
  }

  takeDrops() {
    const form = byId("composer"), view = byId("view-chat");
    const over = (event) => {
      if (!event.dataTransfer?.types.includes("Files")) return;
      event.preventDefault();
      form.classList.toggle("over", event.type === "dragover");
    };
    for (const name of ["dragover", "dragleave", "drop"]) view.addEventListener(name, over);
    view.addEventListener("drop", (event) => { if (event.dataTransfer?.files.length) this.add([...event.dataTransfer.files]); });
  }
}
