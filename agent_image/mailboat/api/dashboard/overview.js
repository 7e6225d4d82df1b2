// The overview: what needs attention, the topology, lag and throughput of all, and every subscriber.
import { part } from "./api.js";
import { bar, bytes, count, duration, h, muted, number, pager, plot, rate, state, subscriberLink, table } from "./dom.js";
import { ORDERS, agentAddress, byName, joined, keyOf, look, needsAttention } from "./fleet.js";

const ROWS = 25;
const TILES = 600;
const URGENT = 6;
const NAMED = 3;

export function overview(app) {
  const { fleet, view } = app;
  const all = [...fleet.subscribers.values()];
  const samples = joined(fleet.scope === "fleet" ? null : app.loaded("history", "/history", 30_000).data, fleet.total);
  return [
    h("h1", null, "Overview"),
    fleet.scope === "subscribers" ? muted("This agent has no publisher: it shows its own subscribers. The agent of a publisher shows all.") : null,
    fleet.scope === "fleet" ? muted(`This page only reads. ${app.caller.agent_url ? "Names of publishers and pages of subscribers lead" : "The page of a subscriber shows the way"} to the agent, where packages, jobs, storage and all actions are.`) : null,
    attention(fleet, all),
    h("section", { "aria-labelledby": "topology" }, h("h2", { id: "topology" }, "Topology"), counts(all), topology(app, all)),
    h("div", { class: "grid" },
      h("section", null, plot("Lag of all subscribers", samples, "lag", " packages")),
      h("section", null, plot("Imported by all subscribers", samples, "rate", "/s"))),
    h("section", { "aria-labelledby": "all-subscribers" }, h("h2", { id: "all-subscribers" }, "Subscribers"), subscribers(app, all, view)),
  ];
}

function counts(all) {
  const found = new Map();
  for (const subscriber of all) {
    const word = subscriber.state.split(" ")[0];
    found.set(word, (found.get(word) ?? 0) + 1);
  }
  const sorted = [...found].sort((a, b) => look(a[0])[2] - look(b[0])[2]);
  const failed = all.filter((subscriber) => subscriber.given_up).length;
  return h("ul", { class: "counts", "aria-label": "Subscribers by state" },
    h("li", null, h("b", null, number(all.length)), all.length === 1 ? " subscriber" : " subscribers"),
    sorted.map(([word, found]) => h("li", { "data-key": word }, h("b", null, number(found)), " ", state(word))),
    failed ? h("li", { "data-key": "failed packages" }, h("b", null, number(failed)), h("span", { class: "warn" }, h("span", { "aria-hidden": "true" }, " ▲"), " with failed packages")) : null);
}

// The state, or that packages failed: a subscriber that gave packages up and went on is current, and still lacks content.
function standing(subscriber) {
  const isHealthy = look(subscriber.state)[0] === "ok";
  return isHealthy && subscriber.given_up ? h("span", { class: "state warn" }, h("span", { "aria-hidden": "true" }, "▲"), "lacks content") : state(subscriber.state);
}

function attention(fleet, all) {
  // one line for each silent agent, not one for each of its subscribers: they would hide what else is wrong
  const silent = [...fleet.publishers.values()].filter((publisher) => publisher.state === "stale").sort(byName);
  const urgent = all.filter((subscriber) => needsAttention(subscriber) && subscriber.state !== "stale").sort(ORDERS.attention);
  const lines = groups(urgent);
  const rest = lines.slice(URGENT).flat().length;
  const stale = all.filter((subscriber) => subscriber.state === "stale").length;
  const slowed = [...fleet.publishers.values()].filter((publisher) => publisher.delay_seconds);
  const items = [
    ...silent.slice(0, URGENT).map((publisher) => h("li", { "data-key": `silent ${publisher.name}` }, h("b", null, publisher.name), " ", state("stale"), " its agent does not answer")),
    silent.length > URGENT ? h("li", { class: "muted", "data-key": "silent" }, `and ${count(silent.length - URGENT, "more agent")} that ${silent.length - URGENT === 1 ? "does" : "do"} not answer`) : null,
    stale ? h("li", { class: "muted", "data-key": "stale" }, `${count(stale, "subscriber")} of such agents ${stale === 1 ? "is" : "are"} shown as last reported`) : null,
    ...slowed.map((publisher) => h("li", { "data-key": `publisher ${publisher.name}` }, h("span", { class: "warn", "aria-hidden": "true" }, "▲ "),
      h("b", null, publisher.name), ` delays publish requests by ${duration(publisher.delay_seconds)}: subscribers lag.`)),
    ...lines.slice(0, URGENT).map((group) => group.length > NAMED ? together(group) : alone(group[0])),
    fleet.unreadable ? h("li", { "data-key": "unreadable" }, `${count(fleet.unreadable, "announcement")} could not be read: run `, h("code", null, "mailboat journal verify"), ".") : null,
    fleet.dropped ? h("li", { "data-key": "dropped" }, `${count(fleet.dropped, "subscriber")} beyond the limit of this list ${fleet.dropped === 1 ? "is" : "are"} not shown.`) : null,
  ].filter(Boolean);
  if (!items.length) {
    if (!all.length) return null;
    const lagging = all.filter((subscriber) => subscriber.lag).length;
    const current = all.filter((subscriber) => subscriber.lag === 0).length; // one that never started has no lag
    return h("p", { class: "well" }, h("span", { class: "ok", "aria-hidden": "true" }, "● "), lagging ? `Nothing needs attention. ${count(lagging, "subscriber")} of ${number(all.length)} ${lagging === 1 ? "is" : "are"} behind.`
      : current < all.length ? `Nothing needs attention. ${number(current)} of ${count(all.length, "subscriber")} ${current === 1 ? "is" : "are"} current.`
      : all.length === 1 ? "Nothing needs attention. The subscriber is current." : `Nothing needs attention. All ${number(all.length)} subscribers are current.`);
  }
  return h("section", { class: "attention", "aria-labelledby": "attention" }, h("h2", { id: "attention" }, "Needs attention"),
    h("ul", { class: "issues" }, items, rest ? h("li", { class: "muted", "data-key": "rest" }, `and ${number(rest)} more: the table below begins with them`) : null));
}

// Subscribers with one trouble in common, if they are more than a few: a full disk of a pool is one line, not hundreds.
function groups(urgent) {
  const found = new Map();
  for (const subscriber of urgent) {
    const cause = `${subscriber.state.split(" ")[0]} ${subscriber.error ? subscriber.error.code : subscriber.given_up ? keyOf(subscriber) : ""}`;
    found.set(cause, [...(found.get(cause) ?? []), subscriber]);
  }
  return [...found.values()].flatMap((group) => group.length > NAMED ? [group] : group.map((subscriber) => [subscriber]));
}

const alone = (subscriber) => h("li", { "data-key": keyOf(subscriber) }, h("b", null, subscriberLink(subscriber.name)), " ", standing(subscriber), " ", sentence(subscriber));

function together(group) {
  const [{ state: word, error }] = group;
  const named = group.slice(0, NAMED).map((subscriber, index) => [index ? ", " : "", subscriberLink(subscriber.name)]);
  const isSame = error && group.every((subscriber) => subscriber.error.message === error.message);
  const why = error ? ` ${error.code}${isSame ? `: ${error.message}` : ""}: ` : ": ";
  return h("li", { "data-key": `group ${word} ${error?.code}` }, h("b", null, `${number(group.length)} subscribers`), " ", state(word), why, named, ` and ${number(group.length - NAMED)} more`);
}

function sentence(subscriber) {
  const parts = [];
  if (subscriber.error) parts.push(`${subscriber.error.code}: ${subscriber.error.message}`);
  if (subscriber.lag) parts.push(`${count(subscriber.lag, "package")} behind`);
  if (subscriber.given_up) parts.push(`${count(subscriber.given_up, "package")} in the error queue`);
  if (subscriber.after_calls?.set_aside) parts.push(`${count(subscriber.after_calls.set_aside, "call")} of the hook after failed`);
  return parts.join("; ");
}

function topology(app, all) {
  const { fleet } = app;
  const shown = [...all].sort(ORDERS.attention).slice(0, TILES);
  const isNamed = all.length <= 40;
  const publishers = [...fleet.publishers.values()].sort(byName).map((publisher) => h("div", { class: "node", "data-key": publisher.name },
    h("b", null, publisherLink(app, publisher)),
    publisher.state === "stale" ? state("stale") : h("span", { class: "muted" }, publisher.state === null ? "in another process" : `queues ${publisher.state}`),
    publisher.delay_seconds ? h("div", { class: "warn" }, `requests delayed by ${duration(publisher.delay_seconds)}`) : null));
  const journal = fleet.journal;
  return h("div", { class: "topology" },
    h("div", null, publishers.length ? publishers : h("p", { class: "muted" }, "no publishers")),
    h("div", { class: "flow", "aria-hidden": "true" }),
    h("div", { class: "node" }, h("b", null, fleet.scope !== "agent" ? "journal" : h("a", { href: "#/storage" }, "journal")), h("span", { class: "muted" }, journal ? journal.description : "–"),
      journal && fleet.scope !== "fleet" ? h("div", null, `offsets ${number(journal.earliest_offset)} to ${number(journal.next_offset)}`) : null,
      journal && journal.size_bytes !== null ? h("div", null, bytes(journal.size_bytes)) : null),
    h("div", { class: "flow", "aria-hidden": "true" }),
    shown.length ? h("ul", { class: isNamed ? "tiles" : "tiles dense", "aria-label": "Subscribers, those that need attention first", tabindex: 0 }, shown.map((subscriber) => tile(subscriber, isNamed)),
      all.length > TILES ? h("li", { class: "more" }, `and ${all.length - TILES} more`) : null)
      : h("p", { class: "muted" }, "no subscriber has announced itself"));
}

// A publisher leads to its packages; on the operator's page to those at its agent, where also jobs and storage are.
function publisherLink(app, { name, state: known }) {
  const view = (own) => `packages/${part(own)}`;
  const address = app.fleet.scope === "fleet" ? agentAddress(app, name, view(name.split("/")[1])) : known !== null && app.fleet.scope === "agent" ? `#/${view(name)}` : null;
  return address ? h("a", { href: address }, name) : name;
}

function tile(subscriber, isNamed) {
  const [own, sign] = look(subscriber.state);
  const isTroubled = (own === "ok" && subscriber.given_up) || (own === "busy" && subscriber.error);
  const [colour, glyph] = isTroubled ? ["warn", "▲"] : [own, sign];
  const lag = `${subscriber.lag ? `, lag ${number(subscriber.lag)}` : ""}${subscriber.given_up ? `, ${count(subscriber.given_up, "failed package")}` : ""}`;
  const hidden = (text) => h("span", { class: "hidden" }, text);
  return h("li", { "data-key": keyOf(subscriber) }, h("a", { href: `#/subscribers/${part(subscriber.name)}`, class: colour, title: `${subscriber.name}: ${subscriber.state}${lag}` },
    h("span", { "aria-hidden": "true" }, `${glyph}${isNamed ? " " : ""}`), isNamed ? subscriber.name : hidden(subscriber.name), hidden(`: ${subscriber.state}${lag}`),
    isNamed && subscriber.lag ? h("span", { class: "muted", "aria-hidden": "true" }, ` −${number(subscriber.lag)}`) : null));
}

function subscribers(app, all, view) {
  const filter = (view.filter ?? "").toLowerCase();
  const by = view.sort ?? "attention";
  const words = [...new Set(all.map((subscriber) => subscriber.state.split(" ")[0]))].sort();
  const found = all.filter((subscriber) => (subscriber.name.toLowerCase().includes(filter) || (subscriber.error?.code ?? "").toLowerCase().includes(filter))
    && (!view.state || subscriber.state.split(" ")[0] === view.state));
  found.sort(ORDERS[by]);
  const pages = Math.max(1, Math.ceil(found.length / ROWS));
  const page = Math.min(view.page ?? 0, pages - 1);
  const highest = all.reduce((most, subscriber) => Math.max(most, subscriber.lag ?? 0), 0);
  const set = (facts) => { Object.assign(view, { page: 0 }, facts); app.render(); };
  const option = (value, text, chosen) => h("option", { value, selected: value === chosen }, text);
  const quiet = (value) => (value ? number(value) : h("span", { class: "muted" }, value === 0 ? "0" : "–"));
  const rows = found.slice(page * ROWS, (page + 1) * ROWS).map((subscriber) => ({ key: keyOf(subscriber), cells: [
    state(subscriber.state), subscriberLink(subscriber.name), [quiet(subscriber.lag), subscriber.lag ? bar([["busy", subscriber.lag]], highest) : null],
    rate(subscriber.rate_per_second), duration(subscriber.eta_seconds),
    subscriber.given_up ? h("a", { class: "bad", href: `#/subscribers/${part(subscriber.name)}` }, number(subscriber.given_up)) : quiet(subscriber.given_up),
    subscriber.error ? h("span", { class: "cut", title: subscriber.error.message }, h("b", null, subscriber.error.code), ` ${subscriber.error.message}`) : ""] }));
  return [
    h("div", { class: "tools", role: "search" },
      h("label", null, "Name or error contains", h("input", { type: "search", oninput: (event) => set({ filter: event.target.value }) })),
      h("label", null, "State", h("select", { onchange: (event) => set({ state: event.target.value }) }, option("", "all", view.state ?? ""), words.map((word) => option(word, word, view.state)))),
      h("label", null, "Sort by", h("select", { onchange: (event) => set({ sort: event.target.value }) },
        [["attention", "attention"], ["lag", "lag"], ["name", "name"], ["rate", "throughput"], ["eta", "ETA"], ["given_up", "error queue"]].map(([key, text]) => option(key, text, by))))),
    table("Subscribers", [["State", "s", "attention"], ["Name", "name", "name"], ["Lag", "n lag", "lag"], ["Throughput", "n wide", "rate"], ["ETA", "n wide", "eta"], ["Error queue", "n wide", "given_up"], ["Error", "e wide"]],
      rows, "No subscriber matches.", { by, set: (sort) => set({ sort }) }),
    pager(page, pages, (to) => { view.page = to; app.render(); }),
  ];
}
