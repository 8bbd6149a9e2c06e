// Elements, and the few helpers that every part of a widget needs. Text of others is only ever set
// as text, never as HTML.

let serial = 0;

/** A name for an element that nobody else on the page has. */
export function unique(what) {
  serial += 1;
  return `wg-${what}-${serial}`;
}

const FOCUSABLE = ["button", "input", "select", "summary", "textarea"];

/** An element: properties by name, attributes where the name has a dash or is "role" or "for". */
export function make(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  // Else keys pressed on it are Jupyter's too: "d d" on a button would delete the cell.
  if (FOCUSABLE.includes(tag)) node.setAttribute("data-lm-suppress-shortcuts", "true");
  for (const [name, value] of Object.entries(properties)) {
    if (name.includes("-") || name === "role" || name === "for") node.setAttribute(name, value);
    else node[name] = value;
  }
  node.append(...children.filter((child) => child !== null && child !== ""));
  return node;
}

export function button(text, properties = {}) {
  return make("button", { type: "button", className: "wg-button", textContent: text, ...properties });
}

/** A control below its label; `shown` is what stands there, the control itself unless given. */
export function field(text, control, shown = control) {
  control.id ||= unique("field");
  const label = make("label", { for: control.id, className: "wg-label" }, text);
  return make("div", { className: "wg-field" }, label, shown);
}

const ICONS = {
  dice:
    "M4 1.5h8A2.5 2.5 0 0 1 14.5 4v8a2.5 2.5 0 0 1-2.5 2.5H4A2.5 2.5 0 0 1 1.5 12V4A2.5 2.5 0 0 1 " +
    "4 1.5M5 5h.3M10.7 5h.3M7.85 8h.3M5 11h.3M10.7 11h.3",
  locked: "M3.5 7.5h9v6h-9zM5.5 7.5V5a2.5 2.5 0 0 1 5 0v2.5",
  unlocked: "M3.5 7.5h9v6h-9zM5.5 7.5V4a2.5 2.5 0 0 1 4.8-.9",
};

export function icon(name) {
  const SVG = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 16 16");
  svg.setAttribute("class", "wg-icon");
  svg.setAttribute("aria-hidden", "true");
  if (name === "dice") svg.classList.add("wg-dotted");
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", ICONS[name]);
  svg.append(path);
  return svg;
}

/** Arrow keys move among the buttons of a row, and Tab leaves it. */
export function roving(row) {
  const buttons = () => [...row.querySelectorAll("button")];
  const choose = (chosen) => {
    for (const each of buttons()) each.tabIndex = each === chosen ? 0 : -1;
  };
  row.addEventListener("focusin", (event) => choose(event.target.closest("button")));
  row.addEventListener("keydown", (event) => {
    const all = buttons();
    const now = all.indexOf(event.target.closest("button"));
    const next = { ArrowLeft: now - 1, ArrowRight: now + 1, Home: 0, End: all.length - 1 }[event.key];
    if (next === undefined || !all[next]) return;
    event.preventDefault();
    all[next].focus();
  });
  return () => choose(buttons().find((each) => each.tabIndex === 0) ?? buttons()[0]);
}

export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Pages that are not served over https have no clipboard API.
    const area = make("textarea", { value: text });
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}
