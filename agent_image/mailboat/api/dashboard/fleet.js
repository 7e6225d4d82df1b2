// What is known of the fleet: the last status, and how lag and positions moved since the page was opened.

const SAMPLES = 450;
export const SAMPLE_MS = 2_000;

export class Fleet {
  constructor() {
    this.journal = null;
    this.publishers = new Map();
    this.subscribers = new Map();
    this.unreadable = 0;
    this.dropped = 0;
    this.problem = null;
    this.history = new Map();
    this.total = [];
    this.heardAt = null;
    this.scope = "agent";
  }

  apply({ type, data }) {
    this.heardAt = Date.now();
    if (type === "snapshot") {
      this.problem = data.problem;
      if (!data.status) return;
      this.journal = data.status.journal;
      this.publishers = new Map(data.status.publishers.map((publisher) => [publisher.name, publisher]));
      this.subscribers = new Map(data.status.subscribers.map((subscriber) => [keyOf(subscriber), subscriber]));
      this.unreadable = data.status.unreadable_announcements;
      this.dropped = data.status.dropped_subscribers;
    } else if (type === "journal") this.journal = data;
    else if (type === "publisher") this.publishers.set(data.name, data);
    else if (type === "subscriber") this.subscribers.set(keyOf(data), data);
    else if (type === "subscriber-removed") this.subscribers.delete(keyOf(data));
    else if (type === "problem") this.problem = data;
  }

  sample() {
    const at = Date.now();
    let lag = 0;
    let moved = 0;
    for (const [key, subscriber] of this.subscribers) {
      const kept = this.history.get(key) ?? [];
      const before = kept.at(-1);
      const isKnown = before && subscriber.next_offset !== null && before.next !== null;
      const rate = isKnown ? Math.max(0, subscriber.next_offset - before.next) / ((at - before.at) / 1000) : null;
      kept.push({ at, lag: subscriber.lag, rate, next: subscriber.next_offset });
      if (kept.length > SAMPLES) kept.shift();
      this.history.set(key, kept);
      lag += subscriber.lag ?? 0;
      moved += rate ?? 0;
    }
    for (const key of this.history.keys()) if (!this.subscribers.has(key)) this.history.delete(key);
    this.total.push({ at, lag, rate: this.total.length ? moved : null });
    if (this.total.length > SAMPLES) this.total.shift();
  }

  named(name) {
    return [...this.subscribers.values()].filter((subscriber) => subscriber.name === name);
  }
}

export const keyOf = (subscriber) => `${subscriber.name}\n${subscriber.sling_id ?? ""}`;

// The agent's samples of the last hour, and after them those of this page, which are closer together.
export function joined(recorded, live) {
  const own = live ?? [];
  const before = (recorded?.samples ?? []).map((sample) => ({ at: Date.parse(sample.at), lag: sample.lag, rate: sample.rate_per_second }))
    .filter((sample) => !own.length || sample.at < own[0].at);
  return before.concat(own);
}

// A view of an agent's own page, where its actions are, from the operator's page; null where its address is not configured.
export function agentAddress(app, agent, view = "") {
  const [namespace, publisher] = agent.split("/").map(encodeURIComponent);
  const pattern = app.caller.agent_url;
  return pattern ? `${pattern.replaceAll("{namespace}", namespace).replaceAll("{publisher}", publisher)}/#/${view}` : null;
}

const STATES = {
  __proto__: null, // a state is a stranger's text, and may be "constructor"
  stopped: ["bad", "■", 0], failed: ["bad", "■", 0], "given-up": ["bad", "■", 0], error: ["bad", "■", 0], silent: ["bad", "✕", 1], stale: ["warn", "?", 3],
  retrying: ["warn", "▲", 2], waiting: ["warn", "◫", 3], "waiting-for": ["busy", "◫", 4], incomplete: ["warn", "▲", 3],
  unassigned: ["warn", "◫", 3], suspended: ["warn", "◫", 4], importing: ["busy", "◐", 4], publishing: ["busy", "◐", 4], active: ["busy", "◐", 4],
  published: ["busy", "◑", 4], starting: ["busy", "◔", 5], queued: ["busy", "◔", 5], new: ["idle", "◇", 6],
  current: ["ok", "●", 7], distributed: ["ok", "●", 7], succeeded: ["ok", "●", 7],
};

// Colour class, glyph and urgency of a state; the word is always shown or read with it.
export const look = (state) => STATES[state.split(" ")[0]] ?? ["idle", "○", 6];

export const urgency = (subscriber) => Math.min(look(subscriber.state)[2], subscriber.given_up ? 3 : 9) - (subscriber.error ? 1 : 0);
const order = new Intl.Collator("en", { numeric: true });
export const byName = (a, b) => order.compare(a.name, b.name);
const descending = (figure) => (a, b) => (b[figure] ?? -1) - (a[figure] ?? -1) || byName(a, b);

export const ORDERS = {
  attention: (a, b) => urgency(a) - urgency(b) || (b.lag ?? 0) - (a.lag ?? 0) || byName(a, b),
  name: byName, lag: descending("lag"), rate: descending("rate_per_second"), eta: descending("eta_seconds"), given_up: descending("given_up"),
};

// Whether something needs attention: an error, a stop, a silence, or packages in the error queue.
export const needsAttention = (subscriber) => urgency(subscriber) < 4 || Boolean(subscriber.given_up) || Boolean(subscriber.after_calls?.set_aside);
