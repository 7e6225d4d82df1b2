// The form that asks for a token.
import { h } from "./dom.js";

export function login(app, why) {
  const submit = (event) => { event.preventDefault(); app.login(event.target.elements.token.value.trim()); };
  return [h("section", { class: "login" }, h("h1", null, "Log in"), why ? h("p", { class: "bad", role: "alert" }, why) : null,
    h("form", { onsubmit: submit }, h("label", null, "Token of this agent (http.tokens)", h("input", { type: "password", name: "token", autocomplete: "off", required: true })),
      h("p", { class: "muted" }, "The token stays in this tab and is forgotten when the tab is closed."), h("button", { type: "submit", class: "main" }, "Log in")))];
}
