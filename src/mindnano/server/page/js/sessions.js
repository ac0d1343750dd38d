// Conversations saved on the server, with what was computed for them.
import { ApiError, request } from "./api.js";
import { requestMessages } from "./answer.js";
import { emit } from "./bus.js";
import { askName, confirm } from "./dialogs.js";
import { t } from "./i18n.js";
import { message, newTalk, titleOf } from "./talks.js";
import { toast } from "./toasts.js";

export const sessions = { list: [], available: true };

const path = (name, rest = "") => `v1/sessions/${encodeURIComponent(name)}${rest}`;

export function failed(error) {
  toast(error instanceof ApiError ? t("failed", { text: error.message }) : t("gone"));
}

export async function readSessions() {
  try {
    const answer = await request("v1/sessions", { quiet: true });
    sessions.list = answer.data;
    sessions.available = true;
  } catch (error) {
    if (!(error instanceof ApiError)) return; // gone: the list stays as it was
    sessions.list = [];
    sessions.available = false;
  }
  emit("sessions");
}

/** A name to begin with: the first words of a title, without what a name can't have. */
function shortName(title) {
  const words = title.replace(/[/\\\p{C}]/gu, " ").split(/\s+/);
  let name = "";
  for (const word of words) if ([...name, ...word].length < 40) name += ` ${word}`; else break;
  return name.trim() || [...title].slice(0, 20).join("");
}

/** Ask for a name and save `talk`. */
export async function saveSession(talk) {
  const messages = requestMessages(talk);
  if (!messages.length) { toast(t("nothingToSave")); return; }
  await readSessions();
  const taken = new Set(sessions.list.map(({ name }) => name));
  const name = await askName({
    title: t("saveTitle"),
    text: t("saveText"),
    value: talk.session ?? shortName(titleOf(talk)),
    submit: t("save"),
    hint: (value) => (taken.has(value) ? t("replaceText") : null),
  });
  if (!name) return;
  try {
    const made = await request("v1/sessions", { body: { name, messages } });
    talk.session = name;
    toast(t("savedDone", { name, n: made.tokens }));
  } catch (error) {
    failed(error);
  }
  await readSessions();
}

/** A conversation made from the session, or null. */
export async function loadSession(name) {
  try {
    const { messages, reusable_tokens: n } = await request(path(name, "/load"), { method: "POST" });
    const talk = newTalk(messages[0]?.role === "system" ? messages[0].content : "");
    talk.messages = messages
      .filter(({ role, content }) => (role === "user" || role === "assistant") && typeof content === "string")
      .map(({ role, content }) => ({ ...message(role, content), ...(role === "assistant" ? { status: "done" } : {}) }));
    Object.assign(talk, { session: name, title: name, named: true, reusable: n });
    toast(t("loadedDone", { n }));
    return talk;
  } catch (error) {
    failed(error);
    return null;
  }
}

export async function renameSession(name) {
  const wanted = await askName({ title: t("renameTitle"), value: name, submit: t("rename") });
  if (!wanted || wanted === name) return;
  try {
    await request(path(name), { method: "PATCH", body: { name: wanted } });
  } catch (error) {
    failed(error);
  }
  await readSessions();
}

export async function deleteSession(name) {
  if (!await confirm(t("removeTitle", { name }), t("removeText"), t("remove"))) return;
  try {
    await request(path(name), { method: "DELETE" });
  } catch (error) {
    failed(error);
  }
  await readSessions();
}
