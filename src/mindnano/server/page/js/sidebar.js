// Conversations, saved sessions, facts about the model.
import { answerOf } from "./answer.js";
import { byId, button, el } from "./dom.js";
import { bytes, number, t } from "./i18n.js";
import { server } from "./server.js";
import { sessions } from "./sessions.js";
import { listTalks } from "./talks.js";

function item(name, about, acts, more = {}) {
  const open = el("button", { type: "button", class: "open", title: name, on: { click: acts.open } }, more.busy ? el("i", { class: "busy" }) : null, name,
    about ? el("span", { class: more.broken ? "about broken" : "about" }, about) : null);
  if (more.broken) open.disabled = true;
  return el("li", { class: "item", "aria-current": more.current ? "true" : null }, open,
    el("span", { class: "item-actions" },
      more.broken ? null : button({ name: "edit", label: `${t("rename")}: ${name}`, kind: "", on: acts.rename }),
      button({ name: "trash", label: `${t("remove")}: ${name}`, kind: "", on: acts.remove })));
}

/** New items in a list; where the keyboard was in the list it stays. */
function replaceItems(list, items) {
  const at = [...list.querySelectorAll("button")].indexOf(document.activeElement);
  list.replaceChildren(...items);
  const buttons = list.querySelectorAll("button");
  if (at >= 0 && buttons.length) buttons[Math.min(at, buttons.length - 1)].focus();
}

/** acts: { open(id), rename(id), remove(id) }. */
export function drawTalks(current, acts) {
  const items = listTalks().map(({ id, title }) => item(title || t("untitled"), null, {
    open: () => acts.open(id), rename: () => acts.rename(id), remove: () => acts.remove(id),
  }, { current: id === current, busy: answerOf({ id }) !== null }));
  replaceItems(byId("conversations"), items.length ? items : [el("li", { class: "empty" }, t("hereEmpty"))]);
}

/** acts: { open(name), rename(name), remove(name) }. */
export function drawSessions(acts) {
  const items = sessions.list.map(({ name, tokens, bytes: size, problem }) => item(
    name,
    problem ? t("savedBroken", { problem }) : t("sessionAbout", { n: tokens, size: bytes(size) }),
    { open: () => acts.open(name), rename: () => acts.rename(name), remove: () => acts.remove(name) },
    { broken: Boolean(problem) },
  ));
  const empty = el("li", { class: "empty" }, t(sessions.available ? "savedEmpty" : "savedOff"));
  replaceItems(byId("sessions"), items.length ? items : [empty]);
}

export function drawFacts() {
  const { props } = server;
  if (!props) return;
  const model = String(props.model ?? "").split("/").at(-1);
  const rows = [[t("model"), model], [t("cache"), `${props.kv_layout} ${props.kv_format}`], [t("context"), number(props.context)]];
  byId("facts").replaceChildren(...rows.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", { title: value }, value))));
}

/** On narrow screens it lies over the page. */
export function openSidebar(open) {
  byId("sidebar").classList.toggle("open", open);
  byId("scrim").hidden = !open;
  byId("main").inert = open;
  byId("open-sidebar").setAttribute("aria-expanded", String(open));
  (open ? byId("close-sidebar") : byId("open-sidebar")).focus();
}
