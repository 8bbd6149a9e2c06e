"""The status and admin widgets in a real browser."""

from collections.abc import Callable

from playwright.sync_api import expect

from tests.api.people import Person
from tests.browser.conftest import OpenLab
from tests.browser.lab import Lab
from tests.serverprocess import ServerProcess

Screenshot = Callable[[Lab, str], None]

STATUS = """
import workshop_gpu as wg
wg.connect().rename("faces")
handle = wg.submit("a yellow star", model="shapes", seed=7)
room = wg.reserve(gb=0.4, progress=False)
wg.Status()
"""


def test_the_status_shows_memory_by_name_who_waits_and_what_happened(
    open_lab: OpenLab, server: ServerProcess, screenshot: Screenshot
) -> None:
    lab = open_lab([STATUS, "again = wg.submit('a red ring', model='shapes-dit')"])
    with Person(server, "Ada") as ada, Person(server, "Grace") as grace:
        ada.ended(ada.submit()["id"])
        lab.run(0)
        room = lab.page.locator(".wg-room")
        expect(room.locator(".wg-news")).to_contain_text("shapes was loaded on cpu:0")
        expect(room.locator(".wg-legend")).to_contain_text("reserved by faces")
        # Another model comes in front of the piece that has the focus, which keeps it.
        margin = room.locator(".wg-piece.wg-margin")
        margin.focus()
        ada.ended(ada.submit(model="shapes-dit", steps=1)["id"])
        expect(room.locator(".wg-legend")).to_contain_text("shapes-dit")
        expect(room.locator(".wg-piece.wg-model-2")).to_have_count(1)
        expect(margin).to_be_focused()
        expect(room.locator(".wg-told")).to_contain_text("safety margin")
        # Nothing begins while the queue is paused: then all who wait are there to be seen.
        with ada.paused("lunch until one"):
            for somebody in (ada, grace):
                somebody.submit()
            lab.run(1)
            expect(room.locator(".wg-paused")).to_contain_text("lunch until one")
            expect(room.locator(".wg-queue .wg-row")).to_have_count(4)
            expect(room.locator(".wg-queue .wg-mine")).to_have_count(2)
            expect(room.locator(".wg-queue")).to_contain_text("Grace")
            ada.http.post("api/message", json={"text": "Welcome!"}).raise_for_status()
            expect(room.locator(".wg-banner")).to_have_text("Welcome!")
            piece = room.locator(".wg-piece.wg-model-0").first
            piece.focus()
            expect(room.locator(".wg-told")).to_contain_text(" · ready")
            screenshot(lab, "status-light")
            lab.theme("JupyterLab Dark")
            lab.command("application:toggle-left-area")
            lab.page.set_viewport_size({"width": 470, "height": 1000})
            screenshot(lab, "status-dark-narrow")
            lab.page.set_viewport_size({"width": 1280, "height": 900})
            lab.theme("JupyterLab Light")
            ada.http.delete("api/message").raise_for_status()
    expect(room.locator(".wg-queue .wg-row")).to_have_count(1)
    expect(room.locator(".wg-paused")).to_be_hidden()


LONG = "a-model-with-quite-a-long-name-of-its-own"
KEPT_FREE = f"""
from msgspec.structs import replace
import workshop_gpu as wg
from workshop_gpu.client.widgets.status_view import status_view
from workshop_gpu.conductor.effects import Holder

room = wg.Status()
room._closed.set()  # it shows what no event of this server may change
known = wg.connect().status().status
holders = [
    Holder("weights", "a", 4 * 10**9), Holder("shared", "a, b", 10**9),
    Holder("reservation", "Ada", 2 * 10**9), Holder("foreign", "others", 10**9),
    Holder("kept_free", "{LONG}", 6 * 10**9), Holder("margin", "", 10**9),
]
device = replace(known.devices[0], total_bytes=24 * 10**9, holders=holders, slots=[])
room._view = status_view(replace(known, devices=[device]))
room
"""
LOOKS = """(pieces) => pieces.map((piece) => {
  const { backgroundImage, backgroundColor } = getComputedStyle(piece);
  return `${backgroundImage} ${backgroundColor}`;
})"""


def test_what_stays_free_beside_a_model_looks_like_nothing_else_and_is_named_in_full(
    open_lab: OpenLab, screenshot: Screenshot
) -> None:
    lab = open_lab([KEPT_FREE])
    room = lab.run(0).locator(".wg-room")
    pieces, told = room.locator(".wg-piece"), room.locator(".wg-told")
    expect(pieces).to_have_count(6)
    kept = room.get_by_role("listitem", name=f"stays free beside {LONG} · 6.0 GB", exact=True)
    for theme in ("JupyterLab Light", "JupyterLab Dark"):
        lab.theme(theme)
        for what in (pieces, room.locator(".wg-swatch")):
            assert len(set(what.evaluate_all(LOOKS))) == 6, "each has a look of its own"
        kept.focus()
        screenshot(lab, f"status-kept-free-{theme.split()[1].lower()}")
    lab.command("application:toggle-left-area")
    lab.page.set_viewport_size({"width": 470, "height": 700})
    expect(told).to_have_text(f"stays free beside {LONG} · 6.0 GB")
    assert told.evaluate("(node) => node.scrollWidth <= node.clientWidth"), "nothing is cut off"
    screenshot(lab, "status-kept-free-dark-narrow")
    lab.theme("JupyterLab Light")
    screenshot(lab, "status-kept-free-light-narrow")


ADMIN = """
import workshop_gpu as wg
wg.connect().rename("faces")
refused = wg.Admin()
wg.connect("{url}", token="{token}")
refused
"""


def test_the_instructor_clicks_and_what_hurts_asks_first(
    open_lab: OpenLab, server: ServerProcess, screenshot: Screenshot
) -> None:
    with Person(server, "Ada") as ada:
        for model in ada.slots():  # of an earlier test
            ada.evict(model)
    lab = open_lab([ADMIN.format(url=server.url, token=server.token), "wg.Admin()", "wg.Status()"])
    refusal = lab.run(0).locator(".wg-refusal")
    expect(refusal).to_contain_text("the instructor's right")
    admin = lab.run(1).locator(".wg-admin")
    room = lab.run(2).locator(".wg-room")
    # A message: everybody reads it, as text.
    admin.get_by_role("button", name="Tell everybody: Message to all").click()
    admin.get_by_label("What should everybody read?").fill("<b>Save</b> your pictures")
    admin.get_by_role("button", name="Tell everybody", exact=True).click()
    expect(admin.locator(".wg-result")).to_have_text("Everybody reads it now.")
    expect(room.locator(".wg-banner")).to_have_text("<b>Save</b> your pictures")
    # A model is loaded at once; its eviction asks first, and No leaves it.
    models = admin.get_by_role("region", name="Models")
    models.get_by_role("button", name="Load: Shapes DiT Turbo").click()
    evict = models.get_by_role("button", name="Evict: Shapes DiT Turbo")
    evict.click()
    question = admin.locator(".wg-ask")
    expect(question).to_contain_text("waits for it to be loaded")
    screenshot(lab, "admin-light")
    admin.get_by_role("button", name="No, leave it").click()
    expect(question).to_have_count(0)
    evict.click()
    admin.get_by_role("button", name="Evict", exact=True).click()
    expect(room.locator(".wg-news")).to_contain_text("evicted (asked by the instructor)")
    # The queue is paused by keyboard alone, and Escape takes a question back.
    pause = admin.get_by_role("button", name="Pause: Queue")
    pause.press("Enter")
    why = admin.get_by_label("Why? Everybody who waits reads it.")
    expect(why).to_be_focused()
    why.press("Escape")
    expect(why).to_have_count(0)
    lab.theme("JupyterLab Dark")
    lab.command("application:toggle-left-area")
    lab.page.set_viewport_size({"width": 470, "height": 1100})
    admin.scroll_into_view_if_needed()
    screenshot(lab, "admin-dark-narrow")
    lab.page.set_viewport_size({"width": 1280, "height": 900})
    lab.theme("JupyterLab Light")
    admin.get_by_role("button", name="Take back: Message to all").click()
    expect(room.locator(".wg-banner")).to_be_hidden()
