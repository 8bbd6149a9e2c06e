// What can be done with the chosen picture.

import { button, copyText, make } from "../dom.js";

const COPIED_MS = 1500;

/** A picture's caption: how it was made, in the order of what people ask for first. */
function howMade(made) {
  const size = `${made.width} × ${made.height}`;
  const loras = Object.entries(made.loras ?? {}).map(([lora, scale]) => `${lora} ${scale}`);
  const machine = [made.placement, made.compiled ? "compiled" : "", made.went_on];
  const parts = [made.model, `seed ${made.seed}`, `${made.steps} steps`, size, ...loras, ...machine];
  return parts.filter(Boolean).join(" · ");
}

export function actions(widget, wishes, stage, chosen) {
  const caption = make("p", { className: "wg-caption" });
  const tool = (text, title, act) => {
    const made = button(text, { className: "wg-link", title });
    made.addEventListener("click", () => act(stage.chosen(), made));
    return made;
  };
  const again = tool("Again", "Take this picture's settings and make it again", ({ key }) =>
    wishes.wish({ wish: "again", key }),
  );
  const vary = tool("Vary the seed", "The same settings with another seed", ({ key }) =>
    wishes.wish({ wish: "vary", key }),
  );
  const begin = tool("Use as start image", "Begin the next picture with this one", ({ key }) =>
    widget.send({ wish: "begin", key }),
  );
  const save = tool("Save as PNG", "The file says how the picture was made", ({ url, made }) =>
    make("a", { href: url, download: `${made.model}-${made.seed}.png` }).click(),
  );
  const copy = tool("Copy as code", "The Python line that makes this picture again", copyCode);
  const tools = make("div", { className: "wg-tools" }, again, vary, begin, save, copy);

  async function copyCode({ made }, self) {
    await copyText(made.code);
    self.textContent = "Copied";
    setTimeout(() => (self.textContent = "Copy as code"), COPIED_MS);
  }

  stage.listen(() => {
    const made = stage.chosen()?.made;
    tools.hidden = !made;
    caption.textContent = made?.model ? howMade(made) : "";
    caption.title = made?.prompt ?? "";
  });
  widget.on(["_models", "model"], () => (begin.hidden = !chosen()?.accepts.includes("image")));
  wishes.listen(() => (again.disabled = vary.disabled = wishes.busy()));
  return { roots: [caption, tools] };
}
