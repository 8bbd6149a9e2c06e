// The model picker: a line for the chosen one, which opens a list of all with their pictures, how
// they stand and how long one would wait.

import { make, unique } from "../dom.js";

/** The model's small picture, or its first letter on a colour of its own. */
function face(title, url) {
  if (url) return make("img", { className: "wg-face", src: url, alt: "" });
  const hue = [...title].reduce((sum, letter) => (sum * 31 + letter.codePointAt(0)) % 360, 7);
  const tile = make("span", { className: "wg-face", "aria-hidden": "true" }, title.slice(0, 1));
  tile.style.setProperty("--wg-hue", hue);
  return tile;
}

/** How a model stands: a dot, its state in words, the wait. */
function standing(line, { state, words, wait }, short = words) {
  const dot = make("span", { className: `wg-dot wg-${state}`, "aria-hidden": "true" });
  line.replaceChildren(dot, make("span", { className: "wg-state-words" }, short));
  if (wait) line.append(make("span", { className: "wg-wait" }, ` · ${wait}`));
}

const UNKNOWN = { state: "off", words: "not offered any more", usable: false, wait: "" };

export function modelPicker(widget) {
  const group = unique("models");
  const nowFace = make("span", { className: "wg-face-place" });
  const nowTitle = make("span", { className: "wg-model-title" });
  const nowLine = make("span", { className: "wg-model-line" });
  const summary = make(
    "summary",
    { className: "wg-input wg-model-now" },
    nowFace,
    make(
      "span",
      { className: "wg-model-texts" },
      make("span", { className: "wg-spoken" }, "Model: "),
      nowTitle,
      nowLine,
    ),
  );
  const list = make("div", { className: "wg-model-list", role: "radiogroup", "aria-label": "Model" });
  const fold = make("details", { className: "wg-models" }, summary, list);
  const about = make("p", { className: "wg-about" });
  const root = make(
    "div",
    { className: "wg-field" },
    make("span", { className: "wg-label", "aria-hidden": "true" }, "Model"),
    fold,
    about,
  );
  const rows = new Map();

  const chosen = () => widget.get("_models").find((each) => each.id === widget.get("model"));
  const standingOf = (id) => widget.get("_standings")[id] ?? UNKNOWN;

  /** Another model comes with its own defaults. */
  function pick(each) {
    const count = Math.min(widget.get("count"), each.limits.max_images ?? 1);
    const own = { steps: null, guidance: null, width: null, height: null };
    widget.set({ model: each.id, count, ...own });
  }

  function row(each) {
    const place = make("span", { className: "wg-face-place" });
    const line = make("span", { className: "wg-model-line", id: unique("standing") });
    const radio = make("input", {
      type: "radio",
      name: group,
      value: each.id,
      "aria-label": each.title,
      "aria-describedby": line.id,
    });
    const title = make("span", { className: "wg-model-title" }, each.title);
    const texts = make("span", { className: "wg-model-texts" }, title, line);
    if (each.description) {
      texts.append(make("span", { className: "wg-model-about" }, each.description));
    }
    radio.addEventListener("change", () => pick(each));
    const label = make("label", { className: "wg-model-row" }, radio, place, texts);
    rows.set(each.id, { title: each.title, label, radio, place, line });
    return label;
  }

  function showList() {
    rows.clear();
    list.replaceChildren(...widget.get("_models").map(row));
    showStandings();
    showFaces();
  }

  function showFaces() {
    const faces = widget.get("_faces");
    for (const [id, { title, place }] of rows) place.replaceChildren(face(title, faces[id]));
    const now = chosen();
    nowFace.replaceChildren(face(now?.title ?? "?", faces[now?.id]));
  }

  function showStandings() {
    for (const [id, { label, radio, line }] of rows) {
      const how = standingOf(id);
      standing(line, how);
      radio.disabled = !how.usable;
      radio.checked = id === widget.get("model");
      label.classList.toggle("wg-unusable", !how.usable);
    }
    const now = chosen();
    const how = now ? standingOf(now.id) : UNKNOWN;
    nowTitle.textContent = now?.title ?? widget.get("model");
    standing(nowLine, how, how.short ?? how.words);
    about.textContent = how.usable ? (now?.description ?? "") : `${how.words}. Pick another model.`;
    about.title = now?.description ?? "";
    about.classList.toggle("wg-warning", !how.usable);
  }

  const close = () => {
    fold.open = false;
    summary.focus();
  };
  fold.addEventListener("toggle", () => {
    if (fold.open) list.querySelector("input:checked")?.focus();
  });
  // A click chooses and closes; arrow keys choose, and Enter closes.
  list.addEventListener("click", (event) => {
    if (event.target.closest("label")?.querySelector("input:enabled") && event.detail > 0) close();
  });
  fold.addEventListener("keydown", (event) => {
    if (!fold.open || !["Escape", "Enter"].includes(event.key)) return;
    if (event.key === "Enter" && (event.target === summary || event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    event.stopPropagation();
    close();
  });

  widget.on(["_models"], showList);
  widget.on(["_standings", "model"], showStandings);
  widget.on(["_faces", "model"], showFaces);
  return { root, chosen, standing: () => standingOf(widget.get("model")) };
}
