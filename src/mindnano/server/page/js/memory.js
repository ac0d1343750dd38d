// The memory plan: what each context, layout and format would take, against what this machine has.
import { el } from "./dom.js";
import { bytes, number, t, tokens } from "./i18n.js";
import { readProps, server } from "./server.js";

const PARTS = ["weights", "kv", "states", "checkpoints", "scratch", "runtime", "device"];
const VERDICTS = { fits: "fits", tight: "tight", "does not fit": "over", "beyond trained context": "beyond" };

let chosen = null; // "layout format" whose bars are shown

export const kindOf = ({ kv_layout, kv_format }) => `${kv_layout} ${kv_format}`;

export async function drawMemory(view) {
  if (!server.props) view.replaceChildren(el("p", { class: "nothing" }, t("asking")));
  await readProps();
  if (!server.props) { view.replaceChildren(el("p", { class: "nothing" }, t("gone"))); return; }
  const { plan } = server.props;
  if (!plan?.rows?.length) { view.replaceChildren(el("p", { class: "nothing" }, t("noPlan"))); return; }
  const kinds = [...new Set(plan.rows.map(kindOf))];
  if (!kinds.includes(chosen)) chosen = kinds.includes(kindOf(server.props)) ? kindOf(server.props) : kinds[0];
  const choose = (kind) => { chosen = kind; draw(view, plan, kinds, choose); };
  draw(view, plan, kinds, choose);
}

function draw(view, plan, kinds, choose) {
  const focused = document.activeElement?.name === "kind";
  view.replaceChildren(el("div", { class: "sheet" },
    lead(plan),
    el("section", { "aria-labelledby": "bars-title" },
      el("div", { class: "sheet-head" }, el("h2", { id: "bars-title" }, t("planBars")), picker(kinds, choose)),
      bars(plan), legend()),
    el("section", { "aria-labelledby": "table-title" },
      el("h2", { id: "table-title" }, t("planTable")), table(plan, kinds))));
  if (focused) view.querySelector("input:checked").focus();
}

function lead(plan) {
  const best = plan.largest_context.find((one) => kindOf(one) === kindOf(server.props));
  const facts = [
    [best?.context ? number(best.context) : "0", t("planLargest")],
    [bytes(plan.available), t(plan.available_from === "cgroup" ? "planAvailableGroup" : "planAvailable")],
    [bytes(plan.reserve), t("planReserve")],
    [number(plan.slots), t("planSlots")],
  ];
  return el("div", { class: "lead" }, el("dl", {}, facts.map(([value, what]) => el("div", {}, el("dt", {}, what), el("dd", {}, value)))));
}

function picker(kinds, choose) {
  const options = kinds.map((kind) => el("label", {},
    el("input", { type: "radio", name: "kind", value: kind, checked: kind === chosen, on: { change: () => choose(kind) } }),
    el("span", {}, kind)));
  return el("div", { class: "choice wrap", role: "radiogroup", "aria-label": t("cache") }, options);
}

/** One bar a context; the line is what the machine has, the hatched strip before it the reserve. */
function bars(plan) {
  const rows = plan.rows.filter((row) => kindOf(row) === chosen);
  const most = 1.04 * Math.max(plan.available, ...rows.map((row) => Math.min(row.total, 2 * plan.available)));
  const at = (value) => `${(100 * value) / most}%`;
  const limit = el("div", { class: "limit" }, el("span", {}, bytes(plan.available)));
  limit.style.left = at(plan.available);
  const reserve = el("div", { class: "reserve" });
  reserve.style.left = at(Math.max(0, plan.available - plan.reserve));
  reserve.style.width = at(Math.min(plan.reserve, plan.available));
  const lines = rows.map((row) => {
    const parts = PARTS.map((name) => {
      const part = el("i", { class: `part ${name}`, title: `${t(`part_${name}`)}: ${bytes(row[name])}` });
      part.style.width = at(row[name]);
      return part;
    });
    return el("div", { class: "bar-row" }, el("span", { class: "of" }, tokens(row.context)), el("div", { class: "bar-line" }, parts),
      el("span", { class: "sum" }, bytes(row.total)), mark(row.verdict));
  });
  return el("div", { class: "bars", "aria-hidden": "true" }, lines, el("div", { class: "bar-over" }, reserve, limit));
}

const legend = () => el("ul", { class: "legend", "aria-hidden": "true" },
  PARTS.map((name) => el("li", {}, el("i", { class: `part ${name}` }), t(`part_${name}`))),
  el("li", {}, el("i", { class: "part reserve" }), t("planReserve")));

const mark = (verdict) => el("span", { class: `verdict ${VERDICTS[verdict] ?? "beyond"}` }, t(`verdict_${VERDICTS[verdict] ?? "beyond"}`));

/** Contexts down, layouts and formats across. */
function table(plan, kinds) {
  const contexts = [...new Set(plan.rows.map((row) => row.context))];
  const now = kindOf(server.props);
  const head = el("tr", {}, el("th", { scope: "col" }, t("context")), kinds.map((kind) => el("th", { scope: "col", class: kind === now ? "now" : null },
    kind, kind === now ? el("span", { class: "tag" }, t("planNow")) : null)));
  const rows = contexts.map((context) => el("tr", {}, el("th", { scope: "row" }, tokens(context)), kinds.map((kind) => {
    const row = plan.rows.find((one) => one.context === context && kindOf(one) === kind);
    if (!row) return el("td", {});
    const left = row.left < 0 ? t("planMissing", { size: bytes(-row.left) }) : t("planLeft", { size: bytes(row.left) });
    return el("td", { class: kind === now ? "now" : null, title: left }, el("span", { class: "sum" }, bytes(row.total)), mark(row.verdict));
  })));
  return el("div", { class: "table-frame", tabindex: "0", role: "region", "aria-labelledby": "table-title" },
    el("table", { class: "figures" }, el("thead", {}, head), el("tbody", {}, rows)));
}
