// What is known of the fleet: the last status, and how lag and positions moved since the page was opened.

const SAMPLES = 450;
export const SAMPLE_MS = 2_000;

export class Fleet {
  constructor() {
    this.journal = null;
    this.publishers = new Map();
    this.subscribers = new Map();
    this.problem = null;
    this.history = new Map();
    this.total = [];
    this.heardAt = null;
  }

  apply({ type, data }) {
    this.heardAt = Date.now();
    if (type === "snapshot") {
      this.problem = data.problem;
      if (!data.status) return;
      this.journal = data.status.journal;
      this.publishers = new Map(data.status.publishers.map((one) => [one.name, one]));
      this.subscribers = new Map(data.status.subscribers.map((one) => [keyOf(one), one]));
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
    for (const [key, one] of this.subscribers) {
      const kept = this.history.get(key) ?? [];
      const before = kept.at(-1);
      const seconds = before ? (at - before.at) / 1000 : 0;
      const step = before && one.next_offset !== null && before.next !== null ? Math.max(0, one.next_offset - before.next) : 0;
      kept.push({ at, lag: one.lag ?? 0, rate: seconds ? step / seconds : 0, next: one.next_offset });
      if (kept.length > SAMPLES) kept.shift();
      this.history.set(key, kept);
      lag += one.lag ?? 0;
      moved += kept.at(-1).rate;
    }
    for (const key of this.history.keys()) if (!this.subscribers.has(key)) this.history.delete(key);
    this.total.push({ at, lag, rate: moved });
    if (this.total.length > SAMPLES) this.total.shift();
  }

  named(name) {
    return [...this.subscribers.values()].filter((one) => one.name === name);
  }
}

export const keyOf = (one) => `${one.name}\n${one.sling_id ?? ""}`;

const STATES = {
  stopped: ["bad", "■", 0], silent: ["bad", "✕", 1], retrying: ["warn", "▲", 2], "waiting-for": ["warn", "◫", 3],
  waiting: ["warn", "◫", 3], importing: ["busy", "◐", 4], starting: ["busy", "◔", 5], new: ["idle", "◇", 6], current: ["ok", "●", 7],
};

// Colour class, glyph and urgency of a state; the word is always shown or read with it.
export const look = (state) => STATES[state.split(" ")[0]] ?? ["idle", "○", 6];

export const urgency = (one) => look(one.state)[2] - (one.error ? 1 : 0) - (one.given_up ? 0.5 : 0);
export const byUrgency = (a, b) => urgency(a) - urgency(b) || (b.lag ?? 0) - (a.lag ?? 0) || byName(a, b);
const order = new Intl.Collator("en", { numeric: true });
export const byName = (a, b) => order.compare(a.name, b.name);
