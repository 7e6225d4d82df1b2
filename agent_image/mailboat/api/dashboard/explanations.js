// Why something failed, with the meaning of the error and the next step as `mailboat explain` prints them.
import { coded, h, muted } from "./dom.js";

const RETRY_MS = 3_000;
let explanations = null;

// A cause; `isKnown` leaves the explanation out, which stands above it already.
export function cause(app, error, shownPath = null, isKnown = false) {
  load(app);
  const known = Object.hasOwn(explanations, error.code) ? explanations[error.code] : null; // a code is a stranger's text
  return [
    h("p", null, h("b", null, error.code), ` ${error.message}`), error.path && error.path !== shownPath ? h("p", { class: "mono" }, error.path) : null,
    known && !isKnown ? [muted("Meaning and next step"), known.text.split(/\n\n+/).map((text) => h("p", null, coded(text)))] : null,
    error.trace ? h("details", null, h("summary", null, "Trace"), h("pre", { tabindex: 0 }, error.trace)) : null,
    error.truncated ? muted("Some of these texts were shortened.") : null,
  ];
}

async function load(app) {
  if (explanations) return;
  explanations = {};
  const found = await fetch("/dashboard/explanations.json").then((answer) => (answer.ok ? answer.json() : null)).catch(() => null);
  if (found) explanations = found;
  else setTimeout(() => { explanations = null; app.render(); }, RETRY_MS);
  app.render();
}
