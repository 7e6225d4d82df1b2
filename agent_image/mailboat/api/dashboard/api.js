// Talks to the agent. The token is kept for this tab only and sent as a header, so no other page can use it.

const TOKEN = "mailboat-token";
const SILENCE_MS = 40_000; // the agent sends a heartbeat every 15 seconds
const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 15_000;
const STEADY_MS = 10_000; // a stream that lasted so long was no failed attempt

export class Refused extends Error {
  constructor(status, problem) {
    super(problem?.detail || problem?.title || `HTTP ${status}`);
    this.status = status;
    this.next = problem?.next_step;
  }
}

export const setToken = (token) => (token ? sessionStorage.setItem(TOKEN, token) : sessionStorage.removeItem(TOKEN));
export const hasToken = () => Boolean(sessionStorage.getItem(TOKEN));

function headers(more) {
  const token = sessionStorage.getItem(TOKEN);
  return token ? { Authorization: `Bearer ${token}`, ...more } : more;
}

export async function call(method, path, body) {
  const options = { method, headers: headers(body ? { "Content-Type": "application/json" } : {}) };
  if (body) options.body = JSON.stringify(body);
  const answer = await fetch(`/api/v1${path}`, options);
  const document = await answer.json().catch(() => null);
  if (!answer.ok) throw new Refused(answer.status, document);
  return document;
}

export const part = encodeURIComponent;

// Follow the event stream until `signal` aborts, connecting again after every break. The pauses grow until a stream
// lasts, or ends as announced: an agent that accepts connections and drops them is not asked twice a second.
export async function follow(onEvent, onState, signal) {
  let lastId = null;
  let pause = FIRST_PAUSE_MS;
  while (!signal.aborted) {
    const began = Date.now();
    try {
      // any bytes are enough: while nothing changes, a stream sends heartbeats and no events
      await read(lastId, signal, () => onState(true), (event) => {
        if (event.type !== "end") lastId = event.id || lastId;
        onEvent(event);
      });
      pause = FIRST_PAUSE_MS;
    } catch (error) {
      if (Date.now() - began > STEADY_MS) pause = FIRST_PAUSE_MS;
      if (signal.aborted) return;
      if (error instanceof Refused && (error.status === 401 || error.status === 403)) throw error;
      onState(false);
    }
    await new Promise((resolve) => setTimeout(resolve, pause));
    pause = Math.min(2 * pause, LONGEST_PAUSE_MS);
  }
}

async function read(lastId, signal, onBytes, onEvent) {
  const controller = new AbortController();
  const stop = () => controller.abort();
  signal.addEventListener("abort", stop);
  let watchdog = setTimeout(stop, SILENCE_MS);
  try {
    const answer = await fetch("/api/v1/events", {
      headers: headers(lastId ? { "Last-Event-ID": lastId } : {}), signal: controller.signal,
    });
    if (!answer.ok) throw new Refused(answer.status, await answer.json().catch(() => null));
    onBytes();
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) throw new Error("the connection was closed");
      clearTimeout(watchdog);
      watchdog = setTimeout(stop, SILENCE_MS);
      onBytes();
      const blocks = (text + value).split("\n\n");
      text = blocks.pop();
      for (const block of blocks) {
        const event = parsed(block);
        if (event?.type === "end") { onEvent(event); return; }
        if (event) onEvent(event);
      }
    }
  } finally {
    clearTimeout(watchdog);
    signal.removeEventListener("abort", stop);
    controller.abort();
  }
}

function parsed(block) {
  const event = { id: "", type: "message", data: null };
  let data = "";
  for (const line of block.split("\n")) {
    if (line.startsWith("id: ")) event.id = line.slice(4);
    else if (line.startsWith("event: ")) event.type = line.slice(7);
    else if (line.startsWith("data: ")) data += line.slice(6);
  }
  if (!data) return null;
  event.data = JSON.parse(data);
  return event;
}
