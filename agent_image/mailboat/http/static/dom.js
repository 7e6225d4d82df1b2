// Builds and updates the page. Text only ever becomes text nodes and attributes: nothing here parses HTML.

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
  if (node.nodeName === "TEXTAREA") return;
  morph(node, [...wanted.childNodes]);
}

export function notice(text) {
  const place = document.getElementById("notice");
  place.replaceChildren(h("p", null, text));
  clearTimeout(notice.timer);
  notice.timer = setTimeout(() => place.replaceChildren(), 8000);
}

// Ask before something changes. Resolves to true when the person confirms.
export function confirmed(title, text, action, isDangerous = true) {
  return new Promise((resolve) => {
    const close = () => dialog.close();
    const agree = () => { dialog.returnValue = "yes"; dialog.close("yes"); };
    const dialog = h("dialog", { "aria-labelledby": "dialog-title" },
      h("h2", { id: "dialog-title" }, title), h("p", null, text),
      h("div", { class: "buttons" }, h("button", { type: "button", onclick: close }, "Cancel"),
        h("button", { type: "button", class: isDangerous ? "danger" : "main", onclick: agree }, action)));
    dialog.addEventListener("close", () => { dialog.remove(); resolve(dialog.returnValue === "yes"); });
    document.body.append(dialog);
    dialog.showModal();
  });
}
