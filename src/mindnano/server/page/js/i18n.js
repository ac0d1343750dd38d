// Texts and numbers in the user's language.
import en from "./i18n/en.js";
import zh from "./i18n/zh.js";

const LANGUAGES = { en, zh };
let language = "en";

export function setLanguage(wanted) {
  const system = navigator.language.toLowerCase().startsWith("zh") ? "zh" : "en";
  language = wanted in LANGUAGES ? wanted : system;
  document.documentElement.lang = language === "zh" ? "zh-CN" : "en";
}

/** The text of `key`, with {name} replaced. A key with forms (`one`, `other`) takes them by values.n. */
export function t(key, values = {}) {
  let text = LANGUAGES[language][key];
  if (typeof text === "object") text = text[new Intl.PluralRules(language).select(values.n)] ?? text.other;
  return text.replace(/\{(\w+)\}/g, (_, name) => (typeof values[name] === "number" ? number(values[name]) : values[name]));
}

export const number = (value, digits = 0) =>
  new Intl.NumberFormat(language, { maximumFractionDigits: digits, minimumFractionDigits: digits }).format(value);

/** Bytes in GiB or MiB. */
export function bytes(value) {
  if (value >= 1024 ** 3) return `${number(value / 1024 ** 3, 1)} GiB`;
  return `${number(value / 1024 ** 2, value < 10 * 1024 ** 2 ? 1 : 0)} MiB`;
}

/** 8192 as 8K, where that is exact; else the number. */
export function tokens(value) {
  return value >= 1024 && value % 1024 === 0 ? `${number(value / 1024)}K` : number(value);
}

export function seconds(value) {
  if (value < 0.01) return t("secondsShort", { s: `< ${number(0.01, 2)}` });
  if (value < 10) return t("secondsShort", { s: number(value, value < 1 ? 2 : 1) });
  if (value < 100) return t("secondsShort", { s: number(value) });
  const minutes = Math.floor(value / 60);
  if (minutes < 60) return t("minutes", { m: minutes, s: String(Math.round(value) % 60).padStart(2, "0") });
  return t("hours", { h: Math.floor(minutes / 60), m: String(minutes % 60).padStart(2, "0") });
}

/** Fills the static page: data-t is text, data-t-label the accessible name, data-t-placeholder the placeholder. */
export function translatePage() {
  for (const node of document.querySelectorAll("[data-t]")) node.textContent = t(node.dataset.t);
  for (const node of document.querySelectorAll("[data-t-label]")) {
    node.setAttribute("aria-label", t(node.dataset.tLabel));
    if (node.matches("button")) node.title = t(node.dataset.tLabel);
  }
  for (const node of document.querySelectorAll("[data-t-placeholder]")) node.placeholder = t(node.dataset.tPlaceholder);
}
