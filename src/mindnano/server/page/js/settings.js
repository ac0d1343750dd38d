// What the user chose, kept in this browser. null: as the model recommends.
import { emit } from "./bus.js";

const KEY = "mindnano.settings";

const number = (low, high) => (value) => typeof value === "number" && value >= low && value <= high;
const whole = (low, high) => (value) => Number.isInteger(value) && value >= low && value <= high;
const oneOf = (...values) => (value) => values.includes(value);
const text = (value) => typeof value === "string";

/** Name: [value at first, what it may be]. */
export const FIELDS = {
  temperature: [null, number(0, 100)],
  top_p: [null, number(0.000001, 1)],
  max_tokens: [null, whole(1, 2 ** 30)],
  thinking: [false, oneOf(true, false)],
  system: ["", text],
  language: ["auto", oneOf("auto", "en", "zh")],
  theme: ["auto", oneOf("auto", "light", "dark")],
};

export const settings = Object.fromEntries(Object.entries(FIELDS).map(([name, [first]]) => [name, first]));

const allowed = (name, value) => (value === null && FIELDS[name][0] === null) || FIELDS[name][1](value);

export function loadSettings() {
  let kept = {};
  try {
    kept = JSON.parse(localStorage.getItem(KEY)) ?? {};
  } catch {
    // damaged or blocked: what follows keeps the first values
  }
  if (typeof kept !== "object") return;
  for (const name of Object.keys(FIELDS)) if (name in kept && allowed(name, kept[name])) settings[name] = kept[name];
}

export function change(values) {
  for (const [name, value] of Object.entries(values)) if (name in FIELDS && allowed(name, value)) settings[name] = value;
  try {
    localStorage.setItem(KEY, JSON.stringify(settings));
  } catch {
    // this page still has them
  }
  emit("settings", settings);
}
