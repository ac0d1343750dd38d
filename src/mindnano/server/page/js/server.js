// What the server is (/props), and whether it answers (/health).
import { ApiError, request } from "./api.js";
import { emit, on } from "./bus.js";
import { anyRunning } from "./answer.js";

const READY_PAUSE = 10_000, GONE_PAUSE = 2_000; // ms between looks
const REPLY_WITHIN = 8_000; // ms; a busy machine may take a while

export const server = { state: "unknown", props: null }; // unknown, ready, loading, gone

let timer = 0;

async function look() {
  clearTimeout(timer);
  let state = "ready";
  try {
    await request("health", { signal: AbortSignal.timeout(REPLY_WITHIN) });
  } catch (error) {
    state = error instanceof ApiError && error.status === 503 ? "loading" : error instanceof ApiError ? "ready" : "gone";
  }
  const before = server.state;
  server.state = state;
  if (state === "ready" && !document.hidden) await readProps();
  if (before !== state) emit("server", { before, state });
  timer = setTimeout(look, state === "ready" ? READY_PAUSE : GONE_PAUSE);
}

/** Asks for /props; what was read before stays where that fails. */
export async function readProps() {
  try {
    server.props = facts(await request("props", { quiet: true }));
    emit("props", server.props);
  } catch {
    // what was read before stays; /health says whether the server is there
  }
}

/** What the page uses of /props. Sizes in bytes. */
function facts({ model, context, slots, kv, memory, sessions }) {
  return {
    model: model.path, synthetic: model.synthetic, context, slots, kv_layout: kv.layout, kv_format: kv.format,
    available_memory: memory.available_mib * 1024 ** 2, plan: memory.report, sessions,
  };
}

/** Look now, e.g. because a request has just failed. */
export const lookAgain = look;

export function watchServer() {
  document.addEventListener("visibilitychange", () => { if (!document.hidden) look(); });
  addEventListener("online", look);
  on("answered", () => { if (!anyRunning()) look(); });
  return look();
}
