// What was published and where it got to; and publishing.
import { call, part } from "./api.js";
import { confirmed, may } from "./actions.js";
import { bar, bytes, count, fact, h, muted, notice, number, packageLink, pending, state, subscriberLink, table, time } from "./dom.js";

const ROWS = 20;
const CHIPS = 60;

export function packages(app, wanted) {
  const names = [...app.fleet.publishers.values()].filter((publisher) => publisher.state !== null).map((publisher) => publisher.name).sort();
  const name = wanted ?? names[0];
  if (!name) return [h("h1", null, "Packages"), h("section", null, "No publisher runs in this agent.")];
  const { view } = app;
  const path = `/publishers/${part(name)}/distributions`;
  const page = app.loaded(path, `${path}?max_items=${ROWS}${view.before ? `&before=${view.before}` : ""}`);
  const rows = (page.data?.items ?? []).map((sent) => ({ key: sent.package_id, cells: [
    number(sent.offset), sent.action, packageLink(name, sent.package_id, shownPaths(sent)),
    state(sent.state), [`${number(sent.imported.length)} of ${number(reach(sent))}`, way(sent)], bytes(sent.package_bytes), sent.user_id ?? "–", time(sent.published_at)] }));
  const find = (event) => {
    event.preventDefault();
    const id = event.target.elements.id.value.trim();
    if (id) location.hash = `#/packages/${part(name)}/${part(id)}`;
  };
  return [
    h("h1", null, "Packages"),
    names.length > 1 ? h("p", null, "Publisher: ", names.map((each) => [h("a", { href: `#/packages/${part(each)}`, "aria-current": each === name ? "true" : null }, each), " "])) : null,
    publishing(app, name),
    h("section", null, h("h2", null, `Published by ${name}`),
      h("form", { class: "tools", role: "search", onsubmit: find }, h("label", null, "Package or request id", h("input", { type: "search", name: "id", required: true, size: 24 })), h("button", { type: "submit" }, "Show")),
      page.data ? table("Packages", [["Offset", "n"], ["Action", ""], ["Paths", ""], ["State", "s"], ["Imported", "n lag"], ["Size", "n wide"], ["User", "wide"], ["Published", "wide"]], rows, "Nothing was published yet.") : pending(page),
      h("div", { class: "pager" }, view.before ? h("button", { type: "button", onclick: () => { view.before = null; app.refresh(); } }, "Newest") : null,
        page.data?.next_before != null ? h("button", { type: "button", onclick: () => { view.before = page.data.next_before; app.refresh(); } }, "Older") : null)),
  ];
}

const shownPaths = (sent) => (sent.paths.length ? sent.paths.slice(0, 2).join(" ") + (sent.path_count > 2 ? ` and ${number(sent.path_count - 2)} more` : "") : sent.package_id);
const reach = (sent) => sent.imported.length + sent.waiting.length + sent.removed.length + sent.failed.length + sent.skipped.length + sent.unknown.length;
const way = (sent) => bar([["ok", sent.imported.length], ["warn", sent.skipped.length + sent.removed.length], ["bad", sent.failed.length], ["idle", sent.unknown.length]], reach(sent));

const ACTIONS = [["ADD", "ADD: content of these paths"], ["CHANGED", "what changed in the source"], ["DELETE", "DELETE: remove these paths"], ["INVALIDATE", "INVALIDATE: drop from caches"], ["TEST", "TEST: reach subscribers, change nothing"]];

function publishing(app, name) {
  if (!may(app, "distribute")) return h("section", null, h("h2", null, "Publish"), muted("Your token lacks the verb distribute."));
  const submit = async (event) => {
    event.preventDefault();
    const form = event.target;
    const action = form.elements.action.value;
    const paths = form.elements.paths.value.split("\n").map((line) => line.trim()).filter(Boolean);
    try {
      if (!paths.length && action !== "TEST") throw new Error("a path is missing, such as /en/news");
      const sent = await (action === "CHANGED" ? publishChanges(app, name, paths) : publish(app, name, action, paths, form.elements.deep.checked));
      if (sent === null) return;
      form.reset();
      notice(sent);
    } catch (error) {
      notice(`not published: ${error.message}${error.next ? ` (${error.next})` : ""}`);
    }
    app.refresh();
  };
  return h("details", { class: "panel" }, h("summary", null, "Publish"),
    h("form", { onsubmit: submit },
      h("div", { class: "tools" }, h("label", null, "Action", h("select", { name: "action" }, ACTIONS.map(([value, text]) => h("option", { value }, text)))),
        h("label", { class: "check" }, h("input", { type: "checkbox", name: "deep" }), "with everything below")),
      h("label", null, "Paths, one a line; none for TEST", h("textarea", { name: "paths", spellcheck: "false" })),
      h("div", { class: "buttons" }, h("button", { type: "submit", class: "main" }, "Publish…"))));
}

const followers = (app, name) => count([...app.fleet.subscribers.values()].filter(({ follow }) => !follow.length || follow.includes(name)).length, "subscriber");

const contents = (plan) => `${count(plan.nodes, "node")}, ${count(plan.files, "file")}, ${bytes(plan.content_bytes)}${plan.deletes ? `, ${count(plan.deletes, "subtree")} removed` : ""}`;

async function publish(app, name, action, paths, isDeep) {
  const body = { action, paths, ...(isDeep ? { deep_paths: paths } : {}) };
  const plan = action === "ADD" ? await call("POST", `/publishers/${part(name)}/plan`, body) : null;
  const what = `${plan ? `${contents(plan)}. ` : ""}${paths.join(", ") || "A message"} for ${followers(app, name)}.`;
  if (!await confirmed(action === "DELETE" ? "DELETE" : "PUBLISH", { action, publisher: name, contents: what })) return null;
  const sent = await call("POST", `/publishers/${part(name)}/distributions`, body);
  return `published at offset ${sent.offset}`;
}

async function publishChanges(app, name, paths) {
  const plan = await call("POST", `/publishers/${part(name)}/plan/changes`, { paths });
  if (!plan.packages) return "nothing changed: nothing was published";
  const removed = plan.first_removals.length ? ` Removes ${plan.first_removals.slice(0, 5).join(", ")}${plan.deletes > 5 ? " and others" : ""}.` : "";
  const what = `${count(plan.packages, "package")}: ${contents(plan)}, for ${followers(app, name)}.${removed}`;
  if (!await confirmed(plan.deletes ? "PUBLISH_REMOVALS" : "PUBLISH_CHANGES", { publisher: name, contents: what })) return null;
  const sent = await call("POST", `/publishers/${part(name)}/changes`, { paths });
  return sent.length ? `published ${count(sent.length, "package")} up to offset ${sent.at(-1).offset}` : "nothing changed: nothing was published";
}

const REASONS = {
  staged: "its golden subscriber did not import it", "not-followed": "did not follow the publisher", "joined-later": "follows the publisher since a later package",
  "before-reports": "older than its reports", "statuses-gone": "its reports were removed", "no-reports": "does not report what it skips",
};

export function distribution(app, name, id) {
  const path = `/publishers/${part(name)}/distributions/${part(id)}`;
  const page = app.loaded(path, path);
  const sent = page.data;
  if (!sent) return [h("h1", null, "Package"), h("section", null, pending(page))];
  const group = (title, colour, glyph, members, describe) => {
    if (!members.length) return null;
    const list = h("ul", { class: "tiles" }, members.slice(0, CHIPS).map(describe), members.length > CHIPS ? h("li", { class: "more" }, `and ${number(members.length - CHIPS)} more`) : null);
    return h("section", { "data-key": title }, h("h2", null, h("span", { class: colour, "aria-hidden": "true" }, `${glyph} `), `${title}: ${number(members.length)}`), list);
  };
  const chip = (text) => h("li", null, h("a", { href: `#/subscribers/${part(text)}` }, text));
  const reasoned = (each) => h("li", { class: "line" }, subscriberLink(each.subscriber), h("span", { class: "muted" }, ` ${REASONS[each.reason] ?? each.reason ?? ""}${each.golden ? ` (${each.golden})` : ""}`));
  return [
    h("h1", null, `${sent.action} at offset ${number(sent.offset)}`, state(sent.state)),
    h("section", { class: "way" }, h("p", null, h("b", null, number(sent.imported.length)), ` of ${count(reach(sent), "subscriber")} imported it`), way(sent)),
    h("section", null, h("dl", null, fact("Package", h("span", { class: "mono" }, sent.package_id)), fact("Publisher", sent.publisher), fact("Requested by", sent.user_id ?? "–"), fact("Request id", h("span", { class: "mono" }, sent.request_id ?? "–")),
      fact("Published", time(sent.published_at)), fact("Size", bytes(sent.package_bytes)), fact("Paths", h("span", { class: "mono" }, sent.paths.join(" "))),
      sent.deep_paths.length ? fact("Whole subtrees", h("span", { class: "mono" }, sent.deep_paths.join(" "))) : null,
      sent.paths_truncated ? fact("", `${number(sent.path_count)} paths in all`) : null)),
    group("In an error queue", "bad", "■", sent.failed, (each) => h("li", { class: "line" }, subscriberLink(each.subscriber), ` ${each.cause.code}: ${each.cause.message}`)),
    group("Waiting", "busy", "◐", sent.waiting, chip), group("Skipped", "warn", "▲", sent.skipped, reasoned), group("Dropped by a command", "warn", "✕", sent.removed, chip),
    group("Import not known", "idle", "○", sent.unknown, reasoned), group("Imported", "ok", "●", sent.imported, chip),
  ].filter(Boolean);
}
