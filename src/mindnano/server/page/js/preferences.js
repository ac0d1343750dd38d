// The settings dialog, and the list of keys.
import { el } from "./dom.js";
import { ask } from "./dialogs.js";
import { number, t } from "./i18n.js";
import { change, settings } from "./settings.js";

function field(id, label, control, hint) {
  const about = hint ? `${id}-hint` : null;
  if (about) control.setAttribute("aria-describedby", about);
  control.id = id;
  return el("div", { class: "field" }, el("label", { for: id }, label), control, hint ? el("span", { class: "hint", id: about }, hint) : null);
}

function numberInput(name, low, high, step, placeholder) {
  const input = el("input", { type: "number", min: String(low), max: String(high), step, placeholder, inputmode: "decimal" });
  if (settings[name] !== null) input.value = settings[name];
  input.addEventListener("input", () => {
    const wrong = input.validity.valid ? "" : t("outOfRange", { low: String(low), high: number(high) });
    input.setCustomValidity("");
    if (!input.validity.valid) input.setCustomValidity(wrong);
  });
  return input;
}

function choice(name, label, values) {
  const options = Object.entries(values).map(([value, text]) => {
    const input = el("input", { type: "radio", name, value, checked: settings[name] === value });
    return el("label", {}, input, el("span", {}, text));
  });
  const group = el("div", { class: "choice", role: "radiogroup", "aria-label": label }, options);
  // how the page looks is seen at once
  group.addEventListener("change", () => change({ [name]: group.querySelector(":checked").value }));
  return el("div", { class: "field" }, el("span", { class: "label" }, label), group);
}

export function openSettings() {
  const temperature = numberInput("temperature", 0, 100, "any", t("byModel"));
  const topP = numberInput("top_p", 0.01, 1, "any", t("byModel"));
  const most = numberInput("max_tokens", 1, 1048576, "1", t("byServer"));
  const system = el("textarea", { rows: "4" });
  const thinking = el("input", { type: "checkbox", checked: settings.thinking });
  system.value = settings.system;
  const value = (input) => (input.value === "" ? null : Number(input.value));
  return ask({
    title: t("settings"),
    fields: [
      el("div", { class: "pair" },
        field("set-temperature", t("temperature"), temperature, t("temperatureHint")),
        field("set-top-p", t("topP"), topP, t("topPHint"))),
      field("set-max", t("maxTokens"), most, t("maxTokensHint")),
      el("div", { class: "field" },
        el("label", { class: "check" }, thinking, el("span", {}, t("think"))),
        el("span", { class: "hint" }, t("thinkHint"))),
      field("set-system", t("systemPrompt"), system, t("systemHint")),
      el("div", { class: "pair" },
        choice("language", t("language"), { auto: t("auto"), en: "English", zh: "中文" }),
        choice("theme", t("theme"), { auto: t("auto"), light: t("light"), dark: t("dark") })),
    ],
    submit: t("done"),
    read: () => ({
      temperature: value(temperature), top_p: value(topP), max_tokens: value(most),
      thinking: thinking.checked, system: system.value,
    }),
  }).then((values) => { if (values) change(values); });
}

export function openShortcuts() {
  const rows = [
    ["Enter", "shortcutSend"], ["Shift + Enter", "shortcutLine"], ["Esc", "shortcutStop"], ["/", "shortcutFocus"],
    ["Alt + N", "shortcutNew"], ["Alt + 1, 2, 3", "shortcutViews"], ["?", "shortcutHelp"],
  ];
  const list = rows.flatMap(([keys, name]) => [el("dt", {}, el("kbd", {}, keys)), el("dd", {}, t(name))]);
  return ask({ title: t("shortcuts"), fields: [el("dl", { class: "keys" }, list)], submit: t("done"), cancel: false });
}
