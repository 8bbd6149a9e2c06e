// The browser's side of wg.Studio(). Options go to Python as traits; wishes ("generate") as
// messages. Cancel goes straight to the server's REST API, because a kernel that runs a cell
// reads no messages; the message is the fallback where there is no such server in reach.

const EXAMPLES = [
  "a red circle on a blue background",
  "a yellow star on a green background",
  "a white square on a black background",
];
const KERNEL_PATIENCE_MS = 800;
const NARROWEST_PICTURE_PX = 320;
const DIE = `<svg viewBox="0 0 16 16" width="18" height="18" aria-hidden="true">
  <rect x="1.5" y="1.5" width="13" height="13" rx="3" fill="none" stroke="currentColor"/>
  <g fill="currentColor"><circle cx="5" cy="5" r="1.2"/><circle cx="11" cy="5" r="1.2"/>
  <circle cx="8" cy="8" r="1.2"/><circle cx="5" cy="11" r="1.2"/><circle cx="11" cy="11" r="1.2"/></g>
</svg>`;

let serial = 0; // makes ids of labels unique where a page shows several studios

/** Create an element: properties by name, attributes where the name has a dash or is "role". */
function make(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.includes("-") || name === "role" || name === "for") node.setAttribute(name, value);
    else node[name] = value;
  }
  node.append(...children);
  return node;
}

function labelled(text, control, ...extra) {
  control.id = `wg-studio-${++serial}`;
  const label = make("label", { for: control.id, className: "wg-label" }, text);
  return make("div", { className: "wg-field" }, label, control, ...extra);
}

/** The server that this page came from, or null outside of Jupyter's own pages. */
function pageServer() {
  try {
    const config = JSON.parse(document.getElementById("jupyter-config-data").textContent);
    return new URL(config.baseUrl, location.href);
  } catch {
    return null;
  }
}

function cookie(name) {
  const found = document.cookie.split("; ").find((pair) => pair.startsWith(`${name}=`));
  return found ? found.slice(name.length + 1) : "";
}

/** Ask the server to cancel; false where that did not work and the kernel must do it. */
async function cancelByRest(jobId) {
  const base = pageServer();
  if (!base) return false;
  try {
    const answer = await fetch(new URL(`workshop-gpu/api/jobs/${encodeURIComponent(jobId)}`, base), {
      method: "DELETE",
      credentials: "same-origin",
      headers: { "X-XSRFToken": cookie("_xsrf") },
    });
    return answer.ok || answer.status === 409; // 409: it was over already
  } catch {
    return false;
  }
}

function about(seconds) {
  if (seconds < 1.5) return "any moment now";
  return seconds < 90 ? `about ${Math.round(seconds)} s` : `about ${Math.round(seconds / 60)} min`;
}

async function copyText(text) {
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

function build() {
  const ui = {};
  ui.model = make("select", { className: "wg-input" });
  ui.modelState = make("p", { className: "wg-model-state" });
  ui.prompt = make("textarea", {
    className: "wg-input wg-prompt",
    rows: 3,
    placeholder: "What should the picture show?",
  });
  ui.negative = make("textarea", {
    className: "wg-input",
    rows: 2,
    placeholder: "Things to avoid",
  });
  ui.negativeFold = make(
    "details",
    { className: "wg-fold" },
    make("summary", {}, "What it should not show"),
    labelled("Negative prompt", ui.negative),
  );
  ui.size = make("select", { className: "wg-input" });
  ui.seed = make("input", {
    className: "wg-input",
    type: "number",
    min: 0,
    step: 1,
    placeholder: "random",
  });
  ui.dice = make("button", {
    type: "button",
    className: "wg-button wg-dice",
    title: "Draw a seed. An empty seed is drawn anew each time.",
    innerHTML: DIE,
    "aria-label": "Draw a seed",
  });
  ui.steps = make("input", { type: "range", min: 1, step: 1, className: "wg-range" });
  ui.stepsValue = make("output", { className: "wg-value" });
  ui.guidance = make("input", { type: "range", min: 0, step: 0.5, className: "wg-range" });
  ui.guidanceValue = make("output", { className: "wg-value" });
  ui.defaults = make("button", {
    type: "button",
    className: "wg-link",
    textContent: "Back to the model's defaults",
    hidden: true,
  });
  ui.generate = make("button", {
    type: "submit",
    className: "wg-button wg-primary",
    textContent: "Generate",
    title: "Ctrl+Enter",
  });
  ui.cancel = make("button", {
    type: "button",
    className: "wg-button",
    textContent: "Cancel",
    disabled: true,
  });
  const seed = labelled("Seed", ui.seed);
  seed.append(make("div", { className: "wg-with-button" }, ui.seed, ui.dice));
  const steps = labelled("Steps", ui.steps);
  steps.append(make("div", { className: "wg-with-value" }, ui.steps, ui.stepsValue));
  const guidance = labelled("Guidance", ui.guidance);
  guidance.append(make("div", { className: "wg-with-value" }, ui.guidance, ui.guidanceValue));
  ui.guidance.title = "How closely the picture follows the prompt";
  ui.steps.title = "More steps take longer and draw finer";
  ui.form = make(
    "form",
    { className: "wg-form", noValidate: true },
    labelled("Model", ui.model, ui.modelState),
    labelled("Prompt", ui.prompt),
    ui.negativeFold,
    make("div", { className: "wg-options" }, labelled("Size", ui.size), seed, steps, guidance),
    ui.defaults,
    make(
      "div",
      { className: "wg-actions" },
      ui.generate,
      ui.cancel,
      make("kbd", { className: "wg-hint" }, "Ctrl+Enter"),
    ),
  );

  ui.image = make("img", { className: "wg-image", hidden: true, alt: "" });
  ui.empty = make(
    "div",
    { className: "wg-empty" },
    make("p", {}, "Your picture will appear here. Try one of these:"),
    ...EXAMPLES.map((text) =>
      make("button", { type: "button", className: "wg-chip", textContent: text }),
    ),
  );
  ui.frame = make("div", { className: "wg-frame" }, ui.image, ui.empty);
  ui.bar = make("progress", { max: 1, "aria-label": "Progress" });
  ui.words = make("span", { className: "wg-words" });
  ui.status = make("div", { className: "wg-status", hidden: true }, ui.bar, ui.words);
  ui.spoken = make("div", { className: "wg-spoken", role: "status", "aria-live": "polite" });
  ui.error = make("div", { className: "wg-error", role: "alert", hidden: true });
  ui.caption = make("p", { className: "wg-caption" });
  const tool = (text, title) =>
    make("button", { type: "button", className: "wg-link", textContent: text, title });
  ui.keepSeed = tool("Keep this seed", "Change the prompt and keep the rest of the picture alike");
  ui.save = tool("Save as PNG", "The file says how the picture was made");
  ui.copy = tool("Copy as code", "The Python line that makes this picture again");
  ui.tools = make("div", { className: "wg-tools", hidden: true }, ui.keepSeed, ui.save, ui.copy);
  ui.strip = make("div", { className: "wg-strip", role: "list", "aria-label": "Earlier pictures" });
  const stage = make(
    "section",
    { className: "wg-stage", "aria-label": "Picture" },
    ui.frame,
    ui.status,
    ui.spoken,
    ui.error,
    ui.caption,
    ui.tools,
    ui.strip,
  );
  // Jupyter's shortcuts must leave alone what is typed here.
  ui.root = make(
    "div",
    { className: "wg-studio", "data-lm-suppress-shortcuts": "true" },
    make("div", { className: "wg-columns" }, ui.form, stage),
  );
  return ui;
}

function render({ model, el }) {
  const ui = build();
  el.append(ui.root);
  let pictureUrl = "";
  let pending = null; // the timer of a wish that the kernel has not answered yet
  let announcedAt = 0;
  let cancelling = "";
  const watched = [];

  const on = (name, handler) => {
    model.on(name, handler);
    watched.push([name, handler]);
  };
  const set = (name, value) => {
    model.set(name, value);
    model.save_changes();
  };
  const entry = () => model.get("_models").find((m) => m.id === model.get("model"));
  const job = () => model.get("_job");
  const busy = () => pending !== null || ["queued", "running"].includes(job().state);

  // options

  function showModels() {
    const models = model.get("_models");
    ui.model.replaceChildren(
      ...models.map((m) =>
        make("option", {
          value: m.id,
          textContent: `${m.title} – ${m.short}`,
          disabled: !m.usable,
          selected: m.id === model.get("model"),
        }),
      ),
    );
    const now = entry();
    ui.modelState.replaceChildren();
    if (now) {
      const dot = make("span", { className: `wg-dot wg-${now.state}`, "aria-hidden": "true" });
      const words = make("span", { className: "wg-state-words", textContent: now.words });
      ui.modelState.append(dot, words);
      if (now.description) ui.modelState.append(` · ${now.description}`);
    }
  }

  function showOptions() {
    const now = entry();
    if (!now) return;
    const { defaults } = now;
    const steps = model.get("steps") ?? defaults.steps;
    const guidance = model.get("guidance") ?? defaults.guidance;
    const width = model.get("width") ?? defaults.width;
    const height = model.get("height") ?? defaults.height;
    ui.steps.max = Math.max(now.max_steps, steps);
    ui.steps.value = steps;
    ui.stepsValue.value = steps;
    ui.guidance.max = Math.max(15, Math.ceil(2 * defaults.guidance), guidance);
    ui.guidance.value = guidance;
    ui.guidanceValue.value = guidance;
    const sizes = [...now.sizes];
    if (!sizes.some(([, w, h]) => w === width && h === height)) sizes.push(["Own", width, height]);
    ui.size.replaceChildren(
      ...sizes.map(([name, w, h]) =>
        make("option", {
          value: `${w}x${h}`,
          textContent: `${name} ${w} × ${h}`,
          selected: w === width && h === height,
        }),
      ),
    );
    const changed = ["steps", "guidance", "width", "height"].some((n) => model.get(n) !== null);
    ui.defaults.hidden = !changed;
  }

  function showText() {
    for (const [area, name] of [[ui.prompt, "prompt"], [ui.negative, "negative_prompt"]]) {
      if (area.value !== model.get(name)) area.value = model.get(name);
    }
    if (model.get("negative_prompt")) ui.negativeFold.open = true;
    const seed = model.get("seed");
    const text = seed === null ? "" : String(seed);
    if (document.activeElement !== ui.seed) ui.seed.value = text;
  }

  // what happens

  function showWords() {
    const { state, text, wait_s, part } = job();
    if (!busy()) {
      ui.status.hidden = state !== "cancelled";
      ui.bar.hidden = true;
      ui.words.textContent = state === "cancelled" ? "Cancelled" : "";
    } else {
      ui.status.hidden = false;
      ui.bar.hidden = false;
      if (part === null || part === undefined) ui.bar.removeAttribute("value");
      else ui.bar.value = part;
      let words = text ?? "";
      if (wait_s !== null && wait_s !== undefined) {
        words += `, ${about(wait_s - (Date.now() - announcedAt) / 1000)}`;
      }
      if (cancelling && cancelling === job().id) words = "Cancelling after this step";
      if (pending !== null) words = "Sent";
      ui.words.textContent = words;
    }
    ui.generate.disabled = busy();
    ui.cancel.disabled = !busy() || pending !== null;
    ui.root.classList.toggle("wg-busy", busy());
  }

  function showJob() {
    announcedAt = Date.now();
    settle();
    const { state, text } = job();
    // Screen readers hear phases, not every step.
    const spoken = state === "running" ? "Drawing" : state === "done" ? "The picture is done" : text;
    if (ui.spoken.textContent !== spoken) ui.spoken.textContent = spoken ?? "";
    showWords();
    showPicture();
  }

  function showPicture() {
    const preview = model.get("_preview");
    const { state, width, height } = job();
    const forming = ["queued", "running"].includes(state);
    const made = model.get("_made");
    const source = forming && preview ? preview : pictureUrl;
    ui.image.hidden = !source;
    ui.empty.hidden = Boolean(source) || forming;
    ui.frame.classList.toggle("wg-forming", forming);
    if (source && ui.image.getAttribute("src") !== source) ui.image.src = source;
    const isPreview = source === preview && Boolean(preview);
    ui.image.classList.toggle("wg-preview", isPreview);
    ui.image.alt = isPreview ? "The picture as it forms" : `Picture: ${made.prompt ?? ""}`;
    const [w, h] = isPreview || !made.width ? [width, height] : [made.width, made.height];
    if (w && h) {
      ui.frame.style.setProperty("--wg-ratio", `${w} / ${h}`);
      ui.frame.style.setProperty("--wg-width", `${Math.max(NARROWEST_PICTURE_PX, w)}px`);
    }
  }

  function takePicture() {
    const bytes = model.get("_picture");
    if (pictureUrl) URL.revokeObjectURL(pictureUrl);
    pictureUrl = "";
    if (bytes && bytes.byteLength) {
      pictureUrl = URL.createObjectURL(new Blob([bytes], { type: "image/png" }));
    }
    const made = model.get("_made");
    ui.caption.textContent = made.model
      ? `${made.model} · seed ${made.seed} · ${made.steps} steps · ${made.width} × ${made.height}`
      : "";
    ui.caption.title = made.prompt ?? "";
    ui.tools.hidden = !pictureUrl;
    showPicture();
  }

  function showStrip() {
    const strip = model.get("_strip");
    ui.strip.hidden = strip.length < 2;
    ui.strip.replaceChildren(
      ...[...strip].reverse().map(({ index, data, words }) => {
        const picture = make("img", { src: data, alt: words });
        const button = make("button", { type: "button", title: words }, picture);
        button.addEventListener("click", () => model.send({ wish: "show", index }));
        return make("div", { role: "listitem" }, button);
      }),
    );
  }

  function showError() {
    settle();
    const { title, message } = model.get("_error");
    ui.error.hidden = !message;
    ui.error.replaceChildren();
    if (message) ui.error.append(make("strong", {}, `${title}:`), ` ${message}`);
    showWords();
  }

  // wishes

  /** The kernel has answered. */
  function settle() {
    if (pending !== null) clearTimeout(pending);
    pending = null;
  }

  function generate() {
    if (busy()) return;
    ui.error.hidden = true;
    readText();
    model.send({ wish: "generate" });
    pending = setTimeout(() => {
      ui.words.textContent = "This notebook runs a cell. Your picture is next when it ends.";
    }, KERNEL_PATIENCE_MS);
    showWords();
  }

  async function cancel() {
    const { id } = job();
    cancelling = id;
    showWords();
    if (!(await cancelByRest(id))) model.send({ wish: "cancel" });
  }

  function readText() {
    const seed = ui.seed.value.trim();
    model.set("prompt", ui.prompt.value);
    model.set("negative_prompt", ui.negative.value);
    model.set("seed", /^\d+$/.test(seed) ? Number(seed) : null);
    model.save_changes();
  }

  let typing = null;
  const readSoon = () => {
    clearTimeout(typing);
    typing = setTimeout(readText, 250);
  };
  ui.prompt.addEventListener("input", readSoon);
  ui.negative.addEventListener("input", readSoon);
  ui.seed.addEventListener("input", readSoon);
  ui.model.addEventListener("change", () => set("model", ui.model.value));
  ui.dice.addEventListener("click", () => {
    ui.seed.value = String(Math.floor(Math.random() * 2 ** 31));
    readText();
  });
  ui.steps.addEventListener("input", () => (ui.stepsValue.value = ui.steps.value));
  ui.steps.addEventListener("change", () => set("steps", Number(ui.steps.value)));
  ui.guidance.addEventListener("input", () => (ui.guidanceValue.value = ui.guidance.value));
  ui.guidance.addEventListener("change", () => set("guidance", Number(ui.guidance.value)));
  ui.size.addEventListener("change", () => {
    const [width, height] = ui.size.value.split("x").map(Number);
    model.set({ width, height });
    model.save_changes();
  });
  ui.defaults.addEventListener("click", () => {
    model.set({ steps: null, guidance: null, width: null, height: null });
    model.save_changes();
  });
  ui.form.addEventListener("submit", (event) => {
    event.preventDefault();
    generate();
  });
  ui.cancel.addEventListener("click", cancel);
  ui.root.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      event.stopPropagation();
      generate();
    }
  });
  for (const chip of ui.empty.querySelectorAll("button")) {
    chip.addEventListener("click", () => {
      ui.prompt.value = chip.textContent;
      generate();
    });
  }
  ui.keepSeed.addEventListener("click", () => {
    ui.seed.value = String(model.get("_made").seed);
    readText();
  });
  ui.save.addEventListener("click", () => {
    const made = model.get("_made");
    make("a", { href: pictureUrl, download: `${made.model}-${made.seed}.png` }).click();
  });
  ui.copy.addEventListener("click", async () => {
    await copyText(model.get("_made").code);
    ui.copy.textContent = "Copied";
    setTimeout(() => (ui.copy.textContent = "Copy as code"), 1500);
  });

  on("change:_models", () => (showModels(), showOptions()));
  on("change:model", () => (showModels(), showOptions()));
  for (const name of ["steps", "guidance", "width", "height"]) on(`change:${name}`, showOptions);
  for (const name of ["prompt", "negative_prompt", "seed"]) on(`change:${name}`, showText);
  on("change:_job", showJob);
  on("change:_preview", showPicture);
  on("change:_picture", takePicture);
  on("change:_strip", showStrip);
  on("change:_error", showError);

  showModels();
  showOptions();
  showText();
  takePicture();
  showStrip();
  showError();
  showJob();
  const clock = setInterval(() => {
    if (pending === null && job().wait_s != null) showWords();
  }, 1000);

  return () => {
    clearInterval(clock);
    clearTimeout(typing);
    settle();
    for (const [name, handler] of watched) model.off(name, handler);
    if (pictureUrl) URL.revokeObjectURL(pictureUrl);
  };
}

export default { render };
