// Builds and updates the page, and the small parts of its views: states, numbers, times, bars, plots, tables.
// Text only ever becomes text nodes and attributes: nothing here parses HTML.
import { look } from "./fleet.js";

const SVG = "http://www.w3.org/2000/svg";
const SHAPES = new Set(["svg", "line", "polyline", "polygon", "rect"]);

export function h(tag, properties, ...children) {
  const node = SHAPES.has(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node[name] = value;
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  append(node, children);
  return node;
}

function append(node, children) {
  for (const child of children) {
    if (Array.isArray(child)) append(node, child);
    else if (child instanceof Node) node.append(child);
    else if (child !== undefined && child !== null && child !== false) node.append(String(child));
  }
}

const HANDLERS = ["onclick", "oninput", "onchange", "onsubmit", "ontoggle"];

// Make `target` look like `wanted`, keeping nodes that stay: focus, selection and scroll positions survive.
export function morph(target, ...wanted) {
  const made = wanted.flat(Infinity).filter((part) => part !== null && part !== undefined && part !== false)
    .map((part) => (part instanceof Node ? part : document.createTextNode(String(part))));
  const keyed = new Map();
  for (const child of target.children) if (child.dataset.key) keyed.set(child.dataset.key, child);
  let place = target.firstChild;
  for (const next of made) {
    const key = next.dataset?.key;
    let current = key ? keyed.get(key) : place;
    if (!key && current?.dataset?.key) current = null;
    if (current && current.nodeName === next.nodeName) {
      if (current !== place) target.insertBefore(current, place);
      else place = place.nextSibling;
      update(current, next);
    } else {
      target.insertBefore(next, place);
    }
  }
  while (place) {
    const following = place.nextSibling;
    place.remove();
    place = following;
  }
}

function update(node, wanted) {
  if (node.nodeType === Node.TEXT_NODE) {
    if (node.data !== wanted.data) node.data = wanted.data;
    return;
  }
  for (const { name } of [...node.attributes]) {
    if (!wanted.hasAttribute(name) && !(name === "open" && node.nodeName === "DETAILS")) node.removeAttribute(name);
  }
  for (const { name, value } of wanted.attributes) if (node.getAttribute(name) !== value) node.setAttribute(name, value);
  for (const name of HANDLERS) node[name] = wanted[name];
  if (node.nodeName === "OPTION" && wanted.hasAttribute("selected")) node.selected = true; // the attribute is ignored once a person has chosen
  if (node.nodeName === "TEXTAREA") return;
  morph(node, [...wanted.childNodes]);
}

// What an action did. It stays until it is dismissed or replaced, so slow readers have the time that they need.
export function notice(text) {
  const place = document.getElementById("notice");
  const dismiss = () => { clearNotice(); document.getElementById("content").focus(); }; // the button is gone, the focus must not be
  const button = h("button", { type: "button", class: "small", onclick: dismiss }, "Dismiss");
  place.replaceChildren(h("p", null, text), button);
}

export function clearNotice() {
  document.getElementById("notice").replaceChildren();
}

// ---- parts of views

const whole = new Intl.NumberFormat("en"); // one for all: toLocaleString() looks its locale up with every call
export const number = (value) => (value === null || value === undefined ? "–" : whole.format(value));
export const count = (value, noun) => `${number(value)} ${value === 1 ? noun : noun.endsWith("try") ? `${noun.slice(0, -1)}ies` : `${noun}s`}`;

export function state(text) {
  const [colour, glyph] = look(text);
  return h("span", { class: `state ${colour}` }, h("span", { "aria-hidden": "true" }, glyph), text);
}

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let step = 0;
  while (value >= 999.5 && step < units.length - 1) { value /= 1000; step += 1; } // 999.5 would be 1.00e+3
  return `${!step ? value : value < 100 ? value.toPrecision(3) : Math.round(value)} ${units[step]}`;
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return seconds < 129_600 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86_400)} d`;
}

export const rate = (value) => (value ? `${value.toLocaleString("en", { maximumFractionDigits: value < 10 ? 1 : 0 })}/s` : "–");
const clock = (at, parts) => new Date(at).toLocaleTimeString("en-GB", parts);

export function time(text) {
  if (!text) return "–";
  const at = new Date(text);
  const shown = at.toLocaleString("en-GB", { day: "2-digit", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit" });
  return h("time", { datetime: text, class: "w", title: at.toISOString() }, shown);
}

export const subscriberLink = (name) => h("a", { href: `#/subscribers/${encodeURIComponent(name)}` }, name);
export const packageLink = (publisher, id, text) =>
  h("a", { class: "mono", href: `#/packages/${encodeURIComponent(publisher)}/${encodeURIComponent(id)}` }, text);
// A package, as a link where its way through the fleet is served.
export const packageName = (app, publisher, id, text) =>
  (id && app.fleet.scope === "agent" ? packageLink(publisher, id, text) : h("span", { class: "mono" }, text));
export const fact = (name, value) => [h("dt", null, name), h("dd", null, value)];
export const coded = (text) => text.split("`").map((piece, index) => (index % 2 ? h("code", null, piece) : piece)); // of our own texts
export const muted = (text) => h("p", { class: "muted" }, text);

// What stands in a section whose document is not there yet, or can't be read.
export const pending = (page) => (page.problem ? h("p", { class: "bad", role: "alert" }, `not available: ${page.problem}`) : muted("Loading…"));

const direction = (key) => ({ attention: "other", name: "ascending" })[key] ?? "descending";

// A table. A column is [title, classes, sort key]; `sorting` is {by, set} where columns can be sorted.
export function table(caption, columns, rows, empty, sorting) {
  if (!rows.length) return muted(empty);
  const head = columns.map(([title, kind, key]) => h("th", { scope: "col", role: "columnheader", class: kind, "aria-sort": sorting && key === sorting.by ? direction(key) : null },
    sorting && key ? h("button", { type: "button", class: "sort", onclick: () => sorting.set(key) }, title, h("span", { "aria-hidden": "true" }, key === sorting.by ? " ▾" : "")) : title));
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `${caption}: table` },
    // with roles of their own: the cards of a narrow page would not be a table to a screen reader otherwise
    h("table", { role: "table" }, h("caption", null, caption), h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, head)),
      h("tbody", { role: "rowgroup" }, rows.map(({ key, cells }) => h("tr", { role: "row", "data-key": key },
        cells.map((cell, index) => dataCell(cell, columns[index])))))));
}

// A cell; on a phone it carries its column's title, and is left out where it says nothing.
function dataCell(content, [title, kind]) {
  const cell = h("td", { role: "cell", class: kind, "data-label": title }, content);
  if (["", "–", "0"].includes(cell.textContent)) cell.classList.add("none");
  return cell;
}

export function pager(page, pages, go) {
  if (pages < 2) return null;
  return h("div", { class: "pager" },
    h("button", { type: "button", disabled: page === 0, onclick: () => go(page - 1) }, "Previous"),
    h("span", null, `Page ${page + 1} of ${pages}`),
    h("button", { type: "button", disabled: page >= pages - 1, onclick: () => go(page + 1) }, "Next"));
}

// A bar of shares: [[colour class, count], …] of a total. The numbers are next to it, so it is hidden from readers.
export function bar(shares, total) {
  let left = 0;
  const parts = total ? shares.filter(([, share]) => share).map(([colour, share]) => {
    const width = (100 * share) / total;
    const part = h("rect", { class: colour, x: left, y: 0, width, height: 8 });
    left += width;
    return part;
  }) : [];
  return h("svg", { class: "bar", viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" }, parts);
}

// A plot of one figure over time. A screen reader reads the sentence that sums it up.
export function plot(title, samples, figure, unit) {
  const known = samples.filter((sample) => sample[figure] !== null);
  const high = known.reduce((most, sample) => Math.max(most, sample[figure]), 0);
  const shown = (value) => `${value.toLocaleString("en", { maximumFractionDigits: value < 10 ? 1 : 0 })}${value === 1 && unit === " packages" ? " package" : unit}`;
  const now = known.length ? shown(known.at(-1)[figure]) : "–";
  if (known.length < 2) return h("figure", null, h("figcaption", null, h("span", null, title, " ", h("b", null, now))), muted("Recording has begun; the plot appears with the second sample."));
  const start = known[0].at;
  const span = Math.max(1, known.at(-1).at - start);
  const lines = [[]];
  for (const sample of samples) {
    if (sample[figure] === null) { if (lines.at(-1).length) lines.push([]); continue; }
    lines.at(-1).push(`${((600 * (sample.at - start)) / span).toFixed(1)},${(100 - (high ? (94 * sample[figure]) / high : 0)).toFixed(1)}`);
  }
  const since = clock(start, { hour: "2-digit", minute: "2-digit" });
  return h("figure", null,
    h("figcaption", null, h("span", null, title, " ", h("b", null, now)), h("span", null, `highest ${shown(high)}`)),
    h("svg", { class: "plot", viewBox: "0 0 600 102", preserveAspectRatio: "none", role: "img", "aria-label": `${title}: now ${now}, highest ${shown(high)} since ${since}` },
      [6, 53].map((y) => h("line", { class: "axis", x1: 0, x2: 600, y1: y, y2: y })), h("line", { class: "axis base", x1: 0, x2: 600, y1: 101, y2: 101 }),
      lines.filter((line) => line.length).map((line) => [
        h("polygon", { class: "area", points: `${line[0].split(",")[0]},101 ${line.join(" ")} ${line.at(-1).split(",")[0]},101` }),
        h("polyline", { class: "line", points: line.join(" ") })])),
    h("div", { class: "scale", "aria-hidden": "true" }, h("span", null, clock(start)), h("span", null, duration(span / 1000)), h("span", null, clock(known.at(-1).at))));
}
