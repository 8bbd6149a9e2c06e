// The browser's side of wg.Studio(): its parts, where they stand, and its keys.

import { button, make } from "../dom.js";
import { watching } from "../watching.js";
import { actions } from "./actions.js";
import { history } from "./history.js";
import { loraPicker } from "./loras.js";
import { modelPicker } from "./models.js";
import { numberFields } from "./numbers.js";
import { pictures } from "./pictures.js";
import { promptFields } from "./prompts.js";
import { startImage } from "./start.js";
import { statusLine } from "./status.js";
import { wishing } from "./wishes.js";

const OPTIONS = [
  ...["model", "prompt", "negative_prompt", "seed", "count"],
  ...["steps", "guidance", "width", "height", "loras"],
];

function render({ model, el }) {
  const widget = watching(model);
  const models = modelPicker(widget);
  const prompts = promptFields(widget);
  const start = startImage(widget, models.chosen);
  const loras = loraPicker(widget, models.chosen);
  const numbers = numberFields(widget, models.chosen);
  const wishes = wishing(widget, () => prompts.read() && numbers.read());
  // A wish may overtake traits that changed just before it: so it brings them along.
  const generate = () =>
    wishes.wish(() => {
      const options = Object.fromEntries(OPTIONS.map((name) => [name, widget.get(name)]));
      return { wish: "generate", options };
    });
  const status = statusLine(widget, wishes, models.standing);
  const stage = pictures(widget, (text) => {
    prompts.prompt.value = text;
    generate();
  });
  const tools = actions(widget, wishes, stage, models.chosen);
  const past = history(widget);

  const go = make("button", {
    type: "submit",
    className: "wg-button wg-primary",
    textContent: "Generate",
    title: "Ctrl+Enter",
  });
  const stop = button("Cancel", { title: "Escape" });
  stop.addEventListener("click", wishes.cancel);
  const keys = make("kbd", { className: "wg-hint" }, "Ctrl+Enter");
  const form = make(
    "form",
    { className: "wg-form", noValidate: true },
    models.root,
    ...prompts.roots,
    start.root,
    loras.root,
    ...numbers.roots,
    make("div", { className: "wg-actions" }, go, stop, keys),
    ...status.roots,
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    generate();
  });
  const picture = make(
    "section",
    { className: "wg-stage", "aria-label": "Picture" },
    stage.root,
    ...tools.roots,
  );
  const banner = make("p", { className: "wg-banner", role: "status" });
  widget.on(["_banner"], () => {
    const text = widget.get("_banner");
    banner.hidden = !text;
    banner.replaceChildren(make("strong", {}, "The instructor: "), text);
  });
  const root = make(
    "div",
    { className: "wg wg-studio" },
    banner,
    make("div", { className: "wg-columns" }, form, picture),
    past.root,
  );
  root.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      event.stopPropagation();
      generate();
    } else if (event.key === "Escape" && wishes.busy()) {
      event.stopPropagation();
      wishes.cancel();
    }
  });
  wishes.listen(() => {
    go.disabled = wishes.busy();
    stop.disabled = !wishes.busy() || wishes.pending() || !widget.get("_job").id;
    root.classList.toggle("wg-busy", wishes.busy());
  });
  el.append(root);
  return widget.end;
}

export default { render };
