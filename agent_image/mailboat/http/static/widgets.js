// Small parts of views: states, numbers, times, plots, pages of tables.
import { h } from "./dom.js";
import { look } from "./fleet.js";

export const number = (value) => (value === null || value === undefined ? "–" : value.toLocaleString("en"));

export function state(text) {
  const [colour, glyph] = look(text);
  return h("span", { class: `state ${colour}` }, h("span", { "aria-hidden": "true" }, glyph), text);
}

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let step = 0;
  while (value >= 1000 && step < units.length - 1) { value /= 1000; step += 1; }
  return `${step ? value.toPrecision(3) : value} ${units[step]}`;
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return seconds < 129_600 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86_400)} d`;
}

export function time(text) {
  if (!text) return "–";
  const at = new Date(text);
  const shown = at.toLocaleString("en-GB", { day: "2-digit", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit" });
  return h("time", { datetime: text, class: "w" }, shown);
}

export const subscriberLink = (name) => h("a", { href: `#/subscribers/${encodeURIComponent(name)}` }, name);

export function table(caption, columns, rows, empty) {
  if (!rows.length) return h("p", { class: "muted" }, empty);
  const head = columns.map(([title, kind]) => h("th", { scope: "col", class: kind }, title));
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `${caption}: table` },
    h("table", null, h("caption", null, caption), h("thead", null, h("tr", null, head)),
      h("tbody", null, rows.map(({ key, cells }) => h("tr", { "data-key": key },
        cells.map((cell, index) => h("td", { class: columns[index][1] }, cell)))))));
}

export function pager(page, pages, go) {
  if (pages < 2) return null;
  return h("div", { class: "pager" },
    h("button", { type: "button", disabled: page === 0, onclick: () => go(page - 1) }, "Previous"),
    h("span", null, `Page ${page + 1} of ${pages}`),
    h("button", { type: "button", disabled: page >= pages - 1, onclick: () => go(page + 1) }, "Next"));
}

// A plot of one figure over time. A screen reader hears the sentence that sums it up.
export function plot(title, samples, figure, unit) {
  const values = samples.map((one) => one[figure]);
  const high = Math.max(...values, 0);
  const now = values.at(-1) ?? 0;
  const seconds = samples.length > 1 ? (samples.at(-1).at - samples[0].at) / 1000 : 0;
  const shown = (value) => `${value.toLocaleString("en", { maximumFractionDigits: value < 10 ? 1 : 0 })}${unit}`;
  const points = samples.map((one, index) =>
    `${samples.length > 1 ? (600 * index) / (samples.length - 1) : 0},${100 - (high ? (96 * values[index]) / high : 0)}`);
  const summary = `${title}: now ${shown(now)}, highest ${shown(high)} in the last ${duration(seconds)}`;
  return h("figure", null,
    h("figcaption", null, h("span", null, title, " ", h("b", null, shown(now))), h("span", null, `highest ${shown(high)}, last ${duration(seconds)}`)),
    h("svg", { class: "plot", viewBox: "0 0 600 102", preserveAspectRatio: "none", role: "img", "aria-label": summary },
      h("line", { class: "axis", x1: 0, x2: 600, y1: 101, y2: 101 }), h("line", { class: "axis", x1: 0, x2: 600, y1: 4, y2: 4 }),
      h("polyline", { class: "line", points: points.join(" ") })));
}
