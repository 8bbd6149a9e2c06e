"""The status widget in a real browser."""

from collections.abc import Callable

from playwright.sync_api import expect

from tests.browser.conftest import OpenLab
from tests.browser.lab import Lab

Screenshot = Callable[[Lab, str], None]

STATUS = """
import workshop_gpu as wg
handle = wg.connect().submit("a yellow star", "shapes", seed=7)
wg.Status()
"""


def test_the_status_shows_memory_by_name_and_what_happened(
    open_lab: OpenLab, screenshot: Screenshot
) -> None:
    lab = open_lab([STATUS, "handle.wait()"])
    lab.run(0)
    room = lab.page.locator(".wg-room")
    lab.run(1)
    expect(room.locator(".wg-news")).to_contain_text("shapes was loaded on cpu:0")
    expect(room.locator(".wg-legend")).to_contain_text("shapes")
    piece = room.locator(".wg-piece.wg-weights")
    piece.focus()
    expect(room.locator(".wg-told")).to_contain_text("shapes · ")
    screenshot(lab, "status-light")
    lab.theme("JupyterLab Dark")
    lab.command("application:toggle-left-area")
    lab.page.set_viewport_size({"width": 470, "height": 900})
    screenshot(lab, "status-dark-narrow")
    lab.page.set_viewport_size({"width": 1280, "height": 900})
    lab.theme("JupyterLab Light")
