"""A grid fills in a notebook; two models lie under one slider."""

from playwright.sync_api import expect

CELLS = [
    """
import workshop_gpu as wg

grid = wg.grid(
    ["a red circle on a blue background", "a yellow star on a green background"],
    models=["shapes", "shapes-dit-turbo"],
    seeds=[1, 2, 3],
    steps=4,
)
""",
    "grid.compare()",
    'wg.grid("a white square on a black background", "shapes", range(5), steps=2)',
]


def test_a_grid_fills_and_one_slider_moves_through_all_its_pairs(open_lab, screenshot):
    lab = open_lab(CELLS)
    sheet = lab.run(0)
    expect(sheet.locator("img")).to_have_count(12)
    expect(sheet.locator("th[scope=row]")).to_have_count(4)
    expect(sheet.get_by_role("status")).to_have_text("12 of 12 made")
    screenshot(lab, "grid-light")

    compared = lab.run(1).locator(".wg-compare")
    expect(compared.locator("figure")).to_have_count(6)
    slider = compared.get_by_role("slider")
    left = compared.locator(".wg-left").last
    expect(left).to_have_css("clip-path", "inset(0px 50% 0px 0px)")
    slider.focus()
    slider.press("End")
    expect(left).to_have_css("clip-path", "inset(0px 0% 0px 0px)")
    frame = compared.locator(".wg-frame").first
    frame.click(position={"x": 40, "y": 40})
    assert float(slider.input_value()) < 50, "a click on a picture moves it there"
    compared.scroll_into_view_if_needed()
    screenshot(lab, "compare-light")

    strip = lab.run(2)
    expect(strip.locator("figure")).to_have_count(5)
    expect(strip.locator("img")).to_have_count(5)
    lab.theme("JupyterLab Dark")
    screenshot(lab, "grid-dark")
    lab.command("application:toggle-left-area")
    lab.page.set_viewport_size({"width": 420, "height": 900})
    strip.scroll_into_view_if_needed()
    screenshot(lab, "grid-narrow")
    compared.scroll_into_view_if_needed()
    screenshot(lab, "compare-narrow")
