// The browser's side of grid.compare(): one slider, and every pair of pictures follows it.

import { make } from "./dom.js";

function render({ model, el }) {
  const [left, right] = model.get("_names");
  const slider = make("input", {
    type: "range",
    min: "0",
    max: "100",
    step: "0.5",
    "aria-label": `Where ${left} ends and ${right} begins`,
  });
  const head = make(
    "div",
    { className: "wg-head" },
    make("span", { className: "wg-name" }, left),
    slider,
    make("span", { className: "wg-name wg-right" }, right),
  );
  const pairs = make("div", { className: "wg-pairs" });
  const looks = { className: "wg-compare", "data-lm-suppress-shortcuts": "true" };
  const root = make("div", looks, head, pairs);

  function show() {
    const position = model.get("position");
    slider.value = String(position);
    root.style.setProperty("--wg-at", `${position}%`);
  }

  function move(position) {
    model.set("position", Math.min(100, Math.max(0, position)));
    show();
  }

  function follow(event, frame) {
    const box = frame.getBoundingClientRect();
    move(((event.clientX - box.left) / box.width) * 100);
  }

  for (const pair of model.get("_pairs")) {
    const frame = make(
      "div",
      { className: "wg-frame" },
      make("img", { src: pair.right, alt: `${right}: ${pair.label}`, draggable: false }),
      make("img", { src: pair.left, alt: `${left}: ${pair.label}`, draggable: false, className: "wg-left" }),
      make("div", { className: "wg-line", "aria-hidden": "true" }),
    );
    frame.addEventListener("pointerdown", (event) => {
      frame.setPointerCapture(event.pointerId);
      follow(event, frame);
    });
    frame.addEventListener("pointermove", (event) => {
      if (event.buttons) follow(event, frame);
    });
    frame.addEventListener("pointerup", () => model.save_changes());
    const caption = pair.label ? [make("figcaption", {}, pair.label)] : [];
    pairs.append(make("figure", {}, frame, ...caption));
  }

  slider.addEventListener("input", () => move(Number(slider.value)));
  slider.addEventListener("change", () => model.save_changes());
  model.on("change:position", show);
  show();
  el.append(root);
  return () => model.off("change:position", show);
}

export default { render };
