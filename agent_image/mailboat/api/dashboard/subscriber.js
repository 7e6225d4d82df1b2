// A subscriber: what blocks it and what to do, its position over time, its queues and its error queue.
import { call, part } from "./api.js";
import { actionButton, outcome } from "./actions.js";
import { failures } from "./errors.js";
import { cause } from "./explanations.js";
import { bytes, count, duration, fact, h, muted, number, packageName, pending, plot, rate, state, table, time } from "./dom.js";
import { agentAddress, joined, keyOf } from "./fleet.js";

const ROWS = 50;
const QUIET = new Set(["silent", "stopped", "stale"]); // others announce themselves all the time; the stream leaves these times out

export function subscriber(app, name) {
  const found = app.fleet.named(name);
  if (!found.length) return [h("h1", null, name), h("section", null, h("p", null, "No subscriber of this name is known."))];
  return found.map((known) => subscriberParts(app, known, found.length > 1 ? ` of ${known.sling_id}` : "")).flat();
}

function subscriberParts(app, known, suffix) {
  const key = keyOf(known);
  const instance = known.sling_id ? `?instance=${part(known.sling_id)}` : "";
  const { scope } = app.fleet;
  const recorded = scope === "fleet" ? null : app.loaded(`history ${key}`, `/subscribers/${part(known.name)}/history${instance}`, 30_000).data;
  const samples = joined(recorded, app.fleet.history.get(key));
  const retries = known.attempts ? `${known.attempts}${known.max_retries === null ? "" : ` of ${known.max_retries + 1}`} failed` : "none failed";
  const calls = known.after_calls;
  // regions have labels of their own and no ids: instances of one name are on one page
  const trouble = known.state === "retrying" ? "What is retried" : "What blocks it";
  const build = known.build && `${known.build.build_id}: ${number(known.build.imported)} of ${number(known.build.total)}`;
  return [
    h("h1", null, known.name, state(known.state)),
    known.suspended_at ? h("section", { class: "attention", "aria-label": `Imports are suspended${suffix}` }, h("h2", null, "Imports are suspended"),
      h("p", null, "Since ", time(known.suspended_at), known.suspended_until ? [", until ", time(known.suspended_until), "."] : ", until they are resumed.", known.lag === null ? null : ` ${count(known.lag, "package")} behind.`),
      scope !== "fleet" && actionButton(app, { verb: "clear", label: "Resume imports", kind: "main", action: async () => outcome(await call("POST", `/subscribers/${part(addressOf(known))}/resume`, { wait_seconds: 10 })) })) : null,
    known.error ? h("section", { class: "problem", "aria-label": trouble + suffix },
      h("h2", null, trouble), cause(app, known.error)) : null,
    h("div", { class: "grid" },
      h("section", null, h("h2", null, "Position"), h("dl", null,
        fact("Reads next", known.next_offset === null ? "–" : `offset ${number(known.next_offset)}`), fact("Lag", known.lag === null ? "–" : count(known.lag, "package")),
        fact("Throughput", rate(known.rate_per_second)), fact("ETA", known.lag === 0 ? "caught up" : duration(known.eta_seconds)),
        fact("Attempts", retries), fact("Error queue", known.given_up === null ? "–" : count(known.given_up, "package")),
        build ? fact("Bulk build", scope === "agent" ? h("a", { href: `#/builds/${part(known.build.build_id)}` }, build) : build) : null,
        calls ? fact("Hook after", `${count(calls.waiting, "call")} pending${calls.set_aside ? `, ${number(calls.set_aside)} failed` : ""}`) : null)),
      h("section", null, h("h2", null, "Configuration"), h("dl", null,
        fact("Follows", known.follow.length ? known.follow.join(", ") : "all publishers"), fact("Target", known.target ?? "–"),
        fact("Takes commands", known.editable ? "yes" : "no (not editable)"), fact("Ready", known.ready === null ? "–" : known.ready ? "yes" : `no: ${known.ready_reason ?? ""}`),
        QUIET.has(known.state) ? fact("Announced", time(known.announced_at)) : null, fact("Instance", known.sling_id ?? "–")))),
    calls?.error ? h("section", { class: "attention" }, h("h2", null, "Failed call of the hook after"), cause(app, calls.error)) : null,
    h("div", { class: "grid" }, h("section", null, plot("Lag", samples, "lag", " packages")), h("section", null, plot("Throughput", samples, "rate", "/s"))),
    scope === "fleet" ? atAgent(app, known, suffix) : [errorQueue(app, known), queues(app, known), imports(app, known)],
    scope === "agent" ? forget(app, known) : null,
  ].filter(Boolean);
}

// On the operator's page: the way to what may be changed, at the agent that reported the subscriber.
function atAgent(app, known, suffix) {
  const [namespace, publisher] = known.agent.split("/");
  const view = `subscribers/${part(known.name.slice(namespace.length + 1))}`;
  const address = agentAddress(app, known.agent, view);
  const local = `http://127.0.0.1:8080/#/${view}`;
  const actions = "Queues, error queue, and what the agent's token permits: clear and remove packages, redrive, suspend, restore.";
  const title = `At the agent ${known.agent}`;
  return h("section", { "aria-label": title + suffix }, h("h2", null, title), h("p", null, actions),
    address ? h("p", null, h("a", { href: address }, `Open ${known.name} at its agent`))
      : [h("p", null, "Forward its port, then open ", h("a", { href: local }, local), ":"), h("pre", { tabindex: 0 }, `kubectl -n ${namespace} port-forward statefulset/${publisher} 8080`)]);
}

function queues(app, known) {
  const publishers = [...app.fleet.publishers.values()].filter((publisher) => (publisher.state !== null || app.fleet.scope === "subscribers") && (!known.follow.length || known.follow.includes(publisher.name)));
  const mine = addressOf(known);
  return publishers.map((publisher) => {
    const path = `/publishers/${part(publisher.name)}/queues/${part(mine)}`;
    const places = app.view[path] ?? [0];
    const page = app.loaded(path, `${path}?max_items=${ROWS}${places.at(-1) ? `&from_offset=${places.at(-1)}` : ""}`);
    const turn = (to) => { app.view[path] = to; app.render(); };
    return h("section", { "data-key": `queue ${publisher.name}` }, h("h2", null, `Queue of ${publisher.name}`),
      page.data ? queueParts(app, known, path, page.data, places, turn) : pending(page));
  });
}

function queueParts(app, known, path, { queue, items, next_offset: next }, places, turn) {
  const canClear = queue.capabilities.includes("clearable") && queue.count > 0;
  const remove = (item) => actionButton(app, { verb: "clear", label: "Remove", kind: "small danger",
    question: ["DROP", { packages: `offset ${number(item.offset)} (${item.action} ${item.path})`, publisher: queue.publisher, subscriber: known.name }],
    action: async () => outcome(await call("DELETE", `${path}/items?id=${part(item.id)}&wait=10`)) });
  const rows = items.map((item, index) => ({ key: item.id, cells: [
    number(item.offset), item.action, [packageName(app, queue.publisher, item.package_id, item.path), item.path_count > 1 ? ` and ${item.path_count - 1} more` : ""], bytes(item.size_bytes), time(item.queued_at),
    item.user_id || "–", index === 0 && places.length === 1 && canClear ? remove(item) : item.attempts ? count(item.attempts, "attempt") : ""] }));
  return [
    h("div", { class: "tools" }, h("span", { class: "grow" }, `${queue.exact ? "" : "at most "}${count(queue.count, "package")}, ${queue.state}`),
      actionButton(app, { verb: "clear", label: "Clear queue…", kind: "danger", isDisabled: !canClear,
        hint: queue.capabilities.length ? undefined : "this subscriber takes no commands: it is not editable",
        question: ["DROP", { packages: `${queue.exact ? "" : "at most "}${count(queue.count, "package")}`, publisher: queue.publisher, subscriber: known.name }],
        action: async () => outcome(await call("POST", `${path}/clear`, { wait_seconds: 10 })) })),
    table(`Queue of ${queue.publisher}`, [["Offset", "n"], ["Action", ""], ["Path", ""], ["Size", "n wide"], ["Queued", "wide"], ["User", "wide"], ["Command", "s"]], rows, "The queue is empty."),
    places.length > 1 || next !== null ? h("div", { class: "pager" },
      h("button", { type: "button", disabled: places.length === 1, onclick: () => turn(places.slice(0, -1)) }, "Previous"),
      h("button", { type: "button", disabled: next === null, onclick: () => turn([...places, next]) }, "Next")) : null,
  ];
}

function errorQueue(app, known) {
  if (!known.given_up) return null;
  const path = `/errors?subscriber=${part(addressOf(known))}`;
  const page = app.loaded(path, path);
  return h("section", { class: "attention" }, h("h2", null, "Error queue"), page.data ? failures(app, page.data.items, addressOf(known)) : pending(page),
    page.data?.next_page ? h("p", null, "More are in ", h("a", { href: "#/errors" }, "all error queues"), ".") : null);
}

const addressOf = (known) => (known.sling_id ? `${known.sling_id}-${known.name}` : known.name);
const DURATIONS = [["", "until resumed"], ["3600", "for 1 hour"], ["28800", "for 8 hours"], ["86400", "for 1 day"]];

function imports(app, known) {
  if (known.suspended_at || ["stopped", "silent", "new"].includes(known.state)) return null;
  const chosen = () => app.view.suspension ?? "";
  const words = () => DURATIONS.find(([seconds]) => seconds === chosen())[1];
  return h("section", null, h("h2", null, "Imports"), muted("A suspended subscriber keeps its content and its position, and imports nothing."),
    h("div", { class: "tools" },
      h("label", null, "Suspend", h("select", { onchange: (event) => { app.view.suspension = event.target.value; app.render(); } },
        DURATIONS.map(([seconds, text]) => h("option", { value: seconds, selected: seconds === chosen() }, text)))),
      actionButton(app, { verb: "clear", label: "Suspend imports…",
        question: () => ["SUSPEND", { subscriber: known.name, period: words() }],
        action: async () => outcome(await call("POST", `/subscribers/${part(addressOf(known))}/suspend`, { seconds: chosen() ? Number(chosen()) : null, wait_seconds: 10 })) })));
}

function forget(app, known) {
  if (!["stopped", "silent", "new"].includes(known.state)) return null;
  return h("section", null, h("h2", null, "Registry"), muted("For a subscriber that will not come back."),
    actionButton(app, { verb: "admin", label: "Remove subscriber…", kind: "danger",
      question: ["FORGET", { subscriber: known.name }],
      action: async () => { await call("DELETE", `/subscribers/${part(known.name)}`); return `${known.name} was removed`; } }));
}
