// Size, number of pictures, seed, steps and guidance, within the limits of the chosen model.

import { button, field, icon, make } from "../dom.js";

const OF_THE_MODEL = ["steps", "guidance", "width", "height"];
const MOST_DRAWN = 2 ** 31;

function slider(title, most) {
  const range = make("input", { type: "range", className: "wg-range", title, ...most });
  const value = make("output", { className: "wg-value" });
  range.addEventListener("input", () => (value.value = range.value));
  return { range, value, shown: make("div", { className: "wg-row" }, range, value) };
}

export function numberFields(widget, chosen) {
  const size = make("select", { className: "wg-input" });
  const count = make("input", { className: "wg-input", type: "number", min: 1, step: 1 });
  const steps = slider("More steps take longer and draw finer", { min: 1, step: 1 });
  const guidance = slider("How closely the picture follows the prompt", { min: 0, step: 0.5 });
  const defaults = button("Back to the model's defaults", { className: "wg-link", hidden: true });
  const seed = seedField(widget);
  const root = make(
    "div",
    { className: "wg-options" },
    field("Size", size),
    field("Pictures", count),
    field("Steps", steps.range, steps.shown),
    field("Guidance", guidance.range, guidance.shown),
    seed.root,
  );

  function show() {
    const now = chosen();
    if (!now) return;
    const own = (name) => widget.get(name) ?? now.defaults[name];
    steps.range.max = Math.max(now.limits.max_steps ?? 150, own("steps"));
    steps.range.value = steps.value.value = own("steps");
    guidance.range.max = Math.max(15, Math.ceil(2 * now.defaults.guidance), own("guidance"));
    guidance.range.value = guidance.value.value = own("guidance");
    count.max = now.limits.max_images ?? 1;
    if (document.activeElement !== count) count.value = widget.get("count");
    showSizes(now, own("width"), own("height"));
    defaults.hidden = OF_THE_MODEL.every((name) => widget.get(name) === null);
  }

  function showSizes(now, width, height) {
    const sizes = [...now.sizes];
    const asStart = widget.get("_start").data && !widget.get("width") && !widget.get("height");
    if (asStart) sizes.unshift(["As the start image", 0, 0]);
    else if (!sizes.some(([, w, h]) => w === width && h === height)) sizes.push(["Own", width, height]);
    size.replaceChildren(
      ...sizes.map(([name, w, h]) =>
        make("option", {
          value: `${w}x${h}`,
          textContent: w ? `${name} ${w} × ${h}` : name,
          selected: asStart ? !w : w === width && h === height,
        }),
      ),
    );
  }

  steps.range.addEventListener("change", () => widget.set({ steps: Number(steps.range.value) }));
  guidance.range.addEventListener("change", () =>
    widget.set({ guidance: Number(guidance.range.value) }),
  );
  size.addEventListener("change", () => {
    const [width, height] = size.value.split("x").map(Number);
    widget.set({ width: width || null, height: height || null });
  });
  /** Takes over what was typed, also where nobody has left the field yet. */
  function readCount() {
    const most = Number(count.max);
    count.value = Math.min(most, Math.max(1, Math.round(Number(count.value)) || 1));
    if (Number(count.value) !== widget.get("count")) widget.set({ count: Number(count.value) });
  }
  count.addEventListener("change", readCount);
  defaults.addEventListener("click", () =>
    widget.set({ steps: null, guidance: null, width: null, height: null }),
  );
  widget.on(["_models", "model", "count", "_start", ...OF_THE_MODEL], show);
  const read = () => {
    readCount();
    return seed.read();
  };
  return { roots: [root, defaults], read };
}

/** Unlocked, a seed is drawn for each click; the dice and what is typed lock one. */
function seedField(widget) {
  const input = make("input", {
    className: "wg-input",
    type: "text",
    inputMode: "numeric",
    maxLength: 16,
    placeholder: "random",
    autocomplete: "off",
  });
  const dice = button("", { title: "Draw a seed and keep it", "aria-label": "Draw a seed" });
  dice.append(icon("dice"));
  const lock = button("", { "aria-label": "Keep the seed" });
  const made = () => widget.get("_shown")[0]?.made.seed;

  function show() {
    const locked = widget.get("seed") !== null;
    if (document.activeElement !== input) input.value = locked ? widget.get("seed") : "";
    lock.setAttribute("aria-pressed", String(locked));
    lock.replaceChildren(icon(locked ? "locked" : "unlocked"));
    lock.title = locked
      ? "The seed stays as it is. Press to draw a new one each time."
      : "A new seed is drawn each time. Press to keep this picture's.";
    lock.disabled = !locked && made() === undefined;
  }

  /** Takes over what was typed; what is no number counts as none. */
  function read() {
    const text = input.value.trim();
    const seed = /^\d+$/.test(text) && Number.isSafeInteger(Number(text)) ? Number(text) : null;
    if (seed !== widget.get("seed")) widget.set({ seed });
    return true;
  }

  const put = (seed) => {
    input.value = seed ?? "";
    read();
    show();
  };
  input.addEventListener("change", () => put(/^\d+$/.test(input.value.trim()) ? input.value : null));
  input.addEventListener("input", () => read());
  dice.addEventListener("click", () => put(Math.floor(Math.random() * MOST_DRAWN)));
  lock.addEventListener("click", () => put(widget.get("seed") === null ? made() : null));
  widget.on(["seed", "_shown"], show);
  const shown = make("div", { className: "wg-row" }, input, dice, lock);
  const root = field("Seed", input, shown);
  root.classList.add("wg-whole-row");
  return { root, read };
}
