// The last benchmark's curves: seconds to the first token and decode speed by length of the input.
import { request, ApiError } from "./api.js";
import { el } from "./dom.js";
import { number, seconds, t, tokens } from "./i18n.js";
import { kindOf } from "./memory.js";

const charts = new Set();
let observed = null;

export async function drawSpeed(view) {
  let points;
  try {
    points = (await request("v1/benchmark", { quiet: true })).points;
  } catch (error) {
    if (!(error instanceof ApiError)) { if (!view.childElementCount) view.replaceChildren(el("p", { class: "nothing" }, t("gone"))); return; }
    points = [];
  }
  if (!points.length) { view.replaceChildren(nothing()); return; }
  const kinds = [...new Set(points.map(kindOf))];
  const ttft = el("div", { class: "chart" }), decode = el("div", { class: "chart" });
  view.replaceChildren(el("div", { class: "sheet" },
    el("p", { class: "note" }, t("speedNote"), points.some((point) => point.synthetic) ? ` ${t("speedSynthetic")}` : ""),
    el("section", {}, el("h2", {}, t("speedTtft")), ttft),
    el("section", {}, el("h2", {}, t("speedDecode")), decode),
    el("section", {}, el("h2", { id: "points-title" }, t("speedTable")), table(points))));
  charts.clear();
  charts.add(chart(ttft, points, kinds, "ttft_s", true));
  charts.add(chart(decode, points, kinds, "decode_tok_s", false));
  watch(view);
}

function nothing() {
  return el("div", { class: "nothing" }, el("p", {}, t("speedNone")), el("pre", {}, el("code", {}, "mindnano serve MODEL --bench-results FILE")));
}

const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** A colour of the theme as the canvas needs it. */
function colour(name) {
  const probe = el("i", { class: name, hidden: true });
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

/** `spread`: values over several powers of ten, so on a logarithmic scale. */
function chart(box, points, kinds, field, spread) {
  const x = [...new Set(points.map((point) => point.context_tokens))].sort((a, b) => a - b);
  const values = kinds.map((kind) => x.map((at) => points.find((one) => kindOf(one) === kind && one.context_tokens === at)?.[field] ?? null));
  const muted = colour("ink-muted"), line = colour("ink-line"), font = `12px ${style("--sans")}`;
  const label = (value) => (spread ? t("secondsShort", { s: number(value, value < 1 ? -Math.floor(Math.log10(value)) : 0) }) : number(value, Number.isInteger(value) ? 0 : 1));
  const axis = { stroke: muted, font, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1, size: 4 } };
  const plot = new globalThis.uPlot({
    width: box.clientWidth || 600,
    height: 260,
    legend: { show: true, live: true },
    cursor: { y: false, points: { size: 8 } },
    scales: { x: { time: false, distr: 3, log: 2 }, y: spread ? { distr: 3, log: 10 } : { range: (_, __, most) => [0, most * 1.08] } },
    axes: [
      { ...axis, splits: () => x, values: (_, splits) => splits.map((value) => (value === null ? "" : tokens(value))), filter: (_, splits) => splits, space: 40 },
      { ...axis, size: 52, ...(spread ? { splits: decades } : {}), values: (_, splits) => splits.map((value) => (value === null ? "" : label(value))) },
    ],
    series: [
      { label: t("speedInput"), value: (_, value) => (value === null ? "–" : tokens(value)) },
      ...kinds.map((kind, at) => ({
        label: kind, stroke: colour(`series-${at % 6}`), width: 2, points: { show: true, size: 6, fill: colour("ink-surface") }, spanGaps: true,
        value: (_, value) => (value === null ? "–" : spread ? seconds(value) : number(value, 1)),
      })),
    ],
  }, [x, ...values], box);
  return { plot, box };
}

/** The powers of ten that a logarithmic scale shows. */
function decades(plot) {
  const { min, max } = plot.scales.y;
  const first = Math.round(Math.log10(min)), count = Math.round(Math.log10(max)) - first + 1;
  return Array.from({ length: count }, (_, at) => 10 ** (first + at));
}

/** Charts follow the width, and are drawn again in the colours of another theme. */
function watch(view) {
  if (observed) return;
  observed = new ResizeObserver(() => {
    for (const { plot, box } of charts) if (box.clientWidth) plot.setSize({ width: box.clientWidth, height: 260 });
  });
  observed.observe(view);
  const again = () => { if (!view.hidden) drawSpeed(view); };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  new MutationObserver(again).observe(document.documentElement, { attributeFilter: ["data-theme"] });
}

const runs = ({ runs: all, disturbed }) => (disturbed ? t("speedDisturbed", { n: all, disturbed }) : number(all));

function table(points) {
  const columns = [["speedInput", (p) => number(p.context_tokens)], ["cache", kindOf],
    ["speedTtftShort", (p) => (p.ttft_s === null ? "–" : seconds(p.ttft_s))],
    ["speedDecodeShort", (p) => (p.decode_tok_s === null ? "–" : number(p.decode_tok_s, 1))],
    ["speedOutput", (p) => number(p.output_tokens)], ["speedRuns", runs]];
  return el("div", { class: "table-frame", tabindex: "0", role: "region", "aria-labelledby": "points-title" }, el("table", { class: "figures" },
    el("thead", {}, el("tr", {}, columns.map(([name]) => el("th", { scope: "col" }, t(name))))),
    el("tbody", {}, points.map((point) => el("tr", {}, columns.map(([, value]) => el("td", {}, value(point))))))));
}
