// Requests to the server that this page came from.
import { readEvents } from "./sse.js";

const KEY = "mindnano.key";

/** The server's answer was an error: an OpenAI error object. */
export class ApiError extends Error {
  constructor(status, error) {
    super(error?.message || `HTTP ${status}`);
    Object.assign(this, { status, code: error?.code ?? null, details: error ?? {} });
  }
}

/** There was no answer, or it broke off. */
export class Unreachable extends Error {}

let askKey = async () => null;
let asking = null, declined = false;

/** `ask(wrong)` gives the key that the user typed, or null. */
export const onKeyWanted = (ask) => { askKey = ask; };

const key = () => { try { return sessionStorage.getItem(KEY); } catch { return null; } };
const address = (path) => new URL(path, document.baseURI);

function headers(body) {
  const made = { Accept: "application/json" };
  if (body !== undefined) made["Content-Type"] = "application/json";
  if (key()) made.Authorization = `Bearer ${key()}`;
  return made;
}

async function send(path, { method, body, signal, quiet } = {}) {
  for (;;) {
    const sent = key();
    let response;
    try {
      response = await fetch(address(path), {
        method: method ?? (body === undefined ? "GET" : "POST"),
        headers: headers(body),
        body: body === undefined ? undefined : JSON.stringify(body),
        signal,
        cache: "no-store",
      });
    } catch (error) {
      if (signal?.aborted) throw error;
      throw new Unreachable();
    }
    if (response.status !== 401) return response;
    if (key() !== sent) continue; // another request asked meanwhile
    if (quiet && declined) throw await failed(response); // the user didn't give one, and isn't asked again for this
    asking ??= askKey(sent !== null).finally(() => { asking = null; });
    const given = await asking;
    declined = given === null;
    if (declined) throw await failed(response);
    try { sessionStorage.setItem(KEY, given); } catch { throw await failed(response); }
  }
}

async function failed(response) {
  let error = null;
  try { error = (await response.json()).error; } catch { /* no JSON: the status has to do */ }
  return new ApiError(response.status, error);
}

/** JSON there and back; null for an empty answer. `quiet`: the page asks by itself, not the user. */
export async function request(path, options) {
  const response = await send(path, options);
  if (!response.ok) throw await failed(response);
  try {
    const text = await response.text();
    return text ? JSON.parse(text) : null;
  } catch (error) {
    if (options?.signal?.aborted) throw error;
    throw new Unreachable();
  }
}

/** The events of a streamed answer, `data` parsed, until [DONE]. An error inside the stream is thrown as ApiError. */
export async function* stream(path, body, signal) {
  const response = await send(path, { body, signal });
  if (!response.ok) throw await failed(response);
  try {
    for await (const { event, data } of readEvents(response.body)) {
      if (data === "[DONE]") return;
      const value = JSON.parse(data);
      if (value.error) throw new ApiError(value.error.status ?? 500, value.error);
      yield { event, value };
    }
  } catch (error) {
    if (error instanceof ApiError || signal?.aborted) throw error;
    throw new Unreachable();
  }
  throw new Unreachable(); // ended without [DONE]
}
