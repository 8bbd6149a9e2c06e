// The stage: the picture as it forms, then the pictures that were made, one of them chosen.

import { button, make, roving } from "../dom.js";

const NARROWEST_PX = 320;
const EXAMPLES = [
  "a red circle on a blue background",
  "a yellow star on a green background",
  "a white square on a black background",
];

export function pictures(widget, tryOut) {
  const preview = make("img", { className: "wg-image wg-preview", alt: "The picture as it forms" });
  const tiles = make("div", { className: "wg-tiles", role: "group", "aria-label": "New pictures" });
  const empty = make(
    "div",
    { className: "wg-empty" },
    make("p", {}, "Your picture will appear here. Try one of these:"),
    ...EXAMPLES.map((text) => {
      const chip = button(text, { className: "wg-chip" });
      chip.addEventListener("click", () => tryOut(text));
      return chip;
    }),
  );
  const frame = make("div", { className: "wg-frame" }, preview, tiles, empty);
  const settleTabs = roving(tiles);
  const listeners = [];
  let urls = [];
  let chosen = 0;
  let alone = true;

  const shown = () => widget.get("_shown");
  const forming = () => ["asking", "queued", "running"].includes(widget.get("_job").state);

  function choose(index, isAlone) {
    chosen = index;
    alone = isAlone;
    showFrame();
    listeners.forEach((listener) => listener());
  }

  function tile({ made }, index) {
    const image = make("img", {
      className: "wg-image",
      src: urls[index],
      alt: `Picture: ${made.prompt ?? ""}`,
    });
    if (urls.length === 1) return image;
    const all = make("button", { type: "button", className: "wg-tile" }, image);
    all.addEventListener("click", () => choose(index, !alone));
    return all;
  }

  function take() {
    urls.forEach((url) => URL.revokeObjectURL(url));
    urls = shown().map(({ png }) => URL.createObjectURL(new Blob([png], { type: "image/png" })));
    tiles.replaceChildren(...shown().map(tile));
    settleTabs();
    choose(0, urls.length < 2);
  }

  function showFrame() {
    const now = widget.get("_preview");
    const isForming = forming() && Boolean(now);
    preview.hidden = !isForming;
    if (isForming) preview.src = now;
    else preview.removeAttribute("src");
    tiles.hidden = isForming || !urls.length;
    empty.hidden = isForming || urls.length > 0 || forming();
    frame.classList.toggle("wg-forming", forming());
    [...tiles.children].forEach((each, index) => {
      each.hidden = alone && index !== chosen;
      if (each.tagName === "BUTTON") {
        each.setAttribute("aria-pressed", String(index === chosen));
        each.title = alone ? "Show all of them" : "Show this one alone";
      }
    });
    size(isForming);
  }

  function size(isForming) {
    const made = shown()[chosen]?.made;
    const { width, height } = isForming || !made ? widget.get("_job") : made;
    const columns = isForming || alone ? 1 : Math.ceil(Math.sqrt(urls.length));
    const rows = isForming || alone ? 1 : Math.ceil(urls.length / columns);
    tiles.style.setProperty("--wg-columns", columns);
    if (!width || !height) return;
    frame.style.setProperty("--wg-ratio", `${width * columns} / ${height * rows}`);
    frame.style.setProperty("--wg-width", `${Math.max(NARROWEST_PX, width)}px`);
  }

  widget.on(["_shown"], take);
  widget.on(["_job", "_preview"], showFrame);
  widget.atEnd(() => urls.forEach((url) => URL.revokeObjectURL(url)));
  return {
    root: frame,
    /** The chosen picture with its address, or undefined. */
    chosen: () => (shown()[chosen] ? { ...shown()[chosen], url: urls[chosen] } : undefined),
    listen(listener) {
      listeners.push(listener);
      listener();
    },
  };
}
