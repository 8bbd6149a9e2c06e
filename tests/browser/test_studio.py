"""JupyterLab, the first notebook and the studio in a real browser."""

import re
from collections.abc import Callable

from playwright.sync_api import expect

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
BUSY_UNTIL_A_FILE_COMES = """
import time
from pathlib import Path
while not Path("go").exists():
    time.sleep(0.01)
"""


def expect_picture(lab: Lab, caption: str) -> None:
    """The picture is there, whole, and made as the caption says."""
    expect(lab.studio.locator(".wg-caption")).to_contain_text(caption, timeout=SLOW_MS)
    image = lab.studio.locator("img.wg-image")
    expect(image).to_be_visible()
    lab.page.wait_for_function(
        "(image) => image.complete && image.naturalWidth === 128", arg=image.element_handle()
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
    lab.studio.get_by_role("button", name="Generate").click()
    expect_picture(lab, "shapes · seed")
    lab.studio.scroll_into_view_if_needed()
    screenshot(lab, "light-2-picture")
    background = "(studio) => getComputedStyle(studio).backgroundColor"
    light = lab.studio.evaluate(background)
    lab.theme("JupyterLab Dark")
    assert lab.studio.evaluate(background) != light
    screenshot(lab, "dark")


def test_ctrl_enter_generates_and_does_not_run_the_cell(
    open_lab: OpenLab, screenshot: Screenshot
) -> None:
    lab = open_lab([STUDIO])
    lab.run(0)
    prompt = lab.studio.get_by_label("Prompt", exact=True)
    prompt.fill("a red circle on a blue background")
    prompt.press("Control+Enter")
    expect_picture(lab, "shapes · seed 7")
    expect(lab.cells.first.locator(".jp-InputPrompt")).to_have_text("[1]:")
    expect(lab.studio.locator("img.wg-image")).to_have_attribute("alt", re.compile("red circle"))
    # The keys of Jupyter's command mode ("d d" deletes a cell) are letters here.
    prompt.fill("")
    prompt.press_sequentially("add a bdd")
    expect(prompt).to_have_value("add a bdd")
    assert lab.cells.count() == 1
    # Another seed, by the dice; then the strip holds both pictures.
    prompt.fill("a white square on a black background")
    lab.studio.get_by_role("button", name="Draw a seed").click()
    seed = lab.studio.get_by_label("Seed", exact=True).input_value()
    lab.studio.get_by_role("button", name="Generate").click()
    expect_picture(lab, f"shapes · seed {seed}")
    strip = lab.studio.get_by_role("list", name="Earlier pictures").get_by_role("button")
    expect(strip).to_have_count(2)
    screenshot(lab, "strip")
    strip.last.click()
    expect_picture(lab, "shapes · seed 7")
    lab.studio.get_by_role("button", name="Keep this seed").click()
    expect(lab.studio.get_by_label("Seed", exact=True)).to_have_value("7")


def test_progress_and_cancel_work_while_the_kernel_is_busy(
    open_lab: OpenLab, screenshot: Screenshot
) -> None:
    lab = open_lab([STUDIO, LONG, BUSY_UNTIL_THE_END])
    lab.run(0)
    lab.run(1)
    lab.studio.get_by_role("button", name="Generate").click()
    words = lab.studio.locator(".wg-words")
    expect(words).to_contain_text(re.compile("Step|Starting|Loading|queue"), timeout=SLOW_MS)
    busy = lab.start(2)
    expect(busy.locator(".jp-InputPrompt")).to_have_text("[*]:")
    expect(lab.studio.locator("img.wg-preview")).to_be_visible(timeout=SLOW_MS)
    expect(words).to_contain_text(re.compile(r"Step \d+ of 100"))
    screenshot(lab, "busy")
    expect(busy.locator(".jp-InputPrompt")).to_have_text("[*]:")
    lab.studio.get_by_role("button", name="Cancel").click()
    expect(words).to_have_text("Cancelled", timeout=SLOW_MS)
    expect(lab.done(busy)).to_contain_text("the job was cancelled")
    expect(lab.studio.get_by_role("button", name="Generate")).to_be_enabled()


def test_a_click_while_the_kernel_is_busy_says_so_and_is_done_later(
    open_lab: OpenLab, server: ServerProcess
) -> None:
    lab = open_lab([STUDIO, BUSY_UNTIL_A_FILE_COMES])
    lab.run(0)
    busy = lab.start(1)
    expect(busy.locator(".jp-InputPrompt")).to_have_text("[*]:")
    lab.studio.get_by_role("button", name="Generate").click()
    expect(lab.studio.locator(".wg-words")).to_contain_text("This notebook runs a cell")
    (server.root_dir / "go").touch()
    expect_picture(lab, "shapes · seed 7")


def test_options_follow_the_model_and_come_back_to_its_defaults(open_lab: OpenLab) -> None:
    lab = open_lab([STUDIO, "print(studio.model, studio.steps, studio.width, studio.height)"])
    lab.run(0)
    steps = lab.studio.get_by_label("Steps")
    expect(steps).to_have_value("20")
    lab.studio.get_by_label("Model").select_option("shapes-dit-turbo")
    expect(steps).to_have_value("4")
    steps.fill("9")
    lab.studio.get_by_label("Size").select_option(index=1)
    expect(lab.run(1)).to_contain_text("shapes-dit-turbo 9 144 112")
    lab.studio.get_by_role("button", name="Back to the model's defaults").click()
    expect(steps).to_have_value("4")
    expect(lab.run(1)).to_contain_text("shapes-dit-turbo None None None")


def test_a_reload_of_the_page_keeps_options_and_pictures(open_lab: OpenLab) -> None:
    lab = open_lab([STUDIO])
    lab.run(0)
    lab.studio.get_by_role("button", name="Generate").click()
    expect_picture(lab, "shapes · seed 7")
    lab.studio.get_by_label("Seed", exact=True).fill("8")
    lab.studio.get_by_role("button", name="Generate").click()
    expect_picture(lab, "shapes · seed 8")
    lab.reload()
    expect_picture(lab, "shapes · seed 8")
    expect(lab.studio.get_by_label("Seed", exact=True)).to_have_value("8")
    expect(lab.studio.locator(".wg-strip button")).to_have_count(2)


def test_it_works_in_notebook_7_too(open_lab: OpenLab, screenshot: Screenshot) -> None:
    lab = open_lab([STUDIO, LONG], path="notebooks")
    lab.run(0)
    lab.studio.get_by_role("button", name="Generate").click()
    expect_picture(lab, "shapes · seed 7")
    screenshot(lab, "notebook-7")
    # Where a page does not say from which server it came, Cancel goes by way of the kernel.
    lab.page.evaluate("document.getElementById('jupyter-config-data').remove()")
    lab.run(1)
    lab.studio.get_by_role("button", name="Generate").click()
    expect(lab.studio.locator(".wg-words")).to_contain_text("Step", timeout=SLOW_MS)
    lab.studio.get_by_role("button", name="Cancel").click()
    expect(lab.studio.locator(".wg-words")).to_have_text("Cancelled")


def test_a_mistake_is_said_in_words_and_can_be_mended(
    open_lab: OpenLab, screenshot: Screenshot
) -> None:
    lab = open_lab([STUDIO])
    lab.run(0)
    prompt = lab.studio.get_by_label("Prompt", exact=True)
    prompt.fill("")
    lab.studio.get_by_role("button", name="Generate").click()
    alert = lab.studio.get_by_role("alert")
    expect(alert).to_contain_text("the prompt is empty")
    screenshot(lab, "mistake")
    prompt.fill("<img src=x onerror=alert(1)> a red circle")
    lab.studio.get_by_role("button", name="Generate").click()
    expect_picture(lab, "shapes · seed 7")
    expect(alert).to_be_hidden()
    assert lab.studio.locator("img[src='x']").count() == 0


def test_a_narrow_page_puts_the_picture_below_and_every_control_has_a_name(
    open_lab: OpenLab, screenshot: Screenshot
) -> None:
    lab = open_lab([STUDIO])
    lab.run(0)
    form, stage = lab.studio.locator(".wg-form"), lab.studio.locator(".wg-stage")

    def place(wide: bool) -> None:
        compare = "a.right <= b.left + 1" if wide else "a.bottom <= b.top + 1"
        lab.page.wait_for_function(
            f"""([form, stage]) => {{
              const [a, b] = [form.getBoundingClientRect(), stage.getBoundingClientRect()];
              return {compare};
            }}""",
            arg=[form.element_handle(), stage.element_handle()],
        )

    place(wide=True)
    lab.command("application:toggle-left-area")
    lab.page.set_viewport_size({"width": 560, "height": 1300})
    place(wide=False)
    screenshot(lab, "narrow")
    nameless = lab.studio.evaluate(
        """(root) => [...root.querySelectorAll("input, select, textarea, button, progress")]
          .filter((c) => !c.labels?.length && !c.ariaLabel && !c.textContent.trim())
          .map((c) => c.outerHTML)"""
    )
    assert nameless == []
