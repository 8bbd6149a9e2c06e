// The mask, drawn over the start image: with the mouse, a finger or a pen, or by keys. What is
// painted is drawn anew. It is sent when a stroke ends.

import { button, field, make } from "../dom.js";

const PAINT = "#ff3b7f";
const STEPS_PER_BRUSH = 3;
const KEYS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

/** The painted canvas as a picture in black and white. */
function blackAndWhite(canvas) {
  const { width, height } = canvas;
  const copy = make("canvas", { width, height });
  const context = copy.getContext("2d", { willReadFrequently: true });
  context.drawImage(canvas, 0, 0);
  const pixels = context.getImageData(0, 0, width, height);
  let painted = false;
  for (let i = 0; i < pixels.data.length; i += 4) {
    const white = pixels.data[i + 3] >= 128 ? 255 : 0;
    painted ||= white > 0;
    pixels.data.set([white, white, white, 255], i);
  }
  context.putImageData(pixels, 0, 0);
  return painted ? copy.toDataURL("image/png") : "";
}

export function maskCanvas(widget) {
  const view = Math.random().toString(36); // another one after the page was loaded anew
  const picture = make("img", { className: "wg-start-picture", alt: "Start image" });
  const canvas = make("canvas", {
    className: "wg-mask",
    tabIndex: -1,
    role: "img",
    "data-lm-suppress-shortcuts": "true",
    "aria-label":
      "Mask over the start image. Arrow keys move the brush, Space paints, Delete clears.",
  });
  const ring = make("span", { className: "wg-ring", hidden: true });
  const frame = make("div", { className: "wg-mask-frame" }, picture, canvas, ring);
  const brush = make("input", { type: "range", className: "wg-range", min: 2, max: 50, value: 15 });
  const erase = button("Erase", { "aria-pressed": "false" });
  const clear = button("Clear");
  const size = field("Brush", brush);
  const controls = make("div", { className: "wg-row", hidden: true }, size, erase, clear);
  const toggle = button("Draw a mask", { className: "wg-link", "aria-pressed": "false" });
  const context = canvas.getContext("2d", { willReadFrequently: true });
  let last = null;
  let at = null;

  /** The brush's width in pixels of the picture; the slider is in percent of its shorter side. */
  const thick = () => (Number(brush.value) / 100) * Math.min(canvas.width, canvas.height);
  const drawing = () => toggle.getAttribute("aria-pressed") === "true";
  const press = (one, is) => one.setAttribute("aria-pressed", String(is));

  function dab(from, to) {
    context.globalCompositeOperation =
      erase.getAttribute("aria-pressed") === "true" ? "destination-out" : "source-over";
    context.strokeStyle = PAINT;
    context.lineWidth = thick();
    context.lineCap = "round";
    context.beginPath();
    context.moveTo(...from);
    context.lineTo(to[0] + 0.01, to[1]); // a line of no length would leave no dot
    context.stroke();
  }

  const tell = () => widget.send({ wish: "mask", data: blackAndWhite(canvas), view });

  function place(event) {
    const box = canvas.getBoundingClientRect();
    return [
      ((event.clientX - box.left) / box.width) * canvas.width,
      ((event.clientY - box.top) / box.height) * canvas.height,
    ];
  }

  function showRing(point) {
    at = point;
    const scale = canvas.getBoundingClientRect().width / canvas.width;
    ring.hidden = !drawing();
    ring.style.width = ring.style.height = `${thick() * scale}px`;
    ring.style.left = `${at[0] * scale}px`;
    ring.style.top = `${at[1] * scale}px`;
  }

  canvas.addEventListener("pointerdown", (event) => {
    if (!drawing()) return;
    event.preventDefault();
    canvas.focus({ preventScroll: true });
    canvas.setPointerCapture(event.pointerId);
    last = place(event);
    dab(last, last);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!drawing()) return;
    const now = place(event);
    showRing(now);
    if (last) dab(last, now);
    last = last && now;
  });
  for (const end of ["pointerup", "pointercancel"]) {
    canvas.addEventListener(end, () => {
      if (last) tell();
      last = null;
    });
  }
  canvas.addEventListener("pointerleave", () => (ring.hidden = true));
  canvas.addEventListener("keydown", (event) => {
    if (!drawing()) return;
    const step = thick() / STEPS_PER_BRUSH;
    const [x, y] = at ?? [canvas.width / 2, canvas.height / 2];
    if (KEYS[event.key]) {
      const [right, down] = KEYS[event.key];
      const inside = (value, most) => Math.min(most, Math.max(0, value));
      showRing([inside(x + right * step, canvas.width), inside(y + down * step, canvas.height)]);
    } else if (event.key === " ") {
      showRing([x, y]);
      dab([x, y], [x, y]);
      tell();
    } else if (event.key === "Delete" || event.key === "Backspace") clear.click();
    else return;
    event.preventDefault();
    event.stopPropagation();
  });

  toggle.addEventListener("click", () => {
    press(toggle, !drawing());
    controls.hidden = !drawing();
    canvas.tabIndex = drawing() ? 0 : -1;
    ring.hidden = true;
    frame.classList.toggle("wg-drawing", drawing());
  });
  erase.addEventListener("click", () => press(erase, erase.getAttribute("aria-pressed") !== "true"));
  clear.addEventListener("click", () => {
    context.clearRect(0, 0, canvas.width, canvas.height);
    tell();
  });

  /** What the kernel has: after the page was loaded anew, or set from Python. */
  function showCover() {
    const { data, view: by } = widget.get("_cover");
    if (by === view || last) return; // it is what stands here already
    if (!data) {
      context.clearRect(0, 0, canvas.width, canvas.height);
      return;
    }
    const image = make("img");
    image.addEventListener("load", () => {
      context.globalCompositeOperation = "source-over";
      context.clearRect(0, 0, canvas.width, canvas.height);
      context.drawImage(image, 0, 0, canvas.width, canvas.height);
      const pixels = context.getImageData(0, 0, canvas.width, canvas.height);
      const [red, green, blue] = PAINT.match(/\w\w/g).map((hex) => parseInt(hex, 16));
      for (let i = 0; i < pixels.data.length; i += 4) {
        pixels.data.set([red, green, blue, pixels.data[i]], i);
      }
      context.putImageData(pixels, 0, 0);
    });
    image.src = data;
  }

  widget.on(["_start"], () => {
    const { data, width, height } = widget.get("_start");
    if (!data) {
      picture.removeAttribute("src");
      return;
    }
    picture.src = data;
    canvas.width = width; // clears it
    canvas.height = height;
    at = null;
    showCover();
  });
  widget.on(["_cover"], showCover);
  return {
    frame,
    toggle,
    controls,
    allow(is) {
      toggle.hidden = !is;
      if (!is && drawing()) toggle.click();
    },
  };
}
