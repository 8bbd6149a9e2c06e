// The start image: dropped, pasted, chosen as a file, or taken from a picture that was made; how
// much of it is drawn anew; and where (see mask.js).

import { button, field, make } from "../dom.js";
import { maskCanvas } from "./mask.js";

const LONGEST_PX = 2048;
const MOST_CHARACTERS = 8e6;
const DEFAULT_STRENGTH = 0.7;

/** The picture in a file as a data: URL, upright and no larger than needed; null for anything else. */
async function asPicture(file) {
  let bitmap;
  try {
    bitmap = await createImageBitmap(file);
  } catch {
    return null;
  }
  const scale = Math.min(1, LONGEST_PX / Math.max(bitmap.width, bitmap.height));
  const canvas = make("canvas", {
    width: Math.max(1, Math.round(bitmap.width * scale)),
    height: Math.max(1, Math.round(bitmap.height * scale)),
  });
  const context = canvas.getContext("2d");
  context.fillStyle = "white"; // where it is transparent
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  bitmap.close();
  const png = canvas.toDataURL("image/png");
  return png.length <= MOST_CHARACTERS ? png : canvas.toDataURL("image/jpeg", 0.92);
}

export function startImage(widget, chosen) {
  const file = make("input", {
    type: "file",
    accept: "image/*",
    hidden: true,
    "aria-label": "File of the start image",
  });
  const choose = button("Choose a file", { className: "wg-link" });
  const well = make(
    "div",
    { className: "wg-well" },
    make("p", {}, "Drop or paste a picture here, or "),
    choose,
    file,
  );
  const problem = make("p", { className: "wg-warning", role: "alert", hidden: true });
  const mask = maskCanvas(widget);
  const strength = make("input", { type: "range", className: "wg-range", min: 0.05, max: 1, step: 0.05 });
  const value = make("output", { className: "wg-value" });
  const remove = button("Remove", { className: "wg-link" });
  const present = make(
    "div",
    { className: "wg-start", hidden: true },
    mask.frame,
    make("div", { className: "wg-tools" }, mask.toggle, remove),
    mask.controls,
    field("Strength", strength, make("div", { className: "wg-row" }, strength, value)),
  );
  strength.title = "How much is drawn anew: a little changes details, 1 all of it";
  const fold = make(
    "details",
    { className: "wg-fold" },
    make("summary", {}, "Begin with a picture"),
    well,
    problem,
    present,
  );

  async function take(one) {
    if (!one) return;
    const data = await asPicture(one);
    problem.hidden = Boolean(data);
    problem.textContent = data ? "" : `"${one.name}" is not a picture. Take a PNG, JPEG or WebP file.`;
    if (data) widget.send({ wish: "begin", data });
  }

  choose.addEventListener("click", () => file.click());
  file.addEventListener("change", () => {
    take(file.files[0]);
    file.value = "";
  });
  fold.addEventListener("dragover", (event) => {
    event.preventDefault();
    event.stopPropagation();
    well.classList.add("wg-over");
  });
  fold.addEventListener("dragleave", () => well.classList.remove("wg-over"));
  fold.addEventListener("drop", (event) => {
    event.preventDefault();
    event.stopPropagation(); // else the notebook takes the file
    well.classList.remove("wg-over");
    take(event.dataTransfer.files[0]);
  });
  fold.addEventListener("paste", (event) => {
    if (!event.clipboardData.files.length) return;
    event.preventDefault();
    event.stopPropagation();
    take(event.clipboardData.files[0]);
  });
  remove.addEventListener("click", () => widget.send({ wish: "begin", data: "" }));
  strength.addEventListener("input", () => (value.value = strength.value));
  strength.addEventListener("change", () => widget.set({ strength: Number(strength.value) }));

  widget.on(["_start", "_cover", "strength"], () => {
    const is = Boolean(widget.get("_start").data);
    present.hidden = !is;
    well.hidden = is;
    if (is) fold.open = true;
    const whole = Boolean(widget.get("_cover").data);
    strength.value = widget.get("strength") ?? (whole ? 1 : DEFAULT_STRENGTH);
    value.value = strength.value;
  });
  widget.on(["_start", "_models", "model"], () => {
    const accepts = chosen()?.accepts ?? [];
    const is = Boolean(widget.get("_start").data);
    fold.hidden = !accepts.includes("image") && !is;
    mask.allow(accepts.includes("mask"));
    if (is && !accepts.includes("image")) {
      problem.textContent = "This model cannot begin with a picture. Remove it, or pick another model.";
      problem.hidden = false;
    } else problem.hidden = true;
  });
  return { root: fold };
}
