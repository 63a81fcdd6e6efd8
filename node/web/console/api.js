// Requests to the node. The token is kept by this tab alone, and goes only to this node.

const TOKEN = "lognode-token";
const FIRST_WAIT_MS = 500;
const LAST_WAIT_MS = 15000;
const EVENT_CHARS_MAX = 64 * 1024 * 1024;

export function token() {
  return sessionStorage.getItem(TOKEN);
}

export function setToken(given) {
  if (given) sessionStorage.setItem(TOKEN, given);
  else sessionStorage.removeItem(TOKEN);
}

/** An answer that is a problem: `status`, `code`, and what to do as the message. */
export class Problem extends Error {
  constructor(status, code, detail) {
    super(detail);
    this.status = status;
    this.code = code;
  }
}

function headers(more) {
  const found = {Accept: "application/json", ...more};
  const given = token();
  if (given) found.Authorization = `Bearer ${given}`;
  return found;
}

async function asked(path, options) {
  let answer;
  try {
    answer = await fetch(path, {cache: "no-store", credentials: "omit", redirect: "error", ...options});
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, "UNREACHABLE", "The node does not answer. The console tries again.");
  }
  if (answer.ok) return answer;
  let told;
  try {
    told = await answer.json();
  } catch {
    told = {};
  }
  throw new Problem(answer.status, String(told.code ?? answer.status), String(told.detail ?? answer.statusText));
}

/** Return the JSON of an address. */
export async function get(path, signal) {
  return (await asked(path, {headers: headers({}), signal})).json();
}

/** Send JSON; return the JSON of the answer, or null. */
export async function post(path, body) {
  const answer = await asked(path, {
    method: "POST", headers: headers({"Content-Type": "application/json"}), body: JSON.stringify(body),
  });
  return answer.status === 204 ? null : answer.json();
}

/** Return an address with parameters, without those that are unset. */
export function address(path, parameters) {
  const parts = Object.entries(parameters)
    .filter(([, value]) => value !== null && value !== undefined && value !== "")
    .map(([name, value]) => `${name}=${value}`);
  return parts.length ? `${path}?${parts.join("&")}` : path;
}

/**
 * Follow server-sent events until the signal aborts. `told` gets the name and the data of each event,
 * and `state` gets `connecting`, `open`, or a problem. After an interruption the stream goes on
 * behind the last event.
 */
export async function follow(path, {signal, told, state}) {
  let last = "", wait = FIRST_WAIT_MS;
  while (!signal.aborted) {
    state("connecting");
    try {
      const answer = await asked(path, {
        headers: headers({Accept: "text/event-stream", ...(last ? {"Last-Event-ID": last} : {})}), signal,
      });
      state("open");
      for await (const event of events(answer.body)) {
        if (event.id) last = event.id;
        if (event.data === "") continue;
        wait = FIRST_WAIT_MS;
        await told(event.name, JSON.parse(event.data));
      }
    } catch (error) {
      if (signal.aborted) return;
      state(error);
      if (error instanceof Problem && [400, 401, 403, 404].includes(error.status)) return;
    }
    await pause(wait, signal);
    wait = Math.min(wait * 2, LAST_WAIT_MS);
  }
}

async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  try {
    for (;;) {
      const {done, value} = await reader.read();
      if (done) return;
      text += value;
      let end;
      while ((end = text.indexOf("\n\n")) >= 0) {
        yield parsed(text.slice(0, end));
        text = text.slice(end + 2);
      }
      if (text.length > EVENT_CHARS_MAX) throw new Problem(0, "TOO_LONG", "An event is too long.");
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

function parsed(block) {
  const event = {name: "message", id: "", data: ""};
  const data = [];
  for (const line of block.split("\n")) {
    if (line.startsWith("event: ")) event.name = line.slice(7);
    else if (line.startsWith("id: ")) event.id = line.slice(4);
    else if (line.startsWith("data: ")) data.push(line.slice(6));
  }
  event.data = data.join("\n");
  return event;
}

export function pause(ms, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal?.addEventListener("abort", () => { clearTimeout(timer); resolve(); }, {once: true});
  });
}
