// The line below the message field: what happens now, and the figures of the last answer.
import { answerOf } from "./answer.js";
import { byId, el } from "./dom.js";
import { bytes, number, seconds, t } from "./i18n.js";
import { contextTokens, lastTimings, sum, used } from "./rule.js";
import { server } from "./server.js";

function state(answer) {
  if (server.state === "gone") return ["gone", t("gone")];
  if (server.state === "loading") return ["busy", t("loading")];
  if (!answer) return ["", t("ready")];
  if (answer.phase === "writing") return ["busy", t("writing")];
  if (answer.phase === "reading") return ["busy", readingText(answer)];
  return ["busy", t("waiting")];
}

/** "Reading 512 of 4,096 tokens"; with the time left where the server knows it. */
export function readingText({ read, total, secondsLeft }) {
  const text = t("reading", { done: read, total });
  return secondsLeft === null ? text : `${text} · ${t("timeLeft", { time: seconds(secondsLeft) })}`;
}

/** [[value, what it is]] of an answer: running or done. */
export function figures(timings, answer = null) {
  const found = [];
  const ttft = answer ? answer.ttft : timings?.ttft_s;
  const rate = answer ? answer.rate : timings?.decode_tok_s;
  if (ttft !== null && ttft !== undefined) found.push([seconds(ttft), t("ttft")]);
  if (rate) found.push([number(rate, 1), t("rate")]);
  if (timings) found.push([number(timings.cached_tokens), t("cached")]);
  return found;
}

export function drawLive(talk) {
  const answer = answerOf(talk);
  const timings = lastTimings(talk);
  const [kind, text] = state(answer), context = contextTokens();
  const items = figures(answer ? null : timings, answer).map(([value, what]) => el("span", { class: "figure" }, el("b", {}, value), ` ${what}`));
  if (context) items.push(el("span", {}, t("contextOf", { used: sum(used(talk)), total: context })));
  const left = server.props?.available_memory;
  if (left) items.push(el("span", {}, t("memoryLeft", { size: bytes(left) })));
  byId("live").replaceChildren(el("span", { class: `state ${kind}` }, text), ...items);
}
