// Chat, memory, speed: one at a time, named in the address so that back and reload work.
import { byId } from "./dom.js";
import { drawMemory } from "./memory.js";
import { drawSpeed } from "./speed.js";
import { openSidebar } from "./sidebar.js";

export const VIEWS = ["chat", "memory", "speed"];
const DRAW = { memory: drawMemory, speed: drawSpeed };

export function shownView() {
  const name = location.hash.slice(1);
  return VIEWS.includes(name) ? name : "chat";
}

let drawn = null, afterwards = () => {};

export function showView(name) {
  if (shownView() !== name) location.hash = name; // its event comes later, when there is nothing left to do
  draw();
  afterwards();
}

function draw() {
  const name = drawn = shownView();
  for (const view of VIEWS) byId(`view-${view}`).hidden = view !== name;
  byId("chat-actions").hidden = name !== "chat";
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.view === name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  DRAW[name]?.(byId(`view-${name}`));
}

/** `changed` is called after every change of the view. */
export function watchViews(changed) {
  afterwards = changed;
  addEventListener("hashchange", () => {
    if (byId("sidebar").classList.contains("open")) openSidebar(false);
    if (shownView() === drawn) return;
    draw();
    changed();
  });
  draw();
}
