// Text files that are sent with a message.
import { bytes, t } from "./i18n.js";
import { toast } from "./toasts.js";

const MOST = 16 * 1024 ** 2; // bytes; more than any context holds

/** [{ name, text }] of the files that are text; the others are named to the user. */
export async function attach(files) {
  const found = [];
  for (const file of files) {
    if (file.size > MOST) { toast(t("tooLarge", { name: file.name, limit: bytes(MOST) })); continue; }
    try {
      const text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
      if (text.includes("\0")) throw new TypeError("binary");
      found.push({ name: file.name, text });
    } catch {
      toast(t("notText", { name: file.name }));
    }
  }
  return found;
}

/** A message's text: each file under its name, then what was typed. */
export function joined(files, typed) {
  if (!files.length) return typed;
  const parts = files.map(({ name, text }) => {
    const longest = Math.max(2, ...(text.match(/`{3,}/g) ?? []).map((fence) => fence.length));
    const fence = "`".repeat(longest + 1);
    return `${name}\n${fence}\n${text.trimEnd()}\n${fence}`;
  });
  return [...parts, typed.trim()].filter(Boolean).join("\n\n");
}
