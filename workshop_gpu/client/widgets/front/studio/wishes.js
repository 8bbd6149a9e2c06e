// What the person wants done. Wishes go to the kernel as messages, Cancel to the server. Until the
// kernel answers, a wish is pending; when that takes long, the kernel runs a cell.

import { cancelByRest } from "../server.js";

const KERNEL_PATIENCE_MS = 800;
const UNDER_WAY = ["asking", "queued", "running"];

/** `read` writes what was typed last into the traits, and says whether it may be sent. */
export function wishing(widget, read) {
  const listeners = [];
  let timer = null;
  let late = false;
  let cancelling = "";

  const job = () => widget.get("_job");
  const tell = () => listeners.forEach((listener) => listener());
  const pending = () => timer !== null;
  const busy = () => pending() || UNDER_WAY.includes(job().state);

  /** The kernel has answered. */
  function settle() {
    clearTimeout(timer);
    timer = null;
    late = false;
    tell();
  }

  /** Generate, again, or vary; `content` is made once all that was typed was read. */
  function wish(content) {
    if (busy() || !read()) return;
    widget.send(typeof content === "function" ? content() : content);
    timer = setTimeout(() => {
      late = true;
      tell();
    }, KERNEL_PATIENCE_MS);
    tell();
  }

  async function cancel() {
    const { id } = job();
    if (!busy() || !id) return;
    cancelling = id;
    tell();
    if (!(await cancelByRest(id))) widget.send({ wish: "cancel" });
  }

  widget.on(["_job"], tell);
  widget.onMessage(({ heard }) => heard && settle());
  widget.atEnd(() => clearTimeout(timer));
  return {
    wish,
    cancel,
    busy,
    pending,
    late: () => late,
    cancelling: () => cancelling !== "" && cancelling === job().id,
    listen(listener) {
      listeners.push(listener);
      listener();
    },
  };
}
