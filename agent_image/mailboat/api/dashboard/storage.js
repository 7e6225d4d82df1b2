// What is stored: the journal's topics, snapshots of targets, blobs, which are counted on request only, and memory.
import { Refused, call, part } from "./api.js";
import { act, actionButton, may } from "./actions.js";
import { bar, bytes, count, duration, fact, h, muted, number, pending, table, time } from "./dom.js";

export function storage(app) {
  const memory = app.loaded("memory", "/memory");
  const held = h("section", { "aria-labelledby": "memory" }, h("h2", { id: "memory" }, "Memory of this agent"), memory.data ? accounts(memory.data) : pending(memory));
  const snapshots = app.loaded("snapshots", "/snapshots");
  const stored = h("section", { "aria-labelledby": "snapshots" }, h("h2", { id: "snapshots" }, "Snapshots of targets"), snapshots.data ? snapshotParts(app, snapshots.data) : pending(snapshots));
  if (app.fleet.scope !== "agent") return [h("h1", null, "Storage"), muted("Journal and blobs are on the dashboard of a publisher's agent."), stored, held];
  const journal = app.loaded("journal", "/journal");
  return [
    h("h1", null, "Storage"),
    h("section", { "aria-labelledby": "journal" }, h("h2", { id: "journal" }, "Journal"), journal.data ? topics(journal.data) : pending(journal)),
    stored,
    h("section", { "aria-labelledby": "blobs" }, h("h2", { id: "blobs" }, "Blobs"), blobs(app)),
    held,
  ];
}

function topics({ journal, topics: found }) {
  const rows = found.map((topic) => ({ key: topic.role, cells: [topic.role, h("span", { class: "mono" }, topic.name), number(topic.earliest_offset), number(topic.next_offset), number(topic.next_offset - topic.earliest_offset)] }));
  const kept = journal.retention_seconds;
  return [h("dl", null, fact("Kept by", journal.description), journal.size_bytes === null ? null : fact("Size", bytes(journal.size_bytes)), fact("Retention", kept === null ? "without age limit" : duration(kept))),
    table("Topics", [["Role", ""], ["Topic", "wide"], ["Oldest offset", "n"], ["Next offset", "n"], ["Records", "n"]], rows, "No topic exists yet.")];
}

function snapshotParts(app, found) {
  const isWhole = app.fleet.scope === "agent"; // agents without a publisher restore snapshots, and neither store nor remove them
  const { data } = app.loaded("restores", "/restores", app.restoring ? 500 : undefined);
  const restores = data ?? [];
  const rows = found.map((snapshot) => {
    const name = snapshot.snapshot.replace(/^blob:/, "");
    return { key: snapshot.snapshot, cells: [h("span", { class: "mono" }, snapshot.snapshot), ...(snapshot.error ? [h("span", { class: "bad" }, `${snapshot.message} (${snapshot.next_step})`), "", "", ""] : [snapshot.roots?.length ? `${snapshot.target}, below ${snapshot.roots.join(", ")} only` : snapshot.target, bytes(snapshot.bytes), number(snapshot.next_offset), time(snapshot.taken_at)]),
      [snapshot.error ? null : restoreButton(app, snapshot, restores), " ",
      isWhole && actionButton(app, { verb: "admin", label: "Remove", kind: "small danger", question: ["REMOVE_SNAPSHOT", { snapshot: snapshot.snapshot }],
        action: async () => { await call("DELETE", `/snapshots/${part(name)}`); return `${snapshot.snapshot} was removed`; } })]] };
  });
  const targets = [...new Set([...app.fleet.subscribers.values()].map((subscriber) => subscriber.target).filter(Boolean))].sort();
  const store = async (event) => {
    event.preventDefault();
    const { target, snapshot, force } = event.target.elements;
    await act(app, async () => {
      const { stored } = await call("POST", "/snapshots", { target: target.value, name: snapshot.value.trim(), force: force.checked });
      return stored ? "the snapshot was stored" : "a snapshot of that name is as new already";
    });
  };
  return [
    table("Snapshots", [["Snapshot", ""], ["Target", ""], ["Size", "n"], ["Next offset", "n wide"], ["Taken", "wide"], ["Command", "s"]], rows, "The blob store holds no snapshots."),
    // before the parts that come and go: a form that is moved loses what is being typed
    isWhole && may(app, "admin") && targets.length ? h("form", { class: "tools", onsubmit: store },
      h("label", null, "Target of a subscriber", h("select", { name: "target" }, targets.map((target) => h("option", { value: target }, target)))),
      h("label", null, "Name", h("input", { name: "snapshot", required: true, pattern: "[A-Za-z0-9._-]+", maxlength: 100 })),
      h("label", { class: "check" }, h("input", { type: "checkbox", name: "force" }), "replace"), h("button", { type: "submit" }, "Store snapshot")) : null,
    restores.length ? h("div", { class: "tools" }, h("label", null, "Subscriber to restore", h("select", { onchange: (event) => { app.view.restored = event.target.value; app.render(); } },
      h("option", { value: "", selected: !app.view.restored }, "the snapshot's own"),
      restores.map((one) => h("option", { value: one.subscriber, selected: one.subscriber === app.view.restored }, `${one.subscriber} (${one.target})`))))) : data && muted("This agent runs no subscriber whose target it could restore."),
    outcomes(restores.filter((one) => one.state !== "none")),
  ];
}

// The chosen subscriber; without a choice the one whose target the snapshot was taken of, if any.
const chosen = (app, restores, snapshot) => restores.find((one) => (app.view.restored ? one.subscriber === app.view.restored : one.target === snapshot.target));

function restoreButton(app, snapshot, restores) {
  const question = () => {
    const { subscriber, target } = chosen(app, restores, snapshot);
    const position = app.fleet.named(subscriber).find((one) => one.target === target)?.next_offset;
    const name = typeof position !== "number" || position === snapshot.next_offset ? "RESTORE" : position > snapshot.next_offset ? "RESTORE_BACK" : "RESTORE_FORWARD";
    return [name, { target, snapshot: `${snapshot.snapshot}, a copy of ${snapshot.target} at offset ${number(snapshot.next_offset)}`, position: number(position), next_offset: number(snapshot.next_offset) }, subscriber];
  };
  return actionButton(app, { verb: "admin", label: "Restore…", kind: "small danger", isDisabled: !chosen(app, restores, snapshot) || Boolean(app.restoring), hint: chosen(app, restores, snapshot) ? undefined : "choose the subscriber to restore first",
    question, action: () => restored(app, snapshot, chosen(app, restores, snapshot)) });
}

// The last restore into a target; null while the agent does not answer. Its target keeps the outcome, also over a new start.
async function lastRestore(target) {
  try {
    return (await call("GET", "/restores")).find((one) => one.target === target);
  } catch (error) {
    if (error instanceof Refused && error.status < 500 && error.status !== 429) throw error;
    return null;
  }
}

// Begin a restore, and follow it to its end: the last words are those of the agent. While it is away, the page says so.
async function restored(app, { snapshot }, { subscriber, target }) {
  const begun = await call("POST", `/snapshots/${part(snapshot.replace(/^blob:/, ""))}/restore`, { target, replace: true });
  let view = begun;
  app.restoring = { snapshot, subscriber, view };
  try {
    while (["waiting", "restoring"].includes(view.state)) {
      app.refresh();
      await new Promise((resolve) => setTimeout(resolve, 500));
      const known = await lastRestore(target);
      if (known === null) continue;
      app.restoring.view = view = known?.snapshot === begun.snapshot && known.begun_at === begun.begun_at ? known : { state: Date.parse(known?.begun_at) > Date.parse(begun.begun_at) ? "superseded" : known?.state === "unknown" ? "unknown" : "lost", message: known?.message, next_step: known?.next_step };
    }
  } finally {
    app.restoring = null;
  }
  if (view.state === "superseded") return `another restore into the target of ${subscriber} began after that of ${snapshot}: the agent's log has both`;
  if (view.state === "unknown") return `the agent started again, and whether ${snapshot} was restored into the target of ${subscriber} is not known: ${view.message}${view.next_step ? ` (${view.next_step})` : ""}`;
  if (view.state === "lost") return `the agent ended before ${snapshot} was restored: the target of ${subscriber} is as it was before`;
  if (view.state === "failed") return `${subscriber} was not restored: ${view.message}${view.next_step ? ` (${view.next_step})` : ""}`;
  return `${subscriber} has the content of ${snapshot}, and goes on at offset ${view.next_offset}`;
}

function outcomes(found) {
  const progress = ({ phase, done_bytes: done, total_bytes: total }) => (total ? [`${phase} `, bar([["busy", done]], total)] : phase);
  const rows = found.map((one) => ({ key: `restore ${one.subscriber}`, cells: [one.subscriber, h("span", { class: "mono" }, one.snapshot), time(one.begun_at), one.state,
    one.state === "done" ? `offset ${number(one.next_offset)}` : one.error ? `${one.error}: ${one.message}` : one.phase ? progress(one) : "the current batch ends first"] }));
  return rows.length ? table("Restores", [["Subscriber", ""], ["Snapshot", ""], ["Begun", "wide"], ["State", ""], ["Outcome", ""]], rows, "") : null;
}

const ACCOUNTS = {
  queues: "queues: the view of the package topic", "error-queues": "error queues", "command-answers": "answers to commands",
  "event-stream": "event stream: kept for its clients", history: "plots of the last hour", jobs: "jobs",
};

function accounts({ resident_bytes: resident, limit_bytes: limit, accounts: found }) {
  const rows = found.map((account) => ({ key: account.name, cells: [ACCOUNTS[account.name] ?? account.name,
    [bytes(account.used_bytes), account.limit_bytes === null ? null : bar([["busy", account.used_bytes]], account.limit_bytes)],
    account.limit_bytes === null ? "grows with the jobs" : bytes(account.limit_bytes)] }));
  return [h("dl", null, resident === null ? null : fact("Process", `${bytes(resident)} resident`), limit === null ? null : fact("Limit", bytes(limit))),
    table("Memory accounts", [["Account", ""], ["Used", "n lag"], ["Limit", "n"]], rows, "No account is kept.")];
}

const FATES = { referenced: "referenced by messages or snapshots", young: "too young to remove", removable: "removable" };

function blobs(app) {
  const swept = app.swept;
  const sweep = async (isDry) => {
    app.swept = await call("POST", "/blobs/sweep", { dry_run: isDry });
    return isDry ? "the blobs were counted" : `${count(app.swept.removed, "blob")} removed`;
  };
  const removable = swept?.dry_run ? swept.blobs.removable?.count ?? 0 : 0;
  return [
    h("div", { class: "tools" }, h("span", { class: "grow muted" }, swept ? `${swept.store}, ${count(swept.messages, "message")} read` : "Counting reads the whole package topic."),
      actionButton(app, { verb: "admin", label: "Count blobs", action: () => sweep(true) }),
      actionButton(app, { verb: "admin", label: "Sweep…", kind: "danger", isDisabled: !removable, hint: removable ? undefined : "count the blobs first",
        question: ["SWEEP", { blobs: count(removable, "blob") }], action: () => sweep(false) })),
    swept ? table("Blobs", [["Blobs", ""], ["Number", "n"], ["Size", "n"]], Object.entries(swept.blobs).map(([fate, tally]) => ({ key: fate, cells: [FATES[fate] ?? fate, number(tally.count), bytes(tally.bytes)] })), "The store holds no blobs.") : null,
    swept?.unreadable ? h("p", { class: "bad" }, `Nothing can be removed: the message at offset ${number(swept.unreadable.offset)} cannot be decoded (${swept.unreadable.reason}).`) : null,
    swept?.targets.length ? muted(swept.targets.map((target) => `${target.subscriber}: ${target.problem ?? count(target.removed, "blob")}`).join("; ")) : null,
  ];
}
