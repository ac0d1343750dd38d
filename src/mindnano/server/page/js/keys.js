// Keys that work everywhere on the page.
import { byId } from "./dom.js";
import { openShortcuts } from "./preferences.js";
import { openSidebar } from "./sidebar.js";
import { VIEWS, showView } from "./views.js";

const typing = (node) => node.matches("input, textarea, select, [contenteditable]");

/** acts: { newChat(), stop(), running() }. */
export function listenToKeys(acts) {
  document.addEventListener("keydown", (event) => {
    if (event.isComposing || document.querySelector("dialog[open]")) return;
    const { key, code, altKey, ctrlKey, metaKey } = event;
    const take = (act) => { event.preventDefault(); act(); };
    if (key === "Escape") {
      if (byId("sidebar").classList.contains("open")) take(() => openSidebar(false));
      else if (acts.running()) take(acts.stop);
    } else if (altKey && !ctrlKey && !metaKey) {
      // by code: Alt changes the letter on some keyboards
      if (code === "KeyN") take(acts.newChat);
      else if (/^Digit[123]$/.test(code)) take(() => showView(VIEWS[Number(code.at(-1)) - 1]));
    } else if (!ctrlKey && !metaKey && !typing(event.target)) {
      if (key === "/") take(() => { showView("chat"); byId("draft").focus(); });
      else if (key === "?") take(openShortcuts);
    }
  });
}
