// The line below the buttons: what happens now, or how long one would wait. It counts down between
// two announcements, and says so when a wait lasts longer than was foreseen.

import { make } from "../dom.js";

const SOON_S = 1.5;
const LATE_S = 5;

/** The rest of a wait in words; `passed` seconds ago it was announced as `wait` seconds. */
export function remaining(wait, passed) {
  const rest = wait - passed;
  if (rest < -LATE_S) return "a little longer than expected";
  if (rest < SOON_S) return "any moment now";
  return rest < 90 ? `about ${Math.round(rest)} s` : `about ${Math.round(rest / 60)} min`;
}

const SPOKEN = {
  running: "Drawing",
  done: "The picture is done",
  cancelled: "Cancelled",
};

export function statusLine(widget, wishes, standing) {
  const bar = make("progress", { max: 1, "aria-label": "Progress" });
  const words = make("span", { className: "wg-words" });
  const spoken = make("div", { className: "wg-spoken", role: "status", "aria-live": "polite" });
  const error = make("div", { className: "wg-error", role: "alert", hidden: true });
  const root = make("div", { className: "wg-status" }, bar, words);
  let announcedAt = Date.now();
  let sent = false;

  function atRest() {
    if (widget.get("_job").state === "cancelled") return "Cancelled";
    const { usable, wait } = standing();
    if (!usable || !wait) return "";
    return wait[0].toUpperCase() + wait.slice(1);
  }

  function underWay() {
    if (wishes.late()) return "This notebook runs a cell. Your picture is next when it ends.";
    if (wishes.pending()) return "Sent";
    const { state, text, wait_s } = widget.get("_job");
    if (wishes.cancelling()) return state === "running" ? "Cancelling after this step" : "Cancelling";
    if (wait_s === null || wait_s === undefined) return text;
    return `${text}, ${remaining(wait_s, (Date.now() - announcedAt) / 1000)}`;
  }

  function show() {
    const busy = wishes.busy();
    const { part } = widget.get("_job");
    bar.hidden = !busy;
    if (wishes.pending() || part === null || part === undefined) bar.removeAttribute("value");
    else bar.value = part;
    words.textContent = (busy ? underWay() : atRest()) ?? "";
    root.classList.toggle("wg-at-rest", !busy);
  }

  widget.on(["_job"], () => {
    announcedAt = Date.now();
    // Screen readers hear phases, not every step.
    const { state, text } = widget.get("_job");
    const said = SPOKEN[state] ?? text ?? "";
    if (spoken.textContent !== said) spoken.textContent = said;
    show();
  });
  widget.on(["_error"], () => {
    const { title, message } = widget.get("_error");
    error.hidden = !message;
    error.replaceChildren();
    if (message) error.append(make("strong", {}, `${title}: `), message);
  });
  widget.on(["_standings", "model"], show);
  wishes.listen(() => {
    if (wishes.pending() && !sent) error.hidden = true; // what was wrong before is over
    sent = wishes.pending();
    show();
  });
  const clock = setInterval(() => wishes.busy() && show(), 1000);
  widget.atEnd(() => clearInterval(clock));
  return { roots: [root, error, spoken] };
}
