// What a view may change: buttons that the token allows, questions before, and the outcome announced.
import { CONFIRMATIONS } from "./confirmations.js"; // made of the command line's texts by the server
import { coded, count, h, notice } from "./dom.js";

export const may = (app, verb) => app.caller.verbs.includes(verb) || app.caller.verbs.includes("admin");

const failure = (error) => `failed: ${error.message}${error.next ? ` (${error.next})` : ""}`;

// Run an action that returns a sentence; the sentence, or why the action failed, is announced.
export async function act(app, action) {
  try {
    notice(await action());
  } catch (error) {
    notice(failure(error));
  }
  app.refresh();
}

const filled = (text, facts) => text.replace(/\{(\w+)\}/g, (_, name) => {
  if (!(name in facts)) throw new Error(`the question lacks ${name}`);
  return facts[name];
});

// Ask before something changes; with `typed`, the person types that first. Resolves to true when the person confirms.
export function confirmed(name, facts, typed = undefined) {
  const asked = CONFIRMATIONS[name];
  return new Promise((resolve) => {
    const close = () => dialog.close();
    const agree = () => { dialog.returnValue = "yes"; dialog.close("yes"); };
    const button = h("button", { type: "button", class: asked.is_dangerous ? "danger" : "main", disabled: typed !== undefined, onclick: agree }, asked.button);
    const compare = (event) => { button.disabled = event.target.value !== typed; };
    const dialog = h("dialog", { "aria-labelledby": "dialog-title" },
      h("h2", { id: "dialog-title" }, filled(asked.title, facts)), h("p", null, coded(asked.consequences).map((piece) => (piece instanceof Node ? piece : filled(piece, facts)))),
      typed === undefined ? null : h("label", null, `Type ${typed} to confirm`, h("input", { type: "text", autocomplete: "off", spellcheck: "false", oninput: compare })),
      h("div", { class: "buttons" }, h("button", { type: "button", onclick: close }, "Cancel"), button));
    dialog.addEventListener("close", () => { dialog.remove(); resolve(dialog.returnValue === "yes"); });
    document.body.append(dialog);
    dialog.showModal();
  });
}

// A button for an action. `question` returns the arguments of `confirmed`, or is that; without one the action runs at once.
export function actionButton(app, { verb, label, question, action, isDisabled, hint, kind }) {
  const isAllowed = may(app, verb);
  const go = async () => {
    const asked = typeof question === "function" ? question() : question; // what was chosen a moment ago is not drawn yet
    if (!asked || await confirmed(...asked)) await act(app, action);
  };
  return h("button", { type: "button", class: kind, disabled: !isAllowed || isDisabled, onclick: go,
    title: isAllowed ? hint : `your token lacks the verb ${verb}` }, label);
}

// The outcome of commands to subscribers, as one sentence.
export function outcome(sent) {
  const commands = Array.isArray(sent) ? sent : [sent];
  const refused = commands.find((command) => command.state === "refused");
  if (refused) return `${refused.subscriber} refused the command: ${refused.message ?? "no reason given"}`;
  if (commands.some((command) => command.state !== "done")) return "command sent; the subscriber has not answered yet";
  const [first] = commands;
  return commands.length === 1 && first.removed !== null && first.verb === "clear" ? `done: ${count(first.removed, "package")} dropped`
    : first.message && first.verb !== "clear" ? `${first.subscriber}: ${first.message}` : "done: command carried out";
}
