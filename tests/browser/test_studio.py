"""JupyterLab, Notebook 7, the first notebook and the studio in a real browser."""

import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image
from playwright.sync_api import Locator, expect

from tests.api.people import WAIT_S
from tests.browser.conftest import OpenLab
from tests.browser.lab import SLOW_MS, Lab
from tests.serverprocess import ServerProcess

Screenshot = Callable[[Lab, str], None]

STUDIO = """
import workshop_gpu as wg
studio = wg.Studio(prompt="a yellow star on a green background", model="shapes", seed=7)
studio
"""
LONG = 'studio.steps, studio.width, studio.height = 100, 256, 256\nstudio.prompt = "a red circle"'
BUSY_UNTIL_THE_END = """
import time
while studio._job.get("state") not in ("cancelled", "failed", "done"):
    time.sleep(0.01)
print("the job was", studio._job["state"])
"""
BEGINNING = "print(studio.start_image.size, studio.mask.getextrema(), studio.strength)"
WENT_ON = """
(shown,) = studio._shown
studio._shown = [{**shown, "made": {**shown["made"], "went_on": "went on with VAE tiling"}}]
"""
LOADING = """
from tests.client.fakes import a_job, a_model
from workshop_gpu.client.words import Progress
loading = {"done_bytes": 3 * 10**9, "total_bytes": 27 * 10**9, "bytes_per_s": 12.1e9}
model = a_model("sdxl", state="loading", **loading)
studio._show(Progress(a_job(model="sdxl", expected_wait_s=600.0), model))
"""
OPTIONS = "print(studio.model, studio.steps, studio.width, studio.height, studio.count)"


@pytest.fixture
def api(server: ServerProcess) -> Iterator[httpx.Client]:
    """The instructor's own requests."""
    headers = {"Authorization": f"token {server.token}"}
    url = f"{server.url}workshop-gpu/api/"
    with httpx.Client(base_url=url, headers=headers, trust_env=False, timeout=WAIT_S) as http:
        yield http


def button(lab: Lab, name: str) -> Locator:
    return lab.studio.get_by_role("button", name=name, exact=True)


def words(lab: Lab) -> Locator:
    return lab.studio.locator(".wg-words")


def past(lab: Lab) -> Locator:
    return lab.studio.get_by_role("group", name="Earlier pictures").get_by_role("button")


def pick(lab: Lab, model: str) -> None:
    lab.studio.locator(".wg-model-now").click()
    lab.studio.locator(f".wg-model-row:has([value='{model}'])").click()


def expect_picture(lab: Lab, caption: str) -> None:
    """The picture is there, whole, and made as the caption says."""
    expect(lab.studio.locator(".wg-caption")).to_contain_text(caption, timeout=SLOW_MS)
    image = lab.studio.locator(".wg-tiles img").filter(visible=True).first
    expect(image).to_be_visible()
    lab.page.wait_for_function(
        "(image) => image.complete && image.naturalWidth === 128", arg=image.element_handle()
    )


def expect_printed(lab: Lab, text: str) -> None:
    """What the second cell prints, once the kernel has heard of all clicks: they may be behind."""
    printed = ""
    for _ in range(10):
        printed = lab.run(1).text_content() or ""
        if text in printed:
            return
    raise AssertionError(f"{printed!r}, not {text!r}")


def nameless(lab: Lab) -> Any:
    """Controls that a screen reader could not name."""
    return lab.studio.evaluate(
        """(root) => [...root.querySelectorAll("input, select, textarea, button, progress")]
          .filter((c) => !c.labels?.length && !c.ariaLabel && !c.textContent.trim()
                         && !c.querySelector("img[alt]:not([alt=''])"))
          .map((c) => c.outerHTML)"""
    )


def test_the_first_notebook_gives_a_picture_by_code_and_by_clicking(
    open_lab: OpenLab, screenshot: Screenshot
) -> None:
    lab = open_lab("01-first-image.ipynb")
    lab.theme("JupyterLab Light")
    output = lab.run(0)
    expect(output.locator("img[src^='data:image/png']")).to_be_visible()
    expect(output).to_contain_text("20 steps")
    lab.run(1)
    screenshot(lab, "light-1-new")
    button(lab, "Generate").click()
    expect_picture(lab, "shapes · seed")
    lab.studio.scroll_into_view_if_needed()
    screenshot(lab, "light-2-picture")
    background = "(studio) => getComputedStyle(studio).backgroundColor"
    light = lab.studio.evaluate(background)
    lab.theme("JupyterLab Dark")
    assert lab.studio.evaluate(background) != light
    screenshot(lab, "dark")


def test_the_speed_of_a_load_and_how_a_job_went_on_stand_there_in_words(
    open_lab: OpenLab, screenshot: Screenshot
) -> None:
    lab = open_lab([STUDIO, WENT_ON, LOADING])
    lab.run(0)
    button(lab, "Generate").click()
    expect_picture(lab, "shapes · seed 7")
    lab.run(1)
    expect(lab.studio.locator(".wg-caption")).to_contain_text("128 × 128 · went on with VAE tiling")
    lab.run(2)
    expect(words(lab)).to_have_text("Loading sdxl: 3.0 of 27.0 GB, 12.1 GB/s, about 10 min")
    for theme in ("Light", "Dark"):
        lab.theme(f"JupyterLab {theme}")
        lab.studio.scroll_into_view_if_needed()
        screenshot(lab, f"loading-{theme.lower()}")


def test_all_of_it_by_keyboard_and_mouse(open_lab: OpenLab, screenshot: Screenshot) -> None:
    lab = open_lab([STUDIO, OPTIONS])
    lab.run(0)
    prompt = lab.studio.get_by_label("Prompt", exact=True)
    prompt.fill("a red circle on a blue background")
    prompt.press("Control+Enter")
    expect_picture(lab, "shapes · seed 7")
    expect(lab.cells.first.locator(".jp-InputPrompt")).to_have_text("[1]:")
    expect(lab.studio.locator(".wg-tiles img")).to_have_attribute("alt", re.compile("red circle"))
    # The keys of Jupyter's command mode ("d d" deletes a cell) are letters here.
    prompt.fill("")
    prompt.press_sequentially("add a bdd")
    expect(prompt).to_have_value("add a bdd")
    button(lab, "Draw a seed").focus()
    lab.page.keyboard.type("ddx")
    assert lab.cells.count() == 2
    lab.studio.get_by_label("Size", exact=True).select_option(index=1)
    expect_printed(lab, "shapes None 144 112 1")
    # Another model, by arrow keys: each with its own limits and defaults.
    lab.studio.locator(".wg-model-now").press("Enter")
    expect(lab.studio.get_by_role("radio", name="Shapes", exact=True)).to_be_focused()
    screenshot(lab, "models")
    lab.page.keyboard.press("ArrowDown")
    lab.page.keyboard.press("ArrowDown")
    lab.page.keyboard.press("Enter")
    steps = lab.studio.get_by_label("Steps", exact=True)
    expect(steps).to_have_value("4")
    steps.fill("9")
    lab.studio.get_by_label("Pictures", exact=True).fill("99")
    expect_printed(lab, "shapes-dit-turbo 9 None None 8")
    button(lab, "Back to the model's defaults").click()
    expect(steps).to_have_value("4")
    # Several pictures with a seed from the dice; then one of them alone.
    prompt.fill("a white square on a black background")
    button(lab, "Draw a seed").click()
    seed = int(lab.studio.get_by_label("Seed", exact=True).input_value())
    lab.studio.get_by_label("Pictures", exact=True).fill("4")
    lab.page.keyboard.press("Control+Enter")
    expect_picture(lab, f"shapes-dit-turbo · seed {seed}")
    tiles = lab.studio.get_by_role("group", name="New pictures").get_by_role("button")
    expect(tiles).to_have_count(4)
    expect(past(lab)).to_have_count(5)
    expect(past(lab).last.locator("img")).to_have_attribute("src", re.compile("^data:image/jpeg"))
    screenshot(lab, "four")
    tiles.nth(2).click()
    expect_picture(lab, f"seed {seed + 2}")
    # An earlier one from the strip, again, and with another seed, which the lock keeps.
    past(lab).last.click()
    expect_picture(lab, "shapes · seed 7")
    button(lab, "Vary the seed").click()
    expect(prompt).to_have_value("a red circle on a blue background")
    expect(past(lab)).to_have_count(6, timeout=SLOW_MS)
    field = lab.studio.get_by_label("Seed", exact=True)
    expect(field).to_have_value("")
    button(lab, "Keep the seed").click()
    expect(field).not_to_have_value("")
    assert field.input_value() in (lab.studio.locator(".wg-caption").text_content() or "")
    assert nameless(lab) == []
    # On a narrow page the picture stands below.
    form, stage = lab.studio.locator(".wg-form"), lab.studio.locator(".wg-stage")
    beside = """([form, stage]) =>
      form.getBoundingClientRect().right <= stage.getBoundingClientRect().left + 1"""
    handles = [form.element_handle(), stage.element_handle()]
    assert lab.page.evaluate(beside, handles)
    lab.command("application:toggle-left-area")
    lab.page.set_viewport_size({"width": 560, "height": 1500})
    lab.page.wait_for_function(f"(both) => !({beside})(both)", arg=handles)
    screenshot(lab, "narrow")
    # The page loaded anew: nothing is lost. Lab may have forgotten that its left area was hidden,
    # and on a narrow page the notebook's toolbar would then hide what `reload` waits for.
    lab.page.set_viewport_size({"width": 1280, "height": 900})
    lab.reload()
    expect_picture(lab, f"shapes · seed {field.input_value()}")
    expect(past(lab)).to_have_count(6)
    past(lab).first.scroll_into_view_if_needed()  # pictures out of sight are not asked for
    expect(past(lab).first.locator("img")).to_have_attribute("src", re.compile("^data:image/jpeg"))


def test_progress_and_cancel_work_while_the_kernel_is_busy(
    open_lab: OpenLab, screenshot: Screenshot
) -> None:
    lab = open_lab([STUDIO, LONG, BUSY_UNTIL_THE_END, "import os; print(os.getpid())"])
    lab.run(0)
    lab.run(1)
    button(lab, "Generate").click()
    expect(words(lab)).to_contain_text(
        re.compile("Step|Starting|Loading|queue|loaded"), timeout=SLOW_MS
    )
    busy = lab.start(2)
    expect(busy.locator(".jp-InputPrompt")).to_have_text("[*]:")
    expect(lab.studio.locator("img.wg-preview")).to_be_visible(timeout=SLOW_MS)
    expect(words(lab)).to_contain_text(re.compile(r"Step \d+ of 100"))
    screenshot(lab, "busy")
    expect(busy.locator(".jp-InputPrompt")).to_have_text("[*]:")
    lab.studio.get_by_label("Prompt", exact=True).press("Escape")
    expect(words(lab)).to_have_text("Cancelled", timeout=SLOW_MS)
    expect(lab.done(busy)).to_contain_text("the job was cancelled")
    expect(button(lab, "Generate")).to_be_enabled()
    # A click that the kernel does not hear yet says why nothing happens, and is done later.
    button(lab, "Back to the model's defaults").click()
    kernel = int(lab.run(3).text_content() or "")
    os.kill(kernel, signal.SIGSTOP)
    button(lab, "Generate").click()
    expect(words(lab)).to_contain_text("This notebook runs a cell")
    os.kill(kernel, signal.SIGCONT)
    expect_picture(lab, "shapes · seed 7")


def test_it_works_in_notebook_7_too(open_lab: OpenLab, screenshot: Screenshot) -> None:
    lab = open_lab([STUDIO, LONG], path="notebooks")
    lab.run(0)
    button(lab, "Generate").click()
    expect_picture(lab, "shapes · seed 7")
    screenshot(lab, "notebook-7")
    # Where a page does not say from which server it came, Cancel goes by way of the kernel.
    lab.page.evaluate("document.getElementById('jupyter-config-data').remove()")
    lab.run(1)
    button(lab, "Generate").click()
    expect(words(lab)).to_contain_text("Step", timeout=SLOW_MS)
    button(lab, "Cancel").click()
    expect(words(lab)).to_have_text("Cancelled")


def test_a_mistake_is_said_in_words_and_can_be_mended(
    open_lab: OpenLab, api: httpx.Client, screenshot: Screenshot
) -> None:
    lab = open_lab([STUDIO])
    lab.run(0)
    prompt = lab.studio.get_by_label("Prompt", exact=True)
    alert = lab.studio.get_by_role("alert").filter(visible=True)
    prompt.fill("")
    button(lab, "Generate").click()
    expect(alert).to_contain_text("the prompt is empty")
    screenshot(lab, "mistake")
    prompt.evaluate(
        "(area) => { area.value = 'x'.repeat(1e7); area.dispatchEvent(new Event('input')); }"
    )
    button(lab, "Generate").click()
    expect(alert.filter(has_text="10,000,000 characters")).to_be_visible()
    # The instructor withdraws the model between picking and clicking.
    api.patch("models/shapes", json={"offered": False, "reason": "after the break"})
    prompt.fill("<img src=x onerror=alert(1)> a red circle")
    expect(lab.studio.locator(".wg-about")).to_contain_text("after the break")
    button(lab, "Generate").click()
    expect(alert.filter(has_text="after the break")).to_be_visible()
    lab.studio.locator(".wg-model-now").click()
    expect(lab.studio.get_by_role("radio").first).to_be_disabled()
    screenshot(lab, "withdrawn")
    api.patch("models/shapes", json={"offered": True})
    expect(lab.studio.get_by_role("radio").first).to_be_enabled()
    button(lab, "Generate").click()
    expect_picture(lab, "shapes · seed 7")
    expect(alert).to_have_count(0)
    assert lab.studio.locator("img[src='x']").count() == 0


def test_two_people_see_the_queue_move_and_a_model_leave(
    open_lab: OpenLab, api: httpx.Client, screenshot: Screenshot
) -> None:
    ada, bob = open_lab([STUDIO]), open_lab([STUDIO])
    long = {"model": "shapes", "prompt": "a circle", "steps": 100, "width": 256, "height": 256}
    for lab in (ada, bob):
        lab.run(0)
    first, second = (
        api.post("jobs", json=long | {"priority": "urgent", "images": 8}).json()["id"]
        for _ in range(2)
    )
    expect(words(bob)).to_contain_text(re.compile("Starts in about|loaded"), timeout=SLOW_MS)
    button(bob, "Generate").click()
    expect(words(bob)).to_contain_text("Position 2", timeout=SLOW_MS)
    screenshot(bob, "waiting")
    api.delete(f"jobs/{first}")
    expect(words(bob)).to_contain_text("Next in the queue", timeout=SLOW_MS)
    api.delete(f"jobs/{second}")
    expect_picture(bob, "shapes · seed 7")
    for lab in (ada, bob):
        expect(lab.studio.locator(".wg-model-now")).to_contain_text("ready · starts at once")
    api.post("message", json={"text": "Back at <b>one</b>"})
    for lab in (ada, bob):
        expect(lab.studio.locator(".wg-banner")).to_contain_text("Back at <b>one</b>")
    screenshot(ada, "banner")
    api.delete("message")
    expect(ada.studio.locator(".wg-banner")).to_be_hidden()
    api.post("models/shapes/evict")
    for lab in (ada, bob):
        expect(lab.studio.locator(".wg-model-now")).to_contain_text("on disk")


def test_a_mask_is_drawn_with_the_mouse_over_a_picture(
    open_lab: OpenLab, tmp_path: Path, screenshot: Screenshot
) -> None:
    lab = open_lab([STUDIO, BEGINNING])
    lab.run(0)
    pick(lab, "shapes-dit")
    text, picture = tmp_path / "notes.txt", tmp_path / "sketch.png"
    text.write_text("no picture")
    Image.new("RGB", (128, 96), "navy").save(picture)
    lab.studio.get_by_text("Begin with a picture").click()
    chooser = lab.studio.locator("input[type=file]")
    chooser.set_input_files(text)
    alert = lab.studio.get_by_role("alert").filter(visible=True)
    expect(alert).to_contain_text('"notes.txt" is not a picture')
    chooser.set_input_files(picture)
    start = lab.studio.get_by_alt_text("Start image")
    expect(start).to_be_visible()
    expect(lab.studio.get_by_label("Size", exact=True)).to_contain_text("As the start image")
    button(lab, "Draw a mask").click()
    canvas = lab.studio.locator("canvas")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2
    lab.page.mouse.move(box["x"] + 40, middle)
    lab.page.mouse.down()
    lab.page.mouse.move(box["x"] + box["width"] / 2, middle, steps=8)
    lab.page.mouse.up()
    screenshot(lab, "mask")
    strength = lab.studio.get_by_label("Strength")
    expect(strength).to_have_value("1")
    strength.fill("0.8")
    expect_printed(lab, "(128, 96) (0, 255) 0.8")
    button(lab, "Generate").click()
    expect(lab.studio.locator(".wg-caption")).to_contain_text(
        "shapes-dit · seed 7", timeout=SLOW_MS
    )
    # The page loaded anew has both; keys clear the mask and paint it, too.
    lab.reload()
    expect(start).to_be_visible()
    painted = "(c) => c.getContext('2d').getImageData(0, 0, 128, 96).data.some((v) => v > 0)"
    lab.page.wait_for_function(painted, arg=canvas.element_handle())
    button(lab, "Draw a mask").click()
    canvas.focus()
    lab.page.keyboard.press("Delete")
    expect(strength).to_have_value("0.8")
    assert not canvas.evaluate(painted)
    lab.page.keyboard.press("ArrowRight")
    lab.page.keyboard.press("Space")
    assert canvas.evaluate(painted)
    expect_printed(lab, "(128, 96) (0, 255) 0.8")
    # What was made may be the next beginning.
    button(lab, "Use as start image").click()
    lab.page.wait_for_function("(c) => c.width === 128", arg=canvas.element_handle())
    button(lab, "Remove").click()
    expect(start).to_be_hidden()


def test_the_history_outlives_the_server_and_its_kernels(
    open_lab: OpenLab, server: ServerProcess, screenshot: Screenshot
) -> None:
    lab = open_lab([STUDIO], name="kept")
    lab.run(0)
    button(lab, "Generate").click()
    expect_picture(lab, "shapes · seed 7")
    lab.close()
    server.end()
    server.start()
    lab = open_lab([STUDIO], name="kept")
    lab.run(0)
    expect(past(lab)).to_have_count(1)
    past(lab).first.click()
    expect_picture(lab, "shapes · seed 7")
    button(lab, "Vary the seed").click()
    expect(past(lab)).to_have_count(2, timeout=SLOW_MS)


LORA = """
import workshop_gpu as wg
studio = wg.Studio(prompt="a yellow star on a green background", model="shapes", seed=7, steps=4)
studio
"""


def test_a_lora_is_put_on_by_its_chip_and_weighed_by_its_slider(
    open_lab: OpenLab, screenshot: Screenshot
) -> None:
    lab = open_lab([LORA, "print(studio.loras, studio.images[-1].metadata['loras'])"])
    lab.run(0)
    group = lab.studio.get_by_role("group", name="LoRAs")
    chip, scale = group.get_by_role("button", name="Outlines"), group.get_by_role("slider")
    expect(chip).to_have_attribute("aria-pressed", "false")
    expect(group.locator("input")).to_be_hidden()
    chip.focus()
    lab.page.keyboard.press("Enter")
    expect(chip).to_have_attribute("aria-pressed", "true")
    expect(chip).to_be_focused()
    expect(scale).to_have_value("1")
    scale.focus()
    lab.page.keyboard.press("ArrowLeft")
    expect(group.locator("output").filter(visible=True)).to_have_text("0.95")
    assert nameless(lab) == []
    button(lab, "Generate").click()
    expect_picture(lab, "shapes · seed 7 · 4 steps · 128 × 128 · shapes-outline 0.95")
    screenshot(lab, "studio-lora-light")
    expect_printed(lab, "{'shapes-outline': 0.95} {'shapes-outline': 0.95}")
    lab.theme("JupyterLab Dark")
    screenshot(lab, "studio-lora-dark")
    pick(lab, "shapes-dit-turbo")
    expect(group).to_be_hidden()
