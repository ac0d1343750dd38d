// The rule above the message field: the context, and what of it is cached, read, answered and about to be sent.
import { answerOf } from "./answer.js";
import { byId, el } from "./dom.js";
import { t, tokens } from "./i18n.js";
import { server } from "./server.js";

/** Tokens of the conversation in the model: { cached, prompt, answer }, from the running answer or the last one. */
export function used(talk) {
  const running = answerOf(talk), timings = lastTimings(talk);
  if (running && running.total !== null) return { cached: 0, prompt: running.read, answer: running.tokens };
  if (!timings) return { cached: running ? 0 : talk.reusable ?? 0, prompt: 0, answer: running?.tokens ?? 0 };
  const { cached_tokens: cached, prompt_tokens: prompt, completion_tokens: answer } = timings;
  return { cached, prompt: prompt - cached, answer };
}

/** Of the last answer that came to its end, or null. */
export const lastTimings = (talk) => talk.messages.findLast((one) => one.timings)?.timings ?? null;

export const sum = ({ cached, prompt, answer }) => cached + prompt + answer;

export const contextTokens = () => server.props?.context ?? null;

function marks(context) {
  const labels = byId("rule").querySelector(".rule-labels");
  const shown = context ? [0, 0.25, 0.5, 0.75, 1] : [];
  const wanted = shown.map((part) => (part ? tokens(Math.round(context * part)) : "0")).join(" ");
  if (labels.dataset.shown === wanted) return;
  labels.dataset.shown = wanted;
  labels.replaceChildren(...shown.map((part) => {
    const mark = el("span", {}, part ? tokens(Math.round(context * part)) : "0");
    mark.style.left = `${part * 100}%`;
    return mark;
  }));
}

/** Draws it for `talk`; `draft`: tokens about to be sent. */
export function drawRule(talk, draft = 0) {
  const rule = byId("rule"), track = rule.querySelector(".rule-track");
  const context = contextTokens(), parts = { ...used(talk), draft };
  marks(context);
  for (const [name, value] of Object.entries(parts)) {
    let part = track.querySelector(`.${name}`);
    if (!part) track.append((part = el("i", { class: name })));
    const before = [...track.children].slice(0, [...track.children].indexOf(part)).reduce((all, one) => all + Number(one.dataset.n ?? 0), 0);
    part.dataset.n = value;
    part.style.width = context ? `${(100 * Math.max(0, Math.min(value, context - before))) / context}%` : "0";
  }
  const taken = sum(parts);
  rule.classList.toggle("full", Boolean(context) && taken + draft > context);
  rule.setAttribute("aria-valuemax", context ?? 0);
  rule.setAttribute("aria-valuenow", context ? Math.min(taken, context) : 0);
  rule.setAttribute("aria-valuetext", context ? t("contextOf", { used: taken, total: context }) : "");
}
