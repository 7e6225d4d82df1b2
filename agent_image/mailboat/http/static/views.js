// The views. Each returns nodes; `app.js` brings them onto the page again whenever something changed.
import { call, part } from "./api.js";
import { confirmed, h, notice } from "./dom.js";
import { byName, byUrgency, keyOf, look } from "./fleet.js";
import { bytes, duration, number, pager, plot, state, subscriberLink, table, time } from "./widgets.js";

const ROWS = 50;
const TILES = 600;
let explanations = null;

export const may = (app, verb) => app.caller.verbs.includes(verb) || app.caller.verbs.includes("admin");

// Run an action; its outcome, or why it failed, is announced.
async function act(app, button, action) {
  try {
    notice(await action());
  } catch (error) {
    notice(`failed: ${error.message}${error.next ? ` (${error.next})` : ""}`);
  }
  app.refresh();
}

async function outcome(app, sent) {
  const commands = Array.isArray(sent) ? sent : [sent];
  const done = commands.filter((one) => one.state === "done").length;
  const refused = commands.find((one) => one.state === "refused");
  if (refused) return `${refused.subscriber} refused the command: ${refused.message ?? "no reason given"}`;
  return done === commands.length ? `done: ${commands.length === 1 && commands[0].removed !== null ? `${commands[0].removed} packages dropped` : "command carried out"}`
    : "command sent; the subscriber has not answered yet";
}

function actionButton(app, verb, text, onclick, more = {}) {
  const isAllowed = may(app, verb);
  return h("button", { type: "button", ...more, disabled: !isAllowed || more.disabled, onclick,
    title: isAllowed ? more.title : `your token lacks the verb ${verb}` }, text);
}

export function overview(app) {
  const { fleet, view } = app;
  const all = [...fleet.subscribers.values()];
  return [
    h("h1", null, "Overview"),
    counts(all),
    h("section", { "aria-labelledby": "topology" }, h("h2", { id: "topology" }, "Topology"), topology(fleet, all)),
    h("div", { class: "grid" },
      h("section", null, plot("Total lag", fleet.total, "lag", " packages")),
      h("section", null, plot("Processed by all subscribers", fleet.total, "rate", "/s"))),
    h("section", { "aria-labelledby": "all-subscribers" }, h("h2", { id: "all-subscribers" }, "Subscribers"), subscribers(app, all, view)),
  ];
}

function counts(all) {
  const found = new Map();
  for (const one of all) {
    const word = one.state.split(" ")[0];
    found.set(word, (found.get(word) ?? 0) + 1);
  }
  const sorted = [...found].sort((a, b) => look(a[0])[2] - look(b[0])[2]);
  return h("ul", { class: "counts", "aria-label": "Subscribers by state" },
    h("li", null, h("b", null, number(all.length)), all.length === 1 ? " subscriber" : " subscribers"),
    sorted.map(([word, count]) => h("li", { "data-key": word }, h("b", null, number(count)), " ", state(word))));
}

function topology(fleet, all) {
  const shown = [...all].sort(byUrgency).slice(0, TILES);
  const isNamed = all.length <= 40;
  const publishers = [...fleet.publishers.values()].sort(byName).map((one) => h("div", { class: "node", "data-key": one.name },
    h("b", null, h("a", { href: `#/packages/${part(one.name)}` }, one.name)),
    h("span", { class: "muted" }, one.state === null ? "in another process" : `queues ${one.state}`),
    one.delay_seconds ? h("div", { class: "warn" }, `requests delayed by ${duration(one.delay_seconds)}`) : null));
  const journal = fleet.journal;
  return h("div", { class: "topology" },
    h("div", null, publishers.length ? publishers : h("p", { class: "muted" }, "no publishers")),
    h("div", { class: "flow", "aria-hidden": "true" }),
    h("div", { class: "node" }, h("b", null, "journal"), h("span", { class: "muted" }, journal ? journal.description : "–"),
      journal ? h("div", null, `offsets ${number(journal.earliest_offset)} to ${number(journal.next_offset)}`) : null,
      journal && journal.size_bytes !== null ? h("div", null, bytes(journal.size_bytes)) : null),
    h("div", { class: "flow", "aria-hidden": "true" }),
    shown.length ? h("ul", { class: "tiles", "aria-label": "Subscribers, those that need attention first", tabindex: 0 }, shown.map((one) => tile(one, isNamed)),
      all.length > TILES ? h("li", { class: "more" }, `and ${all.length - TILES} more`) : null)
      : h("p", { class: "muted" }, "no subscriber has announced itself"));
}

function tile(one, isNamed) {
  const [colour, glyph] = look(one.state);
  const lag = one.lag ? `, lag ${number(one.lag)}` : "";
  const hidden = (text) => h("span", { class: "hidden" }, text);
  return h("li", { "data-key": keyOf(one) }, h("a", { href: `#/subscribers/${part(one.name)}`, class: colour, title: `${one.name}: ${one.state}${lag}` },
    h("span", { "aria-hidden": "true" }, `${glyph} `), isNamed ? one.name : hidden(one.name), hidden(`: ${one.state}${lag}`),
    isNamed && one.lag ? h("span", { class: "muted", "aria-hidden": "true" }, ` −${number(one.lag)}`) : null));
}

function subscribers(app, all, view) {
  const filter = (view.filter ?? "").toLowerCase();
  const words = [...new Set(all.map((one) => one.state.split(" ")[0]))].sort();
  const found = all.filter((one) => one.name.toLowerCase().includes(filter) && (!view.state || one.state.split(" ")[0] === view.state));
  found.sort(view.sort === "name" ? byName : view.sort === "lag" ? (a, b) => (b.lag ?? 0) - (a.lag ?? 0) || byName(a, b) : byUrgency);
  const pages = Math.max(1, Math.ceil(found.length / ROWS));
  const page = Math.min(view.page ?? 0, pages - 1);
  const set = (facts) => { Object.assign(view, { page: 0 }, facts); app.render(); };
  const option = (value, text, chosen) => h("option", { value, selected: value === chosen }, text);
  const rows = found.slice(page * ROWS, (page + 1) * ROWS).map((one) => ({ key: keyOf(one), cells: [
    state(one.state), subscriberLink(one.name), number(one.lag), one.rate_per_second ? one.rate_per_second.toFixed(1) : "–",
    duration(one.eta_seconds), number(one.given_up), one.error ? h("span", { title: one.error.message }, one.error.code) : "–"] }));
  return [
    h("div", { class: "tools", role: "search" },
      h("label", null, "Name contains", h("input", { type: "search", oninput: (event) => set({ filter: event.target.value }) })),
      h("label", null, "State", h("select", { onchange: (event) => set({ state: event.target.value }) }, option("", "all", view.state ?? ""), words.map((one) => option(one, one, view.state)))),
      h("label", null, "Sort by", h("select", { onchange: (event) => set({ sort: event.target.value }) },
        option("urgency", "attention", view.sort), option("lag", "lag", view.sort), option("name", "name", view.sort)))),
    table("Subscribers", [["State", ""], ["Name", ""], ["Lag", "n"], ["Packages/s", "n wide"], ["ETA", "n wide"], ["Error queue", "n wide"], ["Error", ""]], rows, "No subscriber matches."),
    pager(page, pages, (to) => { view.page = to; app.render(); }),
  ];
}

export function subscriber(app, name) {
  const found = app.fleet.named(name);
  if (!found.length) return [h("h1", null, name), h("section", null, h("p", null, "No subscriber of this name is known."))];
  return found.map((one) => subscriberParts(app, one)).flat();
}

function subscriberParts(app, one) {
  const history = app.fleet.history.get(keyOf(one)) ?? [];
  const retries = one.attempts ? `${one.attempts}${one.max_retries === null ? "" : ` of ${one.max_retries + 1}`} failed` : "none failed";
  return [
    h("h1", null, one.name, state(one.state)),
    one.error ? blocked(app, one) : null,
    h("div", { class: "grid" },
      h("section", null, h("h2", null, "Position"), h("dl", null,
        fact("Reads next", number(one.next_offset)), fact("Lag", one.lag === null ? "–" : `${number(one.lag)} packages`),
        fact("Throughput", one.rate_per_second ? `${one.rate_per_second.toFixed(1)} packages/s` : "–"), fact("Caught up in", one.lag === 0 ? "is caught up" : duration(one.eta_seconds)),
        fact("Attempts", retries), fact("Error queue", number(one.given_up)),
        one.build ? fact("Bulk build", `${one.build.build_id}: ${one.build.imported} of ${one.build.total}`) : null)),
      h("section", null, h("h2", null, "Configuration"), h("dl", null,
        fact("Follows", one.follow.length ? one.follow.join(", ") : "all publishers"), fact("Target", one.target ?? "–"),
        fact("Takes commands", one.editable ? "yes" : "no (not editable)"), fact("Ready", one.ready === null ? "–" : one.ready ? "yes" : `no: ${one.ready_reason ?? ""}`),
        fact("Announced", time(one.announced_at)), fact("Instance", one.sling_id ?? "–")))),
    h("div", { class: "grid" }, h("section", null, plot("Lag", history, "lag", " packages")), h("section", null, plot("Throughput", history, "rate", "/s"))),
    queues(app, one), errorQueue(app, one), forget(app, one),
  ].filter(Boolean);
}

const fact = (name, value) => [h("dt", null, name), h("dd", null, value)];

function blocked(app, one) {
  return h("section", { class: "problem", "aria-labelledby": "blocked" }, h("h2", { id: "blocked" }, one.state === "retrying" ? "What is retried" : "What blocks it"),
    cause(app, one.error));
}

function cause(app, error) {
  loadExplanations(app);
  const known = explanations?.[error.code];
  return [
    h("p", null, h("b", null, error.code), ` ${error.message}`), error.path ? h("p", { class: "mono" }, error.path) : null,
    known ? [h("p", { class: "muted" }, "Meaning and next step"), known.split(/\n\n+/).map((text) => h("p", null, text.replace(/`/g, "")))] : null,
    error.trace ? h("details", null, h("summary", null, "Trace"), h("pre", { tabindex: 0 }, error.trace)) : null,
    error.truncated ? h("p", { class: "muted" }, "Some of these texts were shortened.") : null,
  ];
}

async function loadExplanations(app) {
  if (explanations) return;
  explanations = {};
  const answer = await fetch("/dashboard/explanations.json").catch(() => null);
  if (answer?.ok) explanations = await answer.json();
  app.render();
}

function queues(app, one) {
  const publishers = [...app.fleet.publishers.values()].filter((each) => each.state !== null && (!one.follow.length || one.follow.includes(each.name)));
  const mine = one.sling_id ? `${one.sling_id}-${one.name}` : one.name;
  return publishers.map((publisher) => {
    const path = `/publishers/${part(publisher.name)}/queues/${part(mine)}`;
    const page = app.loaded(path, `${path}?max_items=${ROWS}`);
    return h("section", { "data-key": `queue ${publisher.name}` }, h("h2", null, `Queue of ${publisher.name}`), page.problem ? h("p", { class: "muted" }, page.problem) : page.data ? queueParts(app, one, path, page.data) : "Loading…");
  });
}

function queueParts(app, one, path, { queue, items, next_offset: next }) {
  const canClear = queue.capabilities.includes("clearable") && queue.count > 0;
  const clear = async (event) => {
    if (!await confirmed(`Clear the queue of ${one.name}?`, `Drop ${number(queue.count)} packages of ${queue.publisher}: ${one.name} will not import them.`, "Drop them")) return;
    await act(app, event.target, async () => outcome(app, await call("POST", `${path}/clear`, { wait_seconds: 10 })));
  };
  const remove = (item) => async (event) => {
    if (!await confirmed("Remove the first package?", `Drop offset ${item.offset} (${item.action} ${item.path}): ${one.name} will not import it.`, "Drop it")) return;
    await act(app, event.target, async () => outcome(app, await call("DELETE", `${path}/items?id=${part(item.id)}&wait=10`)));
  };
  const rows = items.map((item, index) => ({ key: item.id, cells: [
    number(item.offset), item.action, [h("span", { class: "mono" }, item.path), item.path_count > 1 ? ` and ${item.path_count - 1} more` : ""], bytes(item.size_bytes), time(item.queued_at),
    index === 0 && canClear ? actionButton(app, "clear", "Remove", remove(item), { class: "small danger" }) : item.attempts ? `${item.attempts} attempts` : ""] }));
  return [
    h("div", { class: "tools" }, h("span", { class: "grow" }, `${queue.exact ? "" : "at most "}${number(queue.count)} packages, ${queue.state}`),
      actionButton(app, "clear", "Clear queue…", clear, { class: "danger", disabled: !canClear, title: queue.capabilities.length ? undefined : "this subscriber takes no commands: it is not editable" })),
    table(`Queue of ${queue.publisher}`, [["Offset", "n"], ["Action", ""], ["Path", ""], ["Size", "n wide"], ["Queued", "wide"], ["Command", ""]], rows, "The queue is empty."),
    next !== null ? h("p", { class: "muted" }, `The first ${ROWS} are shown.`) : null,
  ];
}

function errorQueue(app, one) {
  if (!one.given_up) return null;
  const path = `/errors?subscriber=${part(one.name)}`;
  const page = app.loaded(path, path);
  return h("section", { class: "attention" }, h("h2", null, "Error queue"), page.problem ? page.problem : page.data ? failures(app, page.data.items) : "Loading…");
}

function failures(app, items) {
  const redrive = (item) => async (event) => {
    if (!await confirmed("Import it again?", `${item.subscriber} tries offset ${item.offset} once more. Content that was published later may be overwritten.`, "Redrive", false)) return;
    await act(app, event.target, async () => outcome(app, await call("POST", "/errors/redrive", { subscriber: item.subscriber, offsets: [item.offset], wait_seconds: 10 })));
  };
  return items.map((item) => h("div", { "data-key": `${item.subscriber} ${item.offset}` },
    h("div", { class: "tools" }, h("span", { class: "grow" }, subscriberLink(item.subscriber), ` offset ${number(item.offset)} of ${item.publisher}, ${item.attempts} attempts, `, time(item.given_up_at), " ", h("span", { class: "mono" }, item.paths.slice(0, 3).join(" "))),
      actionButton(app, "clear", "Redrive", redrive(item), { class: "small" })),
    item.error ? cause(app, item.error) : h("p", { class: "muted" }, "The cause is no longer known.")));
}

function forget(app, one) {
  if (!["stopped", "silent", "new"].includes(one.state)) return null;
  const go = async (event) => {
    if (!await confirmed(`Remove ${one.name}?`, "Publishers stop waiting for it, and retention no longer keeps packages for it. Its content stays as it is.", "Remove it")) return;
    await act(app, event.target, async () => { await call("DELETE", `/subscribers/${part(one.name)}`); return `${one.name} was removed`; });
  };
  return h("section", null, h("h2", null, "Registry"), h("div", { class: "tools" }, h("span", { class: "grow" }, "For a subscriber that will not come back."), actionButton(app, "admin", "Remove subscriber…", go, { class: "danger" })));
}

export function errors(app) {
  const { view } = app;
  const path = `/errors?max_items=${ROWS}${view.token ? `&page=${part(view.token)}` : ""}`;
  const page = app.loaded(path, path);
  if (!page.data) return [h("h1", null, "Error queues"), h("section", null, page.problem ?? "Loading…")];
  return [h("h1", null, "Error queues"), h("section", null,
    page.data.items.length ? failures(app, page.data.items) : h("p", { class: "muted" }, "No package is in an error queue."),
    page.data.dropped ? h("p", { class: "warn" }, `${number(page.data.dropped)} entries were dropped to bound memory.`) : null,
    page.data.next_page ? h("button", { type: "button", onclick: () => { view.token = page.data.next_page; app.render(); } }, "Next page") : null)];
}

export function packages(app, wanted) {
  const names = [...app.fleet.publishers.values()].filter((one) => one.state !== null).map((one) => one.name).sort();
  const name = wanted ?? names[0];
  if (!name) return [h("h1", null, "Packages"), h("section", null, "No publisher runs in this agent.")];
  const { view } = app;
  const path = `/publishers/${part(name)}/distributions`;
  const page = app.loaded(path, `${path}?max_items=20${view.before ? `&before=${view.before}` : ""}`);
  const rows = (page.data?.items ?? []).map((one) => ({ key: one.package_id, cells: [
    number(one.offset), one.action, h("a", { class: "mono", href: `#/packages/${part(name)}/${part(one.package_id)}` }, one.paths.slice(0, 2).join(" ") || one.package_id),
    one.state, `${one.imported.length} of ${reach(one)}`, bytes(one.package_bytes), time(one.published_at)] }));
  return [
    h("h1", null, "Packages"),
    names.length > 1 ? h("p", null, "Publisher: ", names.map((one) => [h("a", { href: `#/packages/${part(one)}`, "aria-current": one === name ? "true" : null }, one), " "])) : null,
    h("section", null, h("h2", null, `Published by ${name}`),
      page.problem ? h("p", null, page.problem) : table("Packages", [["Offset", "n"], ["Action", ""], ["Paths", ""], ["State", ""], ["Imported", "n"], ["Size", "n wide"], ["Published", "wide"]], rows, page.data ? "Nothing was published yet." : "Loading…"),
      h("div", { class: "pager" }, view.before ? h("button", { type: "button", onclick: () => { view.before = null; app.refresh(); } }, "Newest") : null,
        page.data?.next_before != null ? h("button", { type: "button", onclick: () => { view.before = page.data.next_before; app.refresh(); } }, "Older") : null)),
    publishForm(app, name),
  ];
}

const reach = (one) => one.imported.length + one.waiting.length + one.removed.length + one.failed.length + one.skipped.length + one.unknown.length;

function publishForm(app, name) {
  const submit = async (event) => {
    event.preventDefault();
    const form = event.target;
    const body = { action: form.elements.action.value, paths: form.elements.paths.value.split("\n").map((one) => one.trim()).filter(Boolean) };
    if (form.elements.deep.checked) body.deep_paths = body.paths;
    try {
      const plan = body.action === "ADD" ? await call("POST", `/publishers/${part(name)}/plan`, body) : null;
      const size = plan ? `${number(plan.nodes)} nodes, ${number(plan.files)} files, ${bytes(plan.content_bytes)}. ` : "";
      if (!await confirmed(`${body.action} as ${name}?`, `${size}${body.paths.join(", ")} for ${number(app.fleet.subscribers.size)} subscribers.`, "Publish", body.action === "DELETE")) return;
      const sent = await call("POST", `/publishers/${part(name)}/distributions`, body);
      form.reset();
      notice(`published at offset ${sent.offset}`);
    } catch (error) {
      notice(`not published: ${error.message}${error.next ? ` (${error.next})` : ""}`);
    }
    app.refresh();
  };
  const isAllowed = may(app, "distribute");
  return h("section", { "aria-labelledby": "publish" }, h("h2", { id: "publish" }, "Publish"),
    isAllowed ? h("form", { onsubmit: submit },
      h("div", { class: "tools" }, h("label", null, "Action", h("select", { name: "action" }, ["ADD", "DELETE", "INVALIDATE", "TEST"].map((one) => h("option", null, one)))),
        h("label", null, "With everything below", h("input", { type: "checkbox", name: "deep" }))),
      h("label", null, "Paths, one a line", h("textarea", { name: "paths", spellcheck: "false", required: true })),
      h("div", { class: "buttons" }, h("button", { type: "submit", class: "main" }, "Publish…")))
      : h("p", { class: "muted" }, "Your token lacks the verb distribute."));
}

export function distribution(app, name, id) {
  const path = `/publishers/${part(name)}/distributions/${part(id)}`;
  const page = app.loaded(path, path);
  const one = page.data;
  if (!one) return [h("h1", null, "Package"), h("section", null, page.problem ?? "Loading…")];
  const group = (title, colour, glyph, members, describe) => members.length ? h("section", { "data-key": title },
    h("h2", null, h("span", { class: colour, "aria-hidden": "true" }, `${glyph} `), `${title}: ${number(members.length)}`), h("ul", { class: "tiles" }, members.slice(0, TILES).map(describe))) : null;
  const chip = (text) => h("li", null, h("a", { href: `#/subscribers/${part(text)}` }, text));
  const reasoned = (each) => h("li", null, subscriberLink(each.subscriber), h("span", { class: "muted" }, ` ${each.reason ?? ""} `));
  return [
    h("h1", null, `${one.action} at offset ${number(one.offset)}`, h("span", { class: "muted" }, one.state)),
    h("section", null, h("dl", null, fact("Package", h("span", { class: "mono" }, one.package_id)), fact("Publisher", one.publisher), fact("Requested by", one.user_id ?? "–"),
      fact("Published", time(one.published_at)), fact("Size", bytes(one.package_bytes)), fact("Paths", h("span", { class: "mono" }, one.paths.join(" "))),
      one.paths_truncated ? fact("", `${number(one.path_count)} paths in all`) : null)),
    group("In an error queue", "bad", "■", one.failed, (each) => h("li", null, subscriberLink(each.subscriber), ` ${each.cause.code}: ${each.cause.message}`)),
    group("Waiting", "busy", "◐", one.waiting, chip), group("Skipped", "warn", "▲", one.skipped, reasoned), group("Dropped by a command", "warn", "✕", one.removed, chip),
    group("Import not known", "idle", "○", one.unknown, reasoned), group("Imported", "ok", "●", one.imported, chip),
  ].filter(Boolean);
}

export function login(app, why) {
  const submit = (event) => { event.preventDefault(); app.login(event.target.elements.token.value.trim()); };
  return [h("section", { class: "login" }, h("h1", null, "Log in"), why ? h("p", { class: "bad", role: "alert" }, why) : null,
    h("form", { onsubmit: submit }, h("label", null, "Token of this agent (http.tokens)", h("input", { type: "password", name: "token", autocomplete: "off", required: true })),
      h("p", { class: "muted" }, "The token stays in this tab and is forgotten when the tab is closed."), h("button", { type: "submit", class: "main" }, "Log in")))];
}
