// Conversations kept in this browser: an index, and one entry each.
import { emit } from "./bus.js";

const INDEX = "mindnano.talks", ENTRY = "mindnano.talk.", OPEN = "mindnano.open";
const ROLES = new Set(["user", "assistant"]);

export const newId = () => Array.from(crypto.getRandomValues(new Uint8Array(9)), (b) => b.toString(36).padStart(2, "0")).join("");

/** status of an answer: done, length (cut), writing, stopped, interrupted (reload, lost server), failed. */
export const message = (role, content = "") => ({ id: newId(), role, content });

/** `system`: null until the first message, then what the settings say. */
export function newTalk(system = null) {
  return { id: newId(), title: "", named: false, updated: Date.now(), system, session: null, draft: "", messages: [] };
}

function read(key) {
  try { return JSON.parse(localStorage.getItem(key)); } catch { return null; }
}

/** [{ id, title, updated }], the latest first. */
export function listTalks() {
  const index = read(INDEX);
  return Array.isArray(index) ? index.filter((entry) => typeof entry?.id === "string") : [];
}

function writeIndex(entries) {
  localStorage.setItem(INDEX, JSON.stringify(entries.sort((a, b) => b.updated - a.updated)));
}

/** The conversation, or null where there is none. What was being written when the page closed is interrupted. */
export function loadTalk(id) {
  const kept = read(ENTRY + id);
  if (!kept || !Array.isArray(kept.messages)) return null;
  const messages = kept.messages.filter((one) => ROLES.has(one?.role) && typeof one.content === "string");
  for (const one of messages) {
    one.id ??= newId();
    if (one.status === "writing") Object.assign(one, { status: "interrupted", reason: "reload" });
  }
  return { ...newTalk(), ...kept, id, messages };
}

export function titleOf(talk) {
  if (talk.named) return talk.title;
  const first = talk.messages.find((one) => one.role === "user")?.content ?? talk.draft;
  return first.trim().split("\n")[0].slice(0, 80);
}

/** Keeps it; false where the browser has no room. Empty ones aren't kept. */
export function saveTalk(talk) {
  if (!talk.messages.length && !talk.draft) { removeTalk(talk.id); return true; }
  talk.title = titleOf(talk);
  try {
    localStorage.setItem(ENTRY + talk.id, JSON.stringify(talk));
    const { id, title, updated } = talk, entries = listTalks(), known = entries.find((entry) => entry.id === id);
    if (known?.title !== title || known.updated !== updated) {
      writeIndex([{ id, title, updated }, ...entries.filter((entry) => entry.id !== id)]);
      emit("talks");
    }
    return true;
  } catch {
    return false;
  }
}

function forget(id) {
  try {
    localStorage.removeItem(ENTRY + id);
    if (listTalks().some((entry) => entry.id === id)) writeIndex(listTalks().filter((entry) => entry.id !== id));
  } catch { /* blocked storage holds nothing */ }
}

export function removeTalk(id) {
  forget(id);
  emit("talks");
}

/** Which one this tab shows; a new tab begins with the latest. */
export const opened = {
  get: () => { try { return sessionStorage.getItem(OPEN); } catch { return null; } },
  set: (id) => { try { sessionStorage.setItem(OPEN, id); } catch { /* then a reload opens the latest */ } },
};

/** The id of the conversation that another tab wrote, to `handler`. */
export function onOtherTab(handler) {
  addEventListener("storage", ({ key }) => {
    if (key?.startsWith(ENTRY)) handler(key.slice(ENTRY.length));
    else if (key === INDEX) emit("talks");
  });
}
