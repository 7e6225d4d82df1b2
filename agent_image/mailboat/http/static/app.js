// The dashboard: who is logged in, which view is shown, and the stream that keeps it current.
import { Refused, call, follow, hasToken, setToken } from "./api.js";
import { h, morph } from "./dom.js";
import { Fleet, SAMPLE_MS } from "./fleet.js";
import * as views from "./views.js";

const RENDER_MS = 400;
const STALE_MS = 5_000;
const RELOAD_MS = 3_000;
const main = document.getElementById("content");

const app = {
  fleet: new Fleet(), caller: null, view: {}, isLive: false, cache: new Map(), stream: null, why: null,

  // The document of a path: the last one at once, and a newer one when it comes.
  loaded(key, path) {
    const known = this.cache.get(key) ?? { path: null, at: 0, data: null, problem: null, isLoading: false };
    this.cache.set(key, known);
    const isOld = Date.now() - known.at > RELOAD_MS;
    if (!known.isLoading && (known.path !== path || isOld)) {
      known.isLoading = true;
      call("GET", path).then((data) => Object.assign(known, { data, problem: null }))
        .catch((error) => Object.assign(known, { problem: error.message }))
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
    setToken(null);
    Object.assign(this, { fleet: new Fleet(), caller: null, cache: new Map(), isLive: false, why });
    this.render();
  },
};

function route() {
  const [name = "", ...rest] = location.hash.replace(/^#\/?/, "").split("/").map((one) => { try { return decodeURIComponent(one); } catch { return one; } });
  return [name, ...rest];
}

function draw() {
  app.drawnAt = Date.now();
  const [name, first, second] = route();
  morph(document.getElementById("top"), head(name));
  if (!app.caller) { morph(main, views.login(app, app.why)); return; }
  const { problem } = app.fleet;
  const shown = name === "subscribers" ? views.subscriber(app, first)
    : name === "packages" && second ? views.distribution(app, first, second)
    : name === "packages" ? views.packages(app, first)
    : name === "errors" ? views.errors(app) : views.overview(app);
  morph(main, problem ? h("section", { class: "problem", role: "alert" }, h("b", null, problem.title), ` ${problem.detail ?? ""}`) : null, shown);
}

function head(name) {
  const item = (target, text) => h("a", { href: `#/${target}`, "aria-current": name === target || (target === "" && name === "subscribers") ? "page" : null }, text);
  const clock = (at) => new Date(at).toLocaleTimeString("en-GB");
  const link = !app.caller ? null : app.isLive ? h("span", { class: "link" }, `live as ${app.caller.name}`)
    : h("span", { class: "link stale", role: "alert" }, app.fleet.heardAt ? `stale since ${clock(app.fleet.heardAt)}, reconnecting` : "connecting");
  return h("div", { class: "bar" }, h("a", { class: "brand", href: "#/" }, "Mailboat"),
    h("nav", { "aria-label": "Views" }, app.caller ? [item("", "Overview"), item("packages", "Packages"), item("errors", "Errors")] : null),
    link, hasToken() && app.caller ? h("button", { type: "button", class: "small", onclick: () => app.logout(null) }, "Log out") : null);
}

async function start() {
  try {
    app.caller = await call("GET", "/caller");
  } catch (error) {
    const isRefused = error instanceof Refused && (error.status === 401 || error.status === 403);
    if (!isRefused) { setTimeout(start, STALE_MS); app.why = `no answer from the agent: ${error.message}; trying again`; } else {
      app.why = hasToken() ? "The agent does not accept this token." : error.status === 403 ? "The agent has no tokens and answers at a loopback address only." : null;
      setToken(null);
    }
    app.render();
    return;
  }
  app.why = null;
  const stream = app.stream = new AbortController();
  app.render();
  follow((event) => { app.fleet.apply(event); app.render(); }, (isLive) => { app.isLive = isLive; app.render(); }, stream.signal)
    .catch(() => app.logout("The token is no longer accepted, or lacks the verb view."));
}

window.addEventListener("hashchange", () => { app.view = {}; draw(); main.focus(); window.scrollTo(0, 0); });
setInterval(() => { if (app.caller) { if (app.isLive) app.fleet.sample(); app.render(); } }, SAMPLE_MS);
draw();
start();
