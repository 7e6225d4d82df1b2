// Durable jobs: their queues, the jobs with the reason why each one waits or failed, and a job's details.
import { call, part } from "./api.js";
import { act, actionButton, confirmed, may } from "./actions.js";
import { count, duration, fact, h, muted, number, pending, state, table, time } from "./dom.js";

const STATES = ["queued", "unassigned", "active", "succeeded", "stopped", "given-up", "error"];
const ENDED = new Set(["succeeded", "stopped", "given-up", "error"]);
const ROWS = 50;

export function jobs(app) {
  const { view } = app;
  const queues = app.loaded("job queues", "/jobs/queues");
  const set = (facts) => { Object.assign(view, { tokens: [""] }, facts); app.render(); };
  const tokens = view.tokens ?? [""];
  const wanted = [["state", view.state], ["queue", view.queue], ["topic", view.topic], ["page", tokens.at(-1)]].filter(([, value]) => value);
  const page = app.loaded("jobs", `/jobs?max_items=${ROWS}${wanted.map(([key, value]) => `&${key}=${part(value)}`).join("")}`);
  const option = (value, text, chosen) => h("option", { value, selected: value === (chosen ?? "") }, text);
  const names = (queues.data ?? []).map((queue) => queue.queue);
  return [
    h("h1", null, "Jobs"),
    h("section", { "aria-labelledby": "queues" }, h("h2", { id: "queues" }, "Queues"), queues.data ? queueTable(app, queues.data, set) : pending(queues)),
    h("section", { "aria-labelledby": "jobs" }, h("h2", { id: "jobs" }, "Jobs"),
      h("div", { class: "tools", role: "search" },
        h("label", null, "State", h("select", { onchange: (event) => set({ state: event.target.value }) }, option("", "all", view.state), STATES.map((word) => option(word, word, view.state)))),
        h("label", null, "Queue", h("select", { onchange: (event) => set({ queue: event.target.value }) }, option("", "all", view.queue), names.map((name) => option(name, name, view.queue)))),
        h("label", null, "Topic, such as purge.**", h("input", { type: "search", onchange: (event) => set({ topic: event.target.value.trim() }) }))),
      page.data ? jobTable(app, page.data.items, wanted.length > 0) : pending(page),
      h("div", { class: "pager" }, tokens.length > 1 ? h("button", { type: "button", onclick: () => set({ tokens: tokens.slice(0, -1) }) }, "Previous") : null,
        page.data?.next_page ? h("button", { type: "button", onclick: () => set({ tokens: [...tokens, page.data.next_page] }) }, "Next") : null)),
    may(app, "submit") ? addition(app) : null,
  ];
}

function addition(app) {
  const add = async (event) => {
    event.preventDefault();
    const form = event.target;
    const { topic, key, payload } = form.elements;
    const job = { topic: topic.value.trim(), key: key.value };
    if (!await confirmed("ADD_JOB", { topic: job.topic })) return;
    await act(app, async () => {
      if (payload.value.trim()) {
        try { job.data = JSON.parse(payload.value); } catch { throw new Error("the payload is not JSON"); }
      }
      const [added] = await call("POST", "/jobs", { jobs: [job] });
      form.reset();
      return `added as ${added.job}`;
    });
  };
  return h("details", { class: "panel" }, h("summary", null, "Add a job"),
    h("form", { onsubmit: add },
      h("div", { class: "tools" },
        h("label", null, "Topic", h("input", { name: "topic", required: true, maxlength: 700, placeholder: "purge.cdn" })),
        h("label", null, "Key", h("input", { name: "key", maxlength: 255 }))),
      h("label", null, "Payload, as JSON", h("textarea", { name: "payload" })),
      h("div", { class: "buttons" }, h("button", { type: "submit", class: "main" }, "Add…"))));
}

function queueTable(app, queues, set) {
  const rows = queues.map((queue) => {
    const path = `/jobs/queues/${part(queue.queue)}`;
    const pause = queue.suspended
      ? actionButton(app, { verb: "admin", label: "Resume", kind: "small", action: async () => { await call("POST", `${path}/resume`); return `${queue.queue} goes on`; } })
      : actionButton(app, { verb: "admin", label: "Suspend", kind: "small", question: ["SUSPEND_JOBS", { queue: queue.queue }],
        action: async () => { await call("POST", `${path}/suspend`, {}); return `${queue.queue} is suspended`; } });
    const clear = actionButton(app, { verb: "admin", label: "Clear…", kind: "small danger", isDisabled: !queue.queued,
      question: ["CLEAR_JOBS", { jobs: count(queue.queued, "queued job"), queue: queue.queue }],
      action: async () => `done: ${count((await call("POST", `${path}/clear`)).dropped, "job")} dropped` });
    const kind = `${queue.kind}${queue.max_parallel < 0 ? "" : `, at most ${number(queue.max_parallel)}`}${queue.rate ? `, ${queue.rate}` : ""}`;
    const needsWorker = queue.due > 0 && queue.workers === 0;
    return { key: queue.queue, cells: [
      h("button", { type: "button", class: "text", onclick: () => set({ queue: queue.queue }) }, queue.queue), queue.suspended ? state("suspended") : kind,
      number(queue.queued), number(queue.active), queue.oldest_seconds === null ? "–" : duration(queue.oldest_seconds),
      needsWorker ? h("span", { class: "warn", title: "jobs are due and wait for a worker" }, "▲ none") : number(queue.workers),
      queue.given_up ? h("button", { type: "button", class: "text bad", onclick: () => set({ queue: queue.queue, state: "given-up" }) }, number(queue.given_up)) : "0", h("span", { class: "pair" }, pause, clear)] };
  });
  return table("Queues", [["Queue", ""], ["Order and limits", "wide"], ["Queued", "n"], ["Active", "n wide"], ["Oldest", "n wide"], ["Workers", "n"], ["Given up", "n"], ["Commands", "s"]], rows,
    "No jobs and no queues. Rules (jobs.on), mailboat jobs add and the Python API add jobs.");
}

const commands = (app, job) => ENDED.has(job.state)
  ? h("span", { class: "pair" },
    actionButton(app, { verb: "admin", label: "Retry", kind: "small", question: ["RETRY_JOBS", { jobs: `job ${job.job}` }],
      action: async () => `added as ${(await call("POST", "/jobs/commands/retry", { jobs: [job.job] }))[0].job}` }), removal(app, job))
  : h("span", { class: "pair" }, actionButton(app, { verb: "admin", label: "Stop", kind: "small danger", question: ["STOP_JOBS", { jobs: `job ${job.job}` }],
    action: async () => { const [stopped] = await call("POST", "/jobs/commands/stop", { jobs: [job.job] }); return stopped.stop_requested ? "the worker was asked to stop it" : `job ${stopped.job} is ${stopped.state}`; } }),
  job.state === "active" ? null : removal(app, job));

const removal = (app, job) => actionButton(app, { verb: "admin", label: "Remove", kind: "small danger", question: ["REMOVE_JOBS", { jobs: `job ${job.job}` }],
  action: async () => { await call("POST", "/jobs/commands/remove", { jobs: [job.job] }); return `job ${job.job} was removed`; } });

function jobTable(app, items, isFiltered) {
  const rows = items.map((job) => ({ key: job.job, cells: [
    state(job.state), h("a", { class: "mono", href: `#/jobs/${part(job.job)}` }, job.job), job.topic, job.queue, number(job.tries), time(job.due_at), job.reason || "–", commands(app, job)] }));
  return table("Jobs", [["State", "s"], ["Job", ""], ["Topic", "wide"], ["Queue", "wide"], ["Attempts", "n wide"], ["Due", "wide"], ["Why", "e"], ["Commands", "s wide"]], rows, isFiltered ? "No job matches." : "There are no jobs.");
}

export function job(app, id) {
  const path = `/jobs/${part(id)}`;
  const page = app.loaded(path, path);
  if (!page.data) return [h("h1", null, `Job ${id}`), h("section", null, pending(page))];
  const { view: known, key, data, worker, token, progress } = page.data;
  return [
    h("h1", null, `Job ${known.job}`, state(known.state)),
    known.reason ? h("section", { class: known.state === "given-up" || known.state === "error" ? "problem" : "attention" }, h("h2", null, ENDED.has(known.state) ? "Why it ended" : "Why it waits"), h("p", null, known.reason)) : null,
    h("section", null, h("h2", null, "Job"), h("dl", null, fact("Topic", known.topic), fact("Queue", known.queue), fact("Key", key || "–"), fact("Attempts", number(known.tries)), fact("Due", time(known.due_at)),
      fact("Worker", worker ?? "–"), fact("Fencing token", number(token)), progress ? fact("Progress", progress) : null), h("div", { class: "buttons" }, commands(app, known))),
    h("section", null, h("h2", null, "Payload"), data === null || data === "" ? muted("No payload.") : h("pre", { tabindex: 0 }, typeof data === "string" ? data : JSON.stringify(data, null, 2))),
  ];
}
