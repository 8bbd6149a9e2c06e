// The prompt, and what the picture should not show. Text longer than anybody reads stays here: ten
// megabytes on the way to the kernel would cost the page its connection.

import { field, make } from "../dom.js";

const TYPING_MS = 250;

export function promptFields(widget) {
  const prompt = make("textarea", {
    className: "wg-input wg-prompt",
    rows: 3,
    placeholder: "What should the picture show?",
  });
  const negative = make("textarea", {
    className: "wg-input",
    rows: 2,
    placeholder: "Things to avoid",
  });
  const fold = make(
    "details",
    { className: "wg-fold" },
    make("summary", {}, "What it should not show"),
    field("Negative prompt", negative),
  );
  const warning = make("p", { className: "wg-warning", role: "alert", hidden: true });
  const areas = { prompt, negative_prompt: negative };
  let typing = null;

  /** Takes over what was typed, and says whether all of it may be sent. */
  function read() {
    clearTimeout(typing);
    const most = widget.get("_max_characters");
    const values = {};
    let tooLong = 0;
    for (const [name, area] of Object.entries(areas)) {
      if (area.value.length > most) tooLong = area.value.length;
      else if (area.value !== widget.get(name)) values[name] = area.value;
    }
    warning.hidden = !tooLong;
    warning.textContent = tooLong
      ? `${tooLong.toLocaleString("en")} characters are too many; at most ` +
        `${most.toLocaleString("en")} are read. Shorten the text.`
      : "";
    if (Object.keys(values).length) widget.set(values);
    return !tooLong;
  }

  for (const area of Object.values(areas)) {
    area.addEventListener("input", () => {
      clearTimeout(typing);
      typing = setTimeout(read, TYPING_MS);
    });
  }
  widget.on(["prompt", "negative_prompt"], () => {
    for (const [name, area] of Object.entries(areas)) {
      if (area.value !== widget.get(name)) area.value = widget.get(name);
    }
    if (widget.get("negative_prompt")) fold.open = true;
    warning.hidden = true;
  });
  widget.atEnd(() => clearTimeout(typing));
  return { roots: [field("Prompt", prompt), warning, fold], read, prompt };
}
