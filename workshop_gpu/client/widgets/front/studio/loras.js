// The LoRAs of the chosen model: a chip puts one on, a slider says how strongly it counts.

import { make, unique } from "../dom.js";

const MOST = 2;

export function loraPicker(widget, chosen) {
  const name = make("div", { className: "wg-label", id: unique("loras") }, "LoRAs");
  const chips = make("div", { className: "wg-lora-chips" });
  const sliders = make("div", { className: "wg-lora-sliders" });
  const root = make(
    "div",
    { className: "wg-field wg-loras", role: "group", "aria-labelledby": name.id, hidden: true },
    name,
    chips,
    sliders,
  );
  const worn = () => widget.get("loras");
  let drawn = "";

  function put(id, scale) {
    const next = { ...worn() };
    if (scale === null) delete next[id];
    else next[id] = scale;
    widget.set({ loras: next });
  }

  function chip({ id, title, description, scale }) {
    const node = make("button", {
      type: "button",
      className: "wg-chip",
      textContent: title,
      title: description || id,
    });
    node.dataset.lora = id;
    node.addEventListener("click", () => put(id, id in worn() ? null : scale));
    return node;
  }

  function slider({ id, title }) {
    const range = make("input", {
      type: "range",
      className: "wg-range",
      min: -MOST,
      max: MOST,
      step: 0.05,
      title: "How strongly it counts: 0 not at all, 1 as it was made, below 0 the contrary",
    });
    range.setAttribute("aria-label", `Scale of ${title}`);
    const value = make("output", { className: "wg-value" });
    range.addEventListener("input", () => (value.value = Number(range.value).toFixed(2)));
    range.addEventListener("change", () => put(id, Number(range.value)));
    const row = make("div", { className: "wg-row" }, make("span", {}, title), range, value);
    row.dataset.lora = id;
    return row;
  }

  /** Only where other LoRAs are offered: what is under the keyboard's focus stays there. */
  function draw(offered) {
    const now = JSON.stringify(offered);
    if (now === drawn) return;
    drawn = now;
    chips.replaceChildren(...offered.map(chip));
    sliders.replaceChildren(...offered.map(slider));
  }

  widget.on(["_models", "model", "loras"], () => {
    const offered = chosen()?.loras ?? [];
    root.hidden = !offered.length;
    draw(offered);
    for (const node of chips.children)
      node.setAttribute("aria-pressed", String(node.dataset.lora in worn()));
    for (const row of sliders.children) {
      const scale = worn()[row.dataset.lora];
      row.hidden = scale === undefined;
      if (row.hidden) continue;
      row.querySelector("input").value = scale;
      row.querySelector("output").value = Number(scale).toFixed(2);
    }
  });
  return { root };
}
