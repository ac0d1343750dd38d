// Short notes at the edge, and notices that stay while something lasts.
import { byId, button, el } from "./dom.js";

const SHOWN = 6_000; // ms

/** A note that goes by itself; `action` is { text, run }. */
export function toast(text, action = null) {
  const node = el("div", { class: "toast" }, el("span", {}, text));
  let timer = 0;
  const wait = () => { timer = setTimeout(() => node.remove(), SHOWN); };
  if (action) node.append(button({ text: action.text, kind: "", on: () => { node.remove(); action.run(); } }));
  for (const event of ["mouseenter", "focusin"]) node.addEventListener(event, () => clearTimeout(timer));
  for (const event of ["mouseleave", "focusout"]) node.addEventListener(event, wait);
  byId("toasts").append(node);
  wait();
}

/** The notice named `name`: shown with `text`, or taken away with null. */
export function notice(name, text, bad = false) {
  const notices = byId("notices");
  const shown = notices.querySelector(`[data-name="${name}"]`);
  if (text === null) shown?.remove();
  else if (shown) shown.lastChild.textContent = text;
  else notices.append(el("div", { class: bad ? "notice bad" : "notice", data: { name } }, bad ? el("i", { class: "dot" }) : null, el("span", {}, text)));
}

/** For screen readers only. */
export function announce(text) {
  byId("announce").textContent = text;
}
