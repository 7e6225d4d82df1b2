// What is stored: the journal's topics, snapshots of targets, blobs, which are counted on request only, and memory.
import { call, part } from "./api.js";
import { act, actionButton, may } from "./actions.js";
import { bar, bytes, count, duration, explained, fact, h, muted, number, pending, table, time } from "./dom.js";

export function storage(app) {
  const memory = app.loaded("memory", "/memory");
  const held = h("section", { "aria-labelledby": "memory" }, h("h2", { id: "memory" }, "Memory of this agent"), memory.data ? accounts(memory.data) : pending(memory));
  if (app.fleet.scope !== "agent") return [h("h1", null, "Storage"), muted("Journal, snapshots and blobs are on the dashboard of a publisher's agent."), held];
  const journal = app.loaded("journal", "/journal");
  const snapshots = app.loaded("snapshots", "/snapshots");
  return [
    h("h1", null, "Storage"),
    h("section", { "aria-labelledby": "journal" }, h("h2", { id: "journal" }, "Journal"), journal.data ? topics(journal.data) : pending(journal)),
    h("section", { "aria-labelledby": "snapshots" }, h("h2", { id: "snapshots" }, "Snapshots of targets"), snapshots.data ? snapshotParts(app, snapshots.data) : pending(snapshots)),
    h("section", { "aria-labelledby": "blobs" }, h("h2", { id: "blobs" }, "Blobs"), blobs(app)),
    held,
  ];
}

function topics({ journal, topics: found }) {
  const rows = found.map((topic) => ({ key: topic.role, cells: [topic.role, h("span", { class: "mono" }, topic.name), number(topic.earliest_offset), number(topic.next_offset), number(topic.next_offset - topic.earliest_offset)] }));
  const kept = journal.retention_seconds;
  return [h("dl", null, fact("Kept by", journal.description), journal.size_bytes === null ? null : fact("Size", bytes(journal.size_bytes)), fact("Retention", kept === null ? "without limit" : duration(kept))),
    table("Topics", [["Role", ""], ["Topic", "wide"], ["Oldest offset", "n"], ["Next offset", "n"], ["Records", "n"]], rows, "No topic exists yet.")];
}

function snapshotParts(app, found) {
  const rows = found.map((snapshot) => {
    const name = snapshot.snapshot.replace(/^blob:/, "");
    return { key: snapshot.snapshot, cells: [h("span", { class: "mono" }, snapshot.snapshot), snapshot.target, bytes(snapshot.bytes), number(snapshot.next_offset), time(snapshot.taken_at),
      [h("button", { type: "button", class: "small", onclick: () => howToRestore(app, snapshot) }, "Restore…"), " ",
      actionButton(app, { verb: "admin", label: "Remove", kind: "small danger", question: [`Remove ${snapshot.snapshot}?`, "The name is removed; the next sweep removes its blob.", "Remove it"],
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
    may(app, "admin") && targets.length ? h("form", { class: "tools", onsubmit: store },
      h("label", null, "Target of a subscriber of this agent", h("select", { name: "target" }, targets.map((target) => h("option", { value: target }, target)))),
      h("label", null, "Name", h("input", { name: "snapshot", required: true, pattern: "[A-Za-z0-9._-]+", maxlength: 100 })),
      h("label", { class: "check" }, h("input", { type: "checkbox", name: "force" }), "replace"), h("button", { type: "submit" }, "Store snapshot")) : null,
  ];
}

// A restore makes a target and replaces none, and a running subscriber holds its own: the agent cannot do it.
function howToRestore(app, { snapshot, target }) {
  const users = [...app.fleet.subscribers.values()].filter((subscriber) => subscriber.target === target).map((subscriber) => subscriber.name);
  explained(`Restore ${snapshot}`,
    h("p", null, "A restore creates a target at the position of the snapshot. It replaces no target, and a running subscriber holds its own, so it takes three steps on the machine of the target:"),
    h("ol", null, h("li", null, users.length ? `Stop the agent of ${users.join(", ")}.` : "Stop the agent of the subscriber."), h("li", null, "Move the old target away: ", h("code", null, target), "."),
      h("li", null, "Run this, and start the agent:", h("pre", null, `mailboat content restore ${snapshot} --into '${target.replaceAll("'", "'\\''")}'`))),
    h("p", { class: "muted" }, "The subscriber then imports what was published since. In Kubernetes, new members of a pool with a bucket start from its snapshot by themselves."));
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
        question: ["Remove blobs?", `${count(removable, "blob")} that no message refers to.`, "Remove them"], action: () => sweep(false) })),
    swept ? table("Blobs", [["Blobs", ""], ["Number", "n"], ["Size", "n"]], Object.entries(swept.blobs).map(([fate, tally]) => ({ key: fate, cells: [FATES[fate] ?? fate, number(tally.count), bytes(tally.bytes)] })), "The store holds no blobs.") : null,
    swept?.unreadable ? h("p", { class: "bad" }, `Nothing can be removed: the message at offset ${number(swept.unreadable.offset)} cannot be decoded (${swept.unreadable.reason}).`) : null,
    swept?.targets.length ? muted(swept.targets.map((target) => `${target.subscriber}: ${target.problem ?? count(target.removed, "blob")}`).join("; ")) : null,
  ];
}
