// Making elements. Text is always set as text.

/** An element with properties: `class`, `data` (an object), `on` (event handlers), attributes; null ones are left out. */
export function el(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [event, handler] of Object.entries(value)) node.addEventListener(event, handler);
    else if (name === "data") Object.assign(node.dataset, value);
    else if (name === "class") node.className = value;
    else if (name in node && typeof value !== "string") node[name] = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

const SVG = "http://www.w3.org/2000/svg";

export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  const use = document.createElementNS(SVG, "use");
  svg.setAttribute("aria-hidden", "true");
  use.setAttribute("href", `icons.svg#${name}`);
  svg.append(use);
  return svg;
}

/** A button with an icon; with `label` alone it is the icon's accessible name. */
export function button({ name, text, label, kind = "quiet", on, ...more }) {
  const node = el("button", { type: "button", class: kind, "aria-label": label, title: label, on: { click: on }, ...more });
  if (name) node.append(icon(name));
  if (text) node.append(el("span", {}, text));
  return node;
}

export const byId = (id) => document.getElementById(id);

/** Calls `work` at most once a frame, with the last arguments. */
export function oncePerFrame(work) {
  let asked = null;
  return (...values) => {
    if (asked === null) requestAnimationFrame(() => { const last = asked; asked = null; work(...last); });
    asked = values;
  };
}

/** Calls `work` `delay` ms after the last call; `.now()` does it at once if it is due. */
export function later(work, delay) {
  let timer = 0, due = null;
  const run = () => { clearTimeout(timer); if (due) { const values = due; due = null; work(...values); } };
  const call = (...values) => { due = values; clearTimeout(timer); timer = setTimeout(run, delay); };
  call.now = run;
  return call;
}

/** Calls `work` at most every `pause` ms, the last call included; `.now()` does it at once if it is due. */
export function atMostEvery(work, pause) {
  let timer = 0, due = null;
  const run = () => { clearTimeout(timer); timer = 0; if (due) { const values = due; due = null; work(...values); } };
  const call = (...values) => { due = values; timer ||= setTimeout(run, pause); };
  call.now = run;
  return call;
}

export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // over plain http from another machine there is no clipboard API
    const area = el("textarea", { class: "hidden", "aria-hidden": "true" });
    area.value = text;
    document.body.append(area);
    area.select();
    const copied = document.execCommand("copy");
    area.remove();
    if (!copied) throw new Error("copy");
  }
}
