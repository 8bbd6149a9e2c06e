// The browser's side of wg.Status(). All that is shown is made in Python; here it is drawn, and
// waits are counted down.

import { make } from "./dom.js";

function about(seconds) {
  if (seconds < 1.5) return "any moment now";
  return seconds < 90 ? `in about ${Math.round(seconds)} s` : `in about ${Math.round(seconds / 60)} min`;
}

function ago(at) {
  const seconds = Math.max(0, Date.now() / 1000 - at);
  if (seconds < 45) return "just now";
  return seconds < 5400 ? `${Math.max(1, Math.round(seconds / 60))} min ago` : `${Math.round(seconds / 3600)} h ago`;
}

/** The piece that was `old` before all were made anew: the same holder's; else one of its kind; else
    that which stands in its place. */
function again(old, place, pieces) {
  const alike = (...keys) => pieces.find((piece) => keys.every((key) => piece.dataset[key] === old.dataset[key]));
  return alike("device", "kind", "name") ?? alike("device", "kind") ?? pieces[place];
}

function drawDevice(device) {
  const told = make("p", { className: "wg-told", "aria-hidden": "true" });
  const bar = make("div", { className: "wg-bar", role: "list", "aria-label": `Memory of ${device.id}` });
  for (const part of device.parts) {
    if (!part.share) continue;
    const words = [part.label, part.size, part.words].filter(Boolean).join(" · ");
    const piece = make("div", {
      className: `wg-piece wg-${part.colour}`,
      tabIndex: 0,
      role: "listitem",
      title: words,
      "aria-label": words,
    });
    Object.assign(piece.dataset, { device: device.id, kind: part.kind, name: part.name });
    piece.style.flexBasis = `${100 * part.share}%`;
    for (const name of ["mouseenter", "focus"]) piece.addEventListener(name, () => (told.textContent = words));
    for (const name of ["mouseleave", "blur"]) piece.addEventListener(name, () => (told.textContent = ""));
    bar.append(piece);
  }
  const legend = device.parts.map((part) =>
    make(
      "li",
      {},
      make("span", { className: `wg-swatch wg-${part.colour}`, "aria-hidden": "true" }),
      make("span", { className: "wg-label", title: part.label }, part.label),
      make("span", { className: "wg-size" }, part.size),
      part.words ? make("span", { className: "wg-words" }, part.words) : null,
      part.done === null
        ? null
        : make("progress", { max: 1, value: part.done, "aria-label": `${part.label}: ${part.words}` }),
    ),
  );
  const state = device.state ? make("span", { className: "wg-bad" }, ` – ${device.state}`) : null;
  return make(
    "section",
    { className: "wg-device", "aria-label": device.id },
    make(
      "h3",
      {},
      device.id,
      device.name && device.name !== device.id ? make("small", {}, ` ${device.name}`) : null,
      state,
      make("span", { className: "wg-free" }, device.free),
    ),
    bar,
    told,
    make("ul", { className: "wg-legend" }, ...legend),
  );
}

function drawRow(row, heardAt) {
  let words = row.words;
  if (row.wait_s !== null) {
    const wait = about(Math.max(0, row.wait_s - (Date.now() - heardAt) / 1000));
    words = words === "waits" ? `starts ${wait}` : `${words} (${wait})`;
  }
  return make(
    "li",
    { className: row.mine ? "wg-row wg-mine" : "wg-row" },
    make("span", { className: "wg-place" }, row.place),
    make("span", { className: "wg-who", title: row.who }, row.mine ? make("em", {}, "you ") : null, row.who),
    make("span", { className: "wg-what", title: row.what }, row.what),
    make("span", { className: "wg-words" }, words),
    row.done === null ? null : make("progress", { max: 1, value: row.done, "aria-label": words }),
  );
}

function render({ model, el }) {
  const root = make("div", { className: "wg wg-room", "data-lm-suppress-shortcuts": "true" });
  const banner = make("p", { className: "wg-banner", role: "status", hidden: true });
  const paused = make("p", { className: "wg-paused", role: "status", hidden: true });
  const stale = make("p", { className: "wg-stale", role: "status", hidden: true }, "The server does not answer; trying again. This is how it was.");
  const devices = make("div", { className: "wg-devices" });
  const queue = make("ol", { className: "wg-queue" });
  const nobody = make("p", { className: "wg-quiet" }, "Nobody waits: the next picture is yours.");
  const news = make("ul", { className: "wg-news" });
  const nothing = make("p", { className: "wg-quiet" }, "Nothing has happened yet.");
  root.append(
    banner,
    paused,
    stale,
    make(
      "div",
      { className: "wg-columns" },
      devices,
      make(
        "div",
        { className: "wg-side" },
        make("section", { "aria-label": "Queue" }, make("h3", {}, "Queue"), queue, nobody),
        make("section", { "aria-label": "What happened" }, make("h3", {}, "What happened"), news, nothing),
      ),
    ),
  );
  el.append(root);
  let heardAt = Date.now();
  let drawn = "";

  function drawTimes() {
    const view = model.get("_view");
    queue.replaceChildren(...(view.queue ?? []).map((row) => drawRow(row, heardAt)));
    if (view.more) queue.append(make("li", { className: "wg-quiet" }, `… and ${view.more} more who wait`));
    news.replaceChildren(
      ...(view.news ?? []).map((item) =>
        make("li", { className: `wg-item wg-item-${item.kind}` }, make("time", {}, ago(item.at)), make("span", {}, item.text)),
      ),
    );
  }

  function draw() {
    const view = model.get("_view");
    heardAt = Date.now();
    banner.hidden = !view.message;
    banner.textContent = view.message ?? "";
    paused.hidden = !view.paused;
    paused.textContent = view.paused ? `The queue is paused: ${view.paused}` : "";
    stale.hidden = view.live !== false;
    root.classList.toggle("wg-old", view.live === false);
    // A bar that somebody points at or has the focus on must not be made anew for nothing.
    const now = JSON.stringify(view.devices ?? []);
    if (now !== drawn) {
      const focused = document.activeElement;
      const place = [...devices.querySelectorAll(".wg-piece")].indexOf(focused);
      devices.replaceChildren(...(view.devices ?? []).map(drawDevice));
      if (place >= 0) again(focused, place, [...devices.querySelectorAll(".wg-piece")])?.focus();
      if (!view.devices?.length) devices.append(make("p", {}, "This server has no GPU that could work. Tell the instructor."));
      drawn = now;
    }
    nobody.hidden = Boolean(view.queue?.length);
    nothing.hidden = Boolean(view.news?.length);
    drawTimes();
  }

  model.on("change:_view", draw);
  draw();
  const clock = setInterval(drawTimes, 1000);
  return () => {
    clearInterval(clock);
    model.off("change:_view", draw);
  };
}

export default { render };
