// Dialogs that ask one thing. Each resolves with the answer, or null where it was dismissed.
import { button, el } from "./dom.js";
import { t } from "./i18n.js";

/** Shows `fields` with a title and buttons; resolves with `read()` on submit. `check` returns a problem or null. */
export function ask({ title, fields, submit, danger = false, read = () => true, onOpen = () => {}, left = null, cancel = true }) {
  return new Promise((resolve) => {
    const before = document.activeElement;
    const close = button({ name: "close", label: t("close"), kind: "icon", on: () => dialog.close() });
    const form = el("form", { method: "dialog", novalidate: false },
      el("header", {}, el("h2", { id: "dialog-title" }, title), close),
      el("div", { class: "fields" }, fields),
      el("footer", {},
        left ? el("span", { class: "left" }, left) : null,
        cancel ? button({ text: t("cancel"), kind: "plain", on: () => dialog.close() }) : null,
        el("button", { type: "submit", class: danger ? "danger" : "primary" }, submit)));
    const dialog = el("dialog", { "aria-labelledby": "dialog-title" }, form);
    let answer = null;
    form.addEventListener("submit", () => { answer = read(); });
    dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
    dialog.addEventListener("close", () => {
      dialog.remove();
      if (before?.isConnected) before.focus();
      resolve(answer);
    });
    document.body.append(dialog);
    dialog.showModal();
    onOpen(dialog);
  });
}

/** A yes, or null. */
export const confirm = (title, text, submit) => ask({ title, fields: [el("p", {}, text)], submit, danger: true });

/** One line of text. `hint(value)` may say something about it while it is typed. */
export function askName({ title, text = null, value, submit, hint = () => null, label = t("name") }) {
  const input = el("input", { type: "text", id: "dialog-name", required: true, maxlength: "100", pattern: "[^\\/\\\\]+" });
  const said = el("p", { class: "hint", role: "status" });
  input.value = value;
  const look = () => { said.textContent = hint(input.value.trim()) ?? ""; };
  input.addEventListener("input", look);
  look();
  return ask({
    title,
    fields: [text ? el("p", {}, text) : null, el("div", { class: "field" }, el("label", { for: "dialog-name" }, label), input, said)].filter(Boolean),
    submit,
    read: () => input.value.trim() || null,
    onOpen: () => input.select(),
  });
}

export function askKey(wrong) {
  const input = el("input", { type: "password", id: "dialog-key", required: true, autocomplete: "off" });
  return ask({
    title: t("keyTitle"),
    fields: [
      el("p", {}, t("keyText")),
      el("div", { class: "field" },
        el("label", { for: "dialog-key" }, t("keyTitle")), input,
        wrong ? el("p", { class: "hint bad" }, t("keyWrong")) : null),
    ],
    submit: t("keyUse"),
    read: () => input.value.trim() || null,
    onOpen: () => input.focus(),
  });
}
