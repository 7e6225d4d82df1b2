// The dashboard: who is logged in, which view is shown, and the stream that keeps it current.
import { Refused, call, follow, hasToken, setToken } from "./api.js";
import { clearNotice, h, morph } from "./dom.js";
import { Fleet, SAMPLE_MS, needsAttention } from "./fleet.js";
import { overview } from "./overview.js";

const RENDER_MS = 400;
const STALE_MS = 5_000;
const RELOAD_MS = 3_000;
const HEARD_MS = 45_000; // the last heartbeat of a stream that was found silent is not older (api.js), unless this page slept
const SILENT_MS = 60_000; // a restart takes less, as the command line assumes too
const DOCUMENTS = 60;
const main = document.getElementById("content");

// The overview is part of the first load, which is then one round trip after the page; the other views follow it.
const LATER = {
  subscribers: () => import("./subscriber.js"), packages: () => import("./packages.js"), errors: () => import("./errors.js"),
  jobs: () => import("./jobs.js"), builds: () => import("./builds.js"), storage: () => import("./storage.js"), login: () => import("./login.js"),
};
const modules = {};

const VIEWS = [["", "Overview"], ["packages", "Packages"], ["errors", "Errors"], ["jobs", "Jobs"], ["builds", "Builds"], ["storage", "Storage"]];
// What serves the page may have a part of the views: the operator the status of all agents, an agent without a publisher its subscribers.
const PARTS = { fleet: [""], subscribers: ["", "errors", "storage"] };
const views = () => VIEWS.filter(([name]) => PARTS[app.caller?.scope]?.includes(name) ?? true);

const app = {
  fleet: new Fleet(), caller: null, isStarting: true, isWarm: false, view: {}, isLive: false, cache: new Map(), shown: new Set(), stream: null, why: null, swept: null, lostAt: null, restoring: null,

  // The document of a path: the last one at once, and a newer one when it comes. Another path of the same key replaces it.
  loaded(key, path, reloadMs = RELOAD_MS) {
    const known = this.cache.get(key) ?? { path: null, at: 0, data: null, problem: null, isLoading: false };
    this.shown.add(known);
    this.cache.delete(key); // the most recently used last: the first one is dropped
    this.cache.set(key, known);
    if (this.cache.size > DOCUMENTS) this.cache.delete(this.cache.keys().next().value);
    if (!known.isLoading && (known.path !== path || Date.now() - known.at > reloadMs)) {
      known.isLoading = true;
      call("GET", path).then((data) => Object.assign(known, { data, problem: null }))
        .catch((error) => Object.assign(known, { data: known.path === path ? known.data : null, problem: error.message }))
        .finally(() => { Object.assign(known, { isLoading: false, at: Date.now(), path }); this.render(); });
    }
    return known;
  },
  refresh() {
    for (const known of this.cache.values()) known.at = 0;
    this.render();
  },
  render() {
    if (!this.timer) this.timer = setTimeout(() => { this.timer = null; draw(); }, this.drawnAt && Date.now() - this.drawnAt < RENDER_MS ? RENDER_MS : 0);
  },
  login(token) {
    setToken(token);
    start();
  },
  logout(why) {
    this.stream?.abort();
    clearNotice(); // the next person at this page must not read it
    setToken(null);
    Object.assign(this, { fleet: new Fleet(), caller: null, cache: new Map(), isLive: false, swept: null, lostAt: null, why });
    this.render();
  },
};

function route() {
  const [name = "", ...rest] = location.hash.replace(/^#\/?/, "").split("/").map((word) => { try { return decodeURIComponent(word); } catch { return word; } });
  return [name, ...rest];
}

// The module of a view, or null while it is loaded.
function module(name) {
  if (!(name in modules)) {
    modules[name] = null;
    LATER[name]().then((loaded) => { modules[name] = loaded; app.render(); })
      .catch(() => { setTimeout(() => { delete modules[name]; app.render(); }, RELOAD_MS); });
  }
  return modules[name];
}

function shown(name, first, second) {
  if (name !== "subscribers" && !(name && views().some(([served]) => served === name))) return overview(app);
  const loaded = module(name);
  if (!loaded) return h("p", { class: "muted" }, "Loading…");
  if (name === "subscribers") return loaded.subscriber(app, first);
  if (name === "packages") return second ? loaded.distribution(app, first, second) : loaded.packages(app, first);
  if (name === "errors") return loaded.errors(app);
  if (name === "jobs") return first ? loaded.job(app, first) : loaded.jobs(app);
  if (name === "builds") return first ? loaded.build(app, first) : loaded.builds(app);
  return loaded.storage(app);
}

function draw() {
  app.drawnAt = Date.now();
  const [name, first, second] = route();
  const urgent = [...app.fleet.subscribers.values()].filter(needsAttention).length;
  const view = VIEWS.find(([target]) => target && target === name)?.[1];
  document.title = `${urgent ? `(${urgent}) ` : ""}${view ? `${view} – ` : ""}Mailboat`;
  morph(document.getElementById("top"), head(name));
  const above = document.getElementById("silence"); // a part that comes and goes in `main` would take the focus from the others
  const connecting = h("p", { class: "muted" }, "Connecting to the agent…");
  if (!app.caller) { morph(above); morph(main, app.isStarting ? connecting : module("login")?.login(app, app.why) ?? connecting); return; }
  const { problem } = app.fleet;
  app.shown.clear();
  const parts = app.fleet.heardAt ? shown(name, first, second) : connecting;
  morph(above, silence(), outdated());
  morph(main, problem ? h("section", { class: "problem", role: "alert" }, h("b", null, problem.title), ` ${problem.detail ?? ""}`) : null, parts);
  if (app.fleet.heardAt && !app.isWarm) {
    app.isWarm = true; // after the first status: on a slow line the other views would take its place
    requestIdleCallback(() => Object.keys(LATER).forEach(module), { timeout: RELOAD_MS });
  }
}

// What is shown and could not be loaded again, while the stream is live: else the header says so of everything.
function outdated() {
  if (!app.isLive) return [];
  const found = new Set([...app.shown].filter((known) => known.data && known.problem).map((known) => known.problem));
  return [...found].map((problem) => h("p", { class: "bad", role: "alert" }, `not up to date: ${problem}`));
}

const clock = (at) => new Date(at).toLocaleTimeString("en-GB");

function head(name) {
  const failed = [...app.fleet.subscribers.values()].reduce((sum, subscriber) => sum + (subscriber.given_up ?? 0), 0);
  const item = ([target, text]) => h("a", { href: `#/${target}`, "aria-current": name === target || (target === "" && name === "subscribers") ? "page" : null },
    text, target === "errors" && failed ? h("span", { class: "badge" }, failed.toLocaleString("en"), h("span", { class: "hidden" }, ` failed ${failed === 1 ? "package" : "packages"}`)) : null);
  const link = !app.caller ? null : app.isLive ? h("span", { class: "link" }, h("span", { class: "ok", "aria-hidden": "true" }, "● "), `live as ${app.caller.name}`)
    : h("span", { class: "link stale", role: "alert" }, app.fleet.heardAt ? `stale since ${clock(app.fleet.heardAt)}, reconnecting` : "connecting");
  return h("div", { class: "bar-top" }, h("a", { class: "brand", href: "#/" }, "Mailboat"),
    h("nav", { "aria-label": "Views" }, app.caller || app.isStarting ? views().map(item) : null),
    link, hasToken() && app.caller ? h("button", { type: "button", class: "small", onclick: () => app.logout(null) }, "Log out") : null);
}

// What to do about a server that has not answered for long; the page goes on trying. The last state stays below.
function silence() {
  if (!app.caller || !app.lostAt || Date.now() - app.lostAt < SILENT_MS) return null;
  const server = app.caller.scope === "fleet" ? "operator" : "agent";
  const { snapshot, subscriber, view } = app.restoring ?? {};
  return h("section", { class: "problem", role: "alert" },
    h("p", null, h("b", null, `The ${server} has not answered since ${clock(app.fleet.heardAt ?? app.lostAt)}.`),
      ` This page shows what it reported before, and keeps trying. Check whether its process or pod runs, and what its log says last.`),
    view ? h("p", null, `The restore of ${snapshot} into the target of ${subscriber} was last ${view.state}${view.phase ? ` (${view.phase})` : ""}. Start the agent again: the outcome then appears here, and `,
      h("code", null, "mailboat content restores"), " prints it.") : null);
}

async function start() {
  const stream = app.stream = new AbortController();
  const onEvent = (event) => {
    const isFirst = !app.fleet.heardAt;
    app.fleet.apply(event);
    if (isFirst) { app.fleet.sample(); app.drawnAt = null; }
    app.render();
  };
  // at the same time as the question who the caller is: a round trip less before the first content
  const onState = (isLive) => {
    app.isLive = isLive;
    // Silent since the last heartbeat, unless this page slept since then.
    app.lostAt = isLive ? null : app.lostAt ?? Math.max(app.fleet.heardAt ?? Date.now(), Date.now() - HEARD_MS);
    if (isLive && app.fleet.heardAt) app.fleet.heardAt = Date.now(); // a heartbeat, too: nothing has changed until then
    app.render();
  };
  follow(onEvent, onState, stream.signal)
    .catch(() => { if (app.caller) app.logout("The token is no longer accepted, or lacks the verb view."); });
  try {
    app.caller = await call("GET", "/caller");
  } catch (error) {
    stream.abort();
    app.isStarting = false;
    const isRefused = error instanceof Refused && (error.status === 401 || error.status === 403);
    if (!isRefused) { setTimeout(start, STALE_MS); app.why = `no answer from the agent: ${error.message}; trying again`; } else {
      app.why = hasToken() ? "The agent does not accept this token." : error.status === 403 ? "The agent has no tokens and answers at a loopback address only." : null;
      setToken(null);
    }
    app.render();
    return;
  }
  app.why = app.drawnAt = null;
  app.render();
  app.fleet.scope = app.caller.scope;
  document.querySelector("footer").hidden = app.caller.scope === "fleet"; // its pages are the agents'
  document.querySelector("footer a[href$=json]").hidden = app.caller.scope !== "agent";
}

// The hash names the view: the link must not change it, and nothing may take the focus a moment later.
document.querySelector(".skip").onclick = (event) => { event.preventDefault(); main.focus(); };
window.addEventListener("hashchange", () => { app.view = {}; draw(); main.focus(); window.scrollTo(0, 0); });
setInterval(() => {
  if (app.isLive) app.fleet.sample();
  if (app.caller && !document.hidden) app.render();
}, SAMPLE_MS);
draw();
start();
