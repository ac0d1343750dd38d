// One answer on its way: the request, its progress, its text.
import { ApiError, Unreachable, stream } from "./api.js";
import { emit } from "./bus.js";
import { settings } from "./settings.js";

// A page that is left loses its connections first: that is no lost server.
let leaving = false;
for (const [event, value] of [["beforeunload", true], ["pagehide", true], ["pageshow", false]]) {
  addEventListener(event, () => { leaving = value; });
}

const running = new Map(); // conversation id -> Answer

export const answerOf = (talk) => running.get(talk.id) ?? null;
export const anyRunning = () => running.size > 0;

/** The conversation as the server takes it, up to and without `end`. Answers that have no text are left out. */
export function requestMessages(talk, end = null) {
  const at = end ? talk.messages.indexOf(end) : talk.messages.length;
  const system = talk.system ? [{ role: "system", content: talk.system }] : [];
  const said = talk.messages.slice(0, at).filter((one) => one.role === "user" || one.content);
  return [...system, ...said.map(({ role, content }) => ({ role, content }))];
}

export class Answer {
  /** Fills `message`, an assistant's, which is the last of `talk`. `goOn`: its text is continued. */
  constructor(talk, message, goOn = false) {
    Object.assign(this, { talk, message, goOn });
    this.abort = new AbortController();
    this.phase = "sent"; // sent, reading (the prompt), writing
    this.begun = performance.now();
    this.first = this.last = null; // ms of the first and last token
    this.tokens = 0;
    this.read = this.total = this.secondsLeft = null;
  }

  get ttft() { return this.first === null ? null : (this.first - this.begun) / 1000; }

  /** Tokens a second so far, as they arrive here. */
  get rate() { return this.tokens > 1 && this.last > this.first ? (1000 * (this.tokens - 1)) / (this.last - this.first) : null; }

  stop() { this.abort.abort(); }

  async run() {
    const { talk, message } = this;
    running.set(talk.id, this);
    Object.assign(message, { status: "writing", reason: undefined, error: undefined, timings: undefined });
    emit("answer", this);
    try {
      for await (const { event, value } of stream("v1/chat/completions", this.body(), this.abort.signal)) {
        if (event === "mindnano.progress") this.progress(value);
        else this.chunk(value);
        emit("answer", this);
      }
      if (message.status === "writing") message.status = "done";
    } catch (error) {
      this.ended(error);
    }
    running.delete(talk.id);
    talk.updated = Date.now();
    emit("answered", this);
  }

  body() {
    const { temperature, top_p, max_tokens, thinking } = settings;
    const chosen = Object.entries({ temperature, top_p, max_tokens }).filter(([, value]) => value !== null);
    const messages = requestMessages(this.talk, this.message);
    const { content, reasoning } = this.message, further = this.goOn;
    if (further) messages.push({ role: "assistant", content, ...(reasoning ? { reasoning_content: reasoning } : {}) });
    return {
      messages,
      stream: true,
      stream_options: { include_usage: true },
      progress: true,
      chat_template_kwargs: { enable_thinking: further ? Boolean(reasoning) : thinking },
      ...(further ? { continue_final_message: true } : {}),
      ...Object.fromEntries(chosen),
    };
  }

  progress(value) {
    if (this.phase === "writing") return;
    this.phase = "reading";
    this.read = value.tokens_done;
    this.total = value.tokens_total;
    this.secondsLeft = value.seconds_left ?? null;
  }

  chunk(value) {
    const choice = value.choices?.[0], delta = choice?.delta ?? {}, { message } = this;
    const thought = delta.reasoning_content ?? "", text = delta.content ?? "";
    if (thought || text) {
      const now = performance.now();
      this.first ??= now;
      this.last = now;
      this.phase = "writing";
      this.read = this.total;
      this.tokens += 1;
      if (thought) {
        message.reasoning = (message.reasoning ?? "") + thought;
        message.thinkingSince ??= Date.now();
      }
      if (text && message.thinkingSince) {
        message.thoughtFor ??= (Date.now() - message.thinkingSince) / 1000;
        delete message.thinkingSince;
      }
      message.content += text;
    }
    if (value.timings) message.timings = value.timings;
    if (choice?.finish_reason === "length") message.status = "length";
    else if (choice?.finish_reason) message.status = "done";
  }

  ended(error) {
    const { message } = this;
    if (this.abort.signal.aborted) message.status = "stopped";
    else if (error instanceof Unreachable) Object.assign(message, { status: "interrupted", reason: leaving ? "reload" : "server" });
    else if (error instanceof ApiError) {
      const { message: text, code, status, details } = error;
      Object.assign(message, { status: "failed", error: { text, code, status, details } });
    } else {
      Object.assign(message, { status: "failed", error: { text: String(error), code: null, status: null } });
      console.error(error);
    }
    delete message.thinkingSince;
  }
}
