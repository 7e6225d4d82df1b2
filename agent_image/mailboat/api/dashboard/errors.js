// All error queues: failed packages with cause, next step and a second try.
import { call, part } from "./api.js";
import { actionButton, outcome } from "./actions.js";
import { cause } from "./explanations.js";
import { count, h, muted, number, packageName, pending, subscriberLink, time } from "./dom.js";

const ROWS = 50;

export function errors(app) {
  const { view } = app;
  const path = `/errors?max_items=${ROWS}${view.token ? `&page=${part(view.token)}` : ""}`;
  const page = app.loaded("errors", path);
  if (!page.data) return [h("h1", null, "Error queues"), h("section", null, pending(page))];
  return [h("h1", null, "Error queues"), h("section", null,
    page.data.items.length ? failures(app, page.data.items) : muted("No package is in an error queue."),
    page.data.dropped ? h("p", { class: "warn" }, `${count(page.data.dropped, "entry")} left out to bound the agent's memory; `, h("code", null, "mailboat errors ls"), " on the subscriber's home lists all.") : null,
    h("div", { class: "pager" }, view.token ? h("button", { type: "button", onclick: () => { view.token = null; app.render(); } }, "First page") : null,
      page.data.next_page ? h("button", { type: "button", onclick: () => { view.token = page.data.next_page; app.render(); } }, "Next page") : null))];
}

// The failed packages by subscriber; `address` is that of one instance, where only its packages are shown.
export function failures(app, items, address = null) {
  const bySubscriber = Map.groupBy(items, (item) => item.subscriber);
  return [...bySubscriber].map(([name, failed]) => h("div", { class: "failures", "data-key": name },
    h("div", { class: "tools" }, h("b", { class: "grow" }, subscriberLink(name), ` ${count(failed.length, "package")}`),
      redriven(failed).length > 1 ? redrive(app, name, redriven(failed), `Redrive all ${number(redriven(failed).length)}…`, count(redriven(failed).length, "package"), address) : null),
    failed.map((item, index) => failure(app, item, address, failed.findIndex((other) => other.error?.code === item.error?.code) < index))));
}

function failure(app, item, address, isExplained) {
  const tries = item.attempts === null ? "attempts unknown" : count(item.attempts, "attempt");
  const what = item.kind === "import" ? tries : `imported; its hook after ${item.kind === "hook" ? `failed in ${tries}` : "is called again"}`;
  const first = item.paths[0] ?? "paths not known";
  const more = item.path_count > 1 ? ` and ${number(item.path_count - 1)} more` : "";
  return h("div", { class: "failure", "data-key": `${item.subscriber} ${item.offset} ${item.kind}` },
    h("div", { class: "tools" }, h("span", { class: "grow" }, h("span", { class: "bad", "aria-hidden": "true" }, "■ "), `offset ${number(item.offset)} of ${item.publisher}, ${what}`, item.given_up_at ? [", ", time(item.given_up_at)] : null, " ",
      packageName(app, item.publisher, item.package_id, first), more),
      redriven([item]).length ? redrive(app, item.subscriber, [item], "Redrive", `offset ${number(item.offset)}`, address) : null),
    item.error ? cause(app, item.error, first, isExplained) : muted("The cause is no longer known."));
}

// A hook that is called again anyway takes no redrive.
const redriven = (items) => items.filter((item) => item.kind !== "hook-retrying");

const redrive = (app, subscriber, items, label, packages, address) => actionButton(app, { verb: "clear", label, kind: "small",
  question: ["REDRIVE", { packages, subscriber }],
  action: async () => outcome(await call("POST", "/errors/redrive", { subscriber: address ?? subscriber, offsets: items.map((item) => item.offset), wait_seconds: 10 })) });
