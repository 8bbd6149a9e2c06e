// Earlier pictures of this notebook, newest first. A thumbnail is asked for when it comes into sight.

import { make, roving } from "../dom.js";

const GATHER_MS = 60;

export function history(widget) {
  const strip = make("div", { className: "wg-strip", role: "group", "aria-label": "Earlier pictures" });
  const root = make(
    "section",
    { className: "wg-history" },
    make("span", { className: "wg-label", "aria-hidden": "true" }, "Earlier pictures"),
    strip,
  );
  const settleTabs = roving(strip);
  const tiles = new Map();
  let wanted = [];
  let timer = null;

  const sight = new IntersectionObserver(
    (entries) => {
      for (const { target, isIntersecting } of entries) {
        if (!isIntersecting) continue;
        sight.unobserve(target);
        wanted.push(target.dataset.key);
      }
      clearTimeout(timer);
      timer = setTimeout(ask, GATHER_MS);
    },
    { root: null, rootMargin: "100px" },
  );

  function ask() {
    if (wanted.length) widget.send({ wish: "thumbnails", keys: wanted.splice(0) });
  }

  function tile({ key, words }) {
    const known = tiles.get(key);
    if (known) return known;
    const image = make("img", { alt: "" });
    const one = make("button", { type: "button", title: words, "aria-label": words }, image);
    one.dataset.key = key;
    one.addEventListener("click", () => widget.send({ wish: "show", key }));
    tiles.set(key, one);
    sight.observe(one);
    return one;
  }

  function show() {
    const entries = [...widget.get("_history")].reverse();
    root.hidden = entries.length < 1;
    strip.replaceChildren(...entries.map(tile));
    const kept = new Set(entries.map(({ key }) => key));
    for (const key of [...tiles.keys()]) if (!kept.has(key)) tiles.delete(key);
    mark();
    settleTabs();
  }

  function mark() {
    const shown = new Set(widget.get("_shown").map(({ key }) => key));
    for (const [key, each] of tiles) {
      if (shown.has(key)) each.setAttribute("aria-current", "true");
      else each.removeAttribute("aria-current");
    }
  }

  widget.on(["_history"], show);
  widget.on(["_shown"], mark);
  widget.onMessage(({ thumbnail, data }) => {
    const image = tiles.get(thumbnail)?.firstChild;
    if (image && data) image.src = data;
  });
  widget.atEnd(() => {
    sight.disconnect();
    clearTimeout(timer);
  });
  return { root };
}
