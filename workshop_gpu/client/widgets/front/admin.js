// The browser's side of wg.Admin(). Rows and buttons are made in Python; here they are drawn, a
// question is asked where a button has one, and a click becomes a message.

import { make } from "./dom.js";

function render({ model, el }) {
  const root = make("div", { className: "wg wg-admin", "data-lm-suppress-shortcuts": "true" });
  const refusal = make("p", { className: "wg-refusal", role: "note" });
  const result = make("p", { className: "wg-result", role: "status", hidden: true });
  const body = make("div", { className: "wg-sections" });
  root.append(refusal, result, body);
  el.append(root);
  let asking = null; // the button whose question is open: {do, what}
  let drawn = "";

  const same = (button) => asking && asking.do === button.do && asking.what === button.what;

  function send(button, value) {
    asking = null;
    result.hidden = false;
    result.className = "wg-result";
    result.textContent = "Sent …";
    model.send({ do: button.do, what: button.what, value });
    draw(true);
  }

  function control(input) {
    if (input.kind === "choice") {
      const select = make("select", { className: "wg-input" });
      for (const option of input.options) {
        select.append(make("option", { value: option, textContent: option, selected: option === input.value }));
      }
      return select;
    }
    if (input.kind === "number") return make("input", { className: "wg-input", type: "number", min: 0, value: input.value });
    return make("textarea", { className: "wg-input", rows: 2, value: input.value });
  }

  /** What a button asks before it does anything. */
  function question(button) {
    const field = button.input ? control(button.input) : null;
    const yes = make("button", { type: "submit", className: "wg-button wg-primary" }, button.label.replace(" …", ""));
    const no = make("button", { type: "button", className: "wg-button" }, "No, leave it");
    const form = make(
      "form",
      { className: "wg-ask", noValidate: true },
      button.ask ? make("p", {}, button.ask) : null,
      field ? make("label", {}, button.input.label, field) : null,
      make("div", { className: "wg-buttons" }, yes, no),
    );
    const close = () => {
      asking = null;
      draw(true);
    };
    no.addEventListener("click", close);
    form.addEventListener("keydown", (event) => {
      if (event.key === "Escape") close();
    });
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      send(button, field ? field.value : "");
    });
    queueMicrotask(() => (field ?? no).focus());
    return form;
  }

  function drawRow(row) {
    const buttons = row.buttons.map((button) => {
      const node = make("button", {
        type: "button",
        className: "wg-button",
        textContent: button.label,
        "aria-label": `${button.label.replace(" …", "")}: ${row.title}`,
        "aria-expanded": String(Boolean(same(button))),
      });
      node.addEventListener("click", () => {
        if (!button.ask && !button.input) return send(button, "");
        asking = same(button) ? null : { do: button.do, what: button.what };
        draw(true);
      });
      return node;
    });
    const open = row.buttons.find(same);
    return make(
      "li",
      { className: row.dim ? "wg-row wg-dim" : "wg-row" },
      make("span", { className: "wg-title" }, row.title),
      make("span", { className: "wg-words" }, row.words),
      make("span", { className: "wg-buttons" }, ...buttons),
      open ? question(open) : null,
    );
  }

  function draw(anew = false) {
    refusal.textContent = model.get("_refusal");
    refusal.hidden = !model.get("_refusal");
    const sections = model.get("_view").sections ?? [];
    const now = JSON.stringify(sections);
    // While somebody answers a question, what they write must not be drawn away.
    if (!anew && (asking || now === drawn)) return;
    const focused = [...body.querySelectorAll("button")].indexOf(document.activeElement);
    drawn = now;
    body.replaceChildren(
      ...sections
        .filter((section) => !section.hidden)
        .map((section) =>
          make(
            "section",
            { "aria-label": section.title },
            make("h3", {}, section.title),
            section.rows.length
              ? make("ul", {}, ...section.rows.map(drawRow))
              : make("p", { className: "wg-quiet" }, section.empty),
          ),
        ),
    );
    if (!asking && focused >= 0) body.querySelectorAll("button")[focused]?.focus();
  }

  function tell() {
    const { words, failed } = model.get("_result");
    result.hidden = !words;
    result.className = failed ? "wg-result wg-failed" : "wg-result wg-worked";
    result.textContent = words ?? "";
  }

  const redraw = () => draw();
  model.on("change:_view", redraw);
  model.on("change:_result", tell);
  draw(true);
  tell();
  return () => {
    model.off("change:_view", redraw);
    model.off("change:_result", tell);
  };
}

export default { render };
