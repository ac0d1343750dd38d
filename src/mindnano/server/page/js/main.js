// Brings the parts together: which conversation is open, what the user's acts do to it.
import { Answer, answerOf } from "./answer.js";
import { onKeyWanted } from "./api.js";
import { on } from "./bus.js";
import { Composer } from "./composer.js";
import { askKey, askName } from "./dialogs.js";
import { atMostEvery, byId, oncePerFrame } from "./dom.js";
import { setLanguage, t, translatePage } from "./i18n.js";
import { listenToKeys } from "./keys.js";
import { drawLive } from "./live.js";
import { openSettings } from "./preferences.js";
import { drawRule } from "./rule.js";
import { server, watchServer, lookAgain } from "./server.js";
import { deleteSession, loadSession, readSessions, renameSession, saveSession } from "./sessions.js";
import { loadSettings, settings } from "./settings.js";
import { drawFacts, drawSessions, drawTalks, openSidebar } from "./sidebar.js";
import { listTalks, loadTalk, message, newTalk, onOtherTab, opened, removeTalk, saveTalk, titleOf } from "./talks.js";
import { Thread } from "./thread.js";
import { announce, notice, toast } from "./toasts.js";
import { shownView, showView, watchViews } from "./views.js";

const KEEP_EVERY = 400; // ms between two writes of a growing answer

const open = new Map(); // conversations in memory: the shown one, and those that are being answered
let talk = null;

const thread = new Thread({ edit, again, goOn });
const composer = new Composer({ send, stop, drafted, counted: () => drawFigures() });
const drawFigures = oncePerFrame(() => { drawRule(talk, composer.tokens); drawLive(talk); });
const changed = new Set(); // conversations that are to be kept
const keepAll = atMostEvery(() => { for (const one of [...changed]) keep(one); }, KEEP_EVERY);

function keepSoon(one) {
  changed.add(one);
  keepAll();
}

function keep(one) {
  changed.delete(one);
  notice("room", saveTalk(one) ? null : t("noRoom"));
}

function show(next) {
  keepAll.now();
  if (talk && !answerOf(talk)) open.delete(talk.id);
  talk = next;
  open.set(talk.id, talk);
  opened.set(talk.id);
  thread.show(talk);
  composer.show(talk);
  drawAll();
}

function drawAll() {
  byId("save-session").disabled = !talk.messages.length;
  const title = shownView() === "chat" ? titleOf(talk) || t("untitled") : t(shownView());
  byId("title").textContent = title;
  document.title = shownView() === "chat" && !talk.messages.length ? "MindNano" : `${title} · MindNano`;
  drawTalks(talk.id, { open: openTalk, rename: renameTalk, remove: deleteTalk });
  drawFigures();
}

function narrow() { return matchMedia("(max-width: 52rem)").matches; }

function openTalk(id) {
  const found = open.get(id) ?? loadTalk(id);
  if (!found) { removeTalk(id); return; }
  goToChat();
  show(found);
}

/** A saved session; where this browser has its conversation already, unchanged, that one. */
async function openSession(name) {
  const loaded = await loadSession(name);
  if (!loaded) return;
  const said = (one) => JSON.stringify([one.system, one.messages.map(({ role, content }) => [role, content])]);
  const same = listTalks().map(({ id }) => open.get(id) ?? loadTalk(id)).find((one) => one?.session === name && said(one) === said(loaded));
  if (!same) keep(loaded);
  goToChat();
  show(same ?? loaded);
}

function goToChat() {
  showView("chat");
  if (byId("sidebar").classList.contains("open")) openSidebar(false);
  if (!narrow()) byId("draft").focus();
}

function newChat() {
  goToChat();
  if (talk.messages.length || talk.draft) show(newTalk());
}

async function renameTalk(id) {
  const found = open.get(id) ?? loadTalk(id);
  const name = await askName({ title: t("renameTitle"), value: titleOf(found), submit: t("rename") });
  if (!name) return;
  Object.assign(found, { title: name, named: true });
  keep(found);
  drawAll();
}

function deleteTalk(id) {
  const found = open.get(id) ?? loadTalk(id);
  answerOf({ id })?.stop();
  open.delete(id);
  changed.delete(found);
  removeTalk(id);
  if (talk.id === id) show(newTalk());
  if (found) toast(t("removed"), { text: t("undo"), run: () => { keep(found); openTalk(id); } });
}

// What the user does in the conversation.

function send(text) {
  talk.system ??= settings.system;
  talk.messages.push(message("user", text));
  begin(addAnswer());
}

function addAnswer() {
  const answer = { ...message("assistant"), status: "writing" };
  talk.messages.push(answer);
  return answer;
}

function edit(one, text) {
  if (answerOf(talk)) return;
  talk.messages.splice(talk.messages.indexOf(one));
  send(text);
}

function again(one) {
  if (answerOf(talk)) return;
  talk.messages.splice(talk.messages.indexOf(one));
  begin(addAnswer());
}

function goOn(one) {
  if (!answerOf(talk)) begin(one, true);
}

function stop() { answerOf(talk)?.stop(); }

function begin(one, further = false) {
  talk.updated = Date.now();
  const answer = new Answer(talk, one, further);
  const done = answer.run();
  keep(talk);
  thread.show(talk);
  composer.draw();
  drawAll();
  announce(t("started"));
  byId("draft").focus();
  return done;
}

function drafted(text) {
  talk.draft = text;
  keepSoon(talk);
}

// What happens by itself.

on("answer", (answer) => {
  keepSoon(answer.talk);
  if (answer.talk !== talk) return;
  thread.refresh(answer.message);
  drawFigures();
});

on("answered", (answer) => {
  const { message: one, talk: its } = answer;
  changed.delete(its);
  if (its !== talk) open.delete(its.id);
  if (listTalks().some(({ id }) => id === its.id)) keep(its); // not where it was deleted meanwhile
  if (one.timings) composer.learn(one.timings);
  if (one.status === "interrupted") lookAgain();
  announce(t("finished"));
  if (its === talk) { thread.refresh(one); composer.draw(); }
  drawAll();
});

on("talks", () => { if (talk) drawTalks(talk.id, { open: openTalk, rename: renameTalk, remove: deleteTalk }); });

on("sessions", () => drawSessions({
  open: openSession,
  rename: renameSession,
  remove: deleteSession,
}));

on("props", () => {
  drawFacts();
  byId("save-session").hidden = !server.props.sessions;
  thread.refreshStart();
  drawFigures();
});

on("server", ({ before, state }) => {
  notice("server", state === "gone" ? t("goneNotice") : state === "loading" ? t("loadingNotice") : null, state === "gone");
  if (before === "gone" && state === "ready") toast(t("backNotice"));
  if (state === "ready") readSessions();
  drawFigures();
});

on("settings", () => {
  if (settings.theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = settings.theme;
  const before = document.documentElement.lang;
  setLanguage(settings.language);
  if (document.documentElement.lang !== before) redraw();
  composer.draw();
});

/** Everything again, in another language. */
function redraw() {
  translatePage();
  thread.show(talk);
  composer.show(talk);
  drawSessions({});
  readSessions();
  drawFacts();
  drawAll();
  showView(shownView());
}

onOtherTab((id) => {
  if (!talk || id !== talk.id || answerOf(talk)) return;
  const newer = loadTalk(id);
  if (!newer || newer.updated <= talk.updated) return;
  changed.delete(talk);
  show({ ...newer, draft: talk.draft });
});

addEventListener("pagehide", () => keepAll.now());

byId("new-chat").addEventListener("click", newChat);
byId("save-session").addEventListener("click", () => saveSession(talk).then(() => { keep(talk); drawAll(); }));
byId("open-settings").addEventListener("click", openSettings);
byId("open-sidebar").addEventListener("click", () => openSidebar(true));
byId("close-sidebar").addEventListener("click", () => openSidebar(false));
byId("scrim").addEventListener("click", () => openSidebar(false));

loadSettings();
setLanguage(settings.language);
translatePage();
onKeyWanted(askKey);
const last = opened.get() ?? listTalks()[0]?.id;
watchViews(drawAllIfOpen);
show((last && loadTalk(last)) || newTalk());
drawSessions({});
listenToKeys({ newChat, stop, running: () => Boolean(answerOf(talk)) });
if (!narrow()) byId("draft").focus();
watchServer();

function drawAllIfOpen() { if (talk) drawAll(); }
