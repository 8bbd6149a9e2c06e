"""The GPU panel in JupyterLab, below a base URL: what participants see and instructors do."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, expect

from tests.api.people import TURBO, Person
from tests.browser.conftest import FOR_TESTS, end_kernels, write_notebook
from tests.browser.lab import SLOW_MS, Lab
from tests.browser.panel import STATUS, PanelPage
from tests.browser.roles import COOKIE
from tests.serverprocess import ROOT, ServerProcess

Open = Callable[..., PanelPage]
BASE_URL = "/a/b/"
STREAMED = "text encoders and VAE staged, the denoiser partly streamed"
PAUSE_ALL_THE_SAME = """
async (base) => {
  const headers = { "X-XSRFToken": document.cookie.match(/_xsrf=([^;]*)/)?.[1] ?? "" };
  const request = { method: "POST", body: "{}", headers };
  return (await fetch(base + "workshop-gpu/api/queue/pause", request)).status;
}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One that knows instructors by a cookie, and has the panel as its sources are now."""
    build = [sys.executable, str(ROOT / "labextension" / "build.py"), "build"]
    subprocess.run(build, check=True)
    folder = tmp_path_factory.mktemp("panel")
    extensions = folder / "extensions"
    extensions.mkdir()
    (extensions / "workshop-gpu").symlink_to(ROOT / "labextension" / "dist")
    settings = folder / "config" / "lab" / "user-settings" / "@jupyterlab" / "apputils-extension"
    settings.mkdir(parents=True)
    quiet = {"fetchNews": "false", "checkForUpdates": False}
    (settings / "notification.jupyterlab-settings").write_text(json.dumps(quiet))
    args = (
        *FOR_TESTS,
        f"--ServerApp.base_url={BASE_URL}",
        "--ServerApp.authorizer_class=tests.browser.roles.CookieAuthorizer",
        f"--LabApp.extra_labextensions_path={extensions}",
        f"--JupyterNotebookApp.extra_labextensions_path={extensions}",
    )
    with ServerProcess(app="lab", args=args, folder=folder) as process:
        yield process
        end_kernels(process)


@pytest.fixture
def open_panel(browser: Browser, server: ServerProcess) -> Iterator[Open]:
    pages: list[PanelPage] = []

    def open_one(path: str = "lab", **look: object) -> PanelPage:
        pages.append(PanelPage(browser, server, **look))
        return pages[-1].open(path)

    yield open_one
    for page in pages:
        page.close()


@pytest.fixture
def boss(server: ServerProcess) -> Iterator[Person]:
    """A program of the instructor's; whatever it left changed is put right again."""
    with Person(server, "boss") as person:
        person.http.headers["Cookie"] = f"{COOKIE}=yes"
        yield person
        person.http.post("api/queue/resume")
        for job in person.get("api/jobs")["jobs"]:
            if job["state"] in ("queued", "running"):
                person.http.delete(f"api/jobs/{job['id']}")


@pytest.fixture
def ada(server: ServerProcess) -> Iterator[Person]:
    with Person(server, "Ada") as person:
        yield person


def picture(page: PanelPage, name: str) -> None:
    """For people to look at, where WORKSHOP_GPU_SCREENSHOTS says."""
    folder = os.environ.get("WORKSHOP_GPU_SCREENSHOTS")
    if folder:
        page.page.screenshot(path=str(Path(folder) / f"{name}.png"))


def row(page: PanelPage, name: str) -> Locator:
    return page.root.locator(".jp-wg-queue li", has_text=name)


def test_a_participant_sees_memory_models_queue_and_what_happened(
    open_panel: Open, boss: Person, ada: Person
) -> None:
    boss.evict(TURBO["model"])
    placed = {"placement": "staged-streamed"}
    boss.http.patch("api/models/shapes-dit-turbo", json=placed).raise_for_status()
    ada.ended(ada.submit()["id"])
    ada.ended(ada.submit(model="shapes", loras={"shapes-outline": 1})["id"])
    boss.http.post("api/queue/pause", json={"reason": "lunch"}).raise_for_status()
    ada.submit(model="shapes")
    page = open_panel()
    page.theme("JupyterLab Light")
    legend = page.root.locator(".jp-wg-legend")
    expect(legend).to_contain_text("Shapes DiT Turbo")
    expect(legend).to_contain_text("free")
    expect(page.model("shapes-dit-turbo")).to_contain_text(f"ready · {STREAMED}")
    expect(legend).to_contain_text(f"ready · {STREAMED}")
    expect(page.model("shapes")).to_contain_text("ready · with shapes-outline")
    expect(page.root.locator(".jp-wg-queue")).to_contain_text("Paused: lunch")
    expect(row(page, "Ada")).to_contain_text("Shapes")
    expect(page.page.locator(STATUS)).to_contain_text("paused · 1 waiting")
    picture(page, "panel-light")
    page.theme("JupyterLab Dark")
    picture(page, "panel-dark")
    boss.http.patch("api/models/shapes-dit-turbo", json={"placement": None}).raise_for_status()
    boss.http.post("api/queue/resume").raise_for_status()
    expect(row(page, "Ada")).to_have_count(0, timeout=SLOW_MS)
    expect(page.root.locator(".jp-wg-news")).to_contain_text("shapes was loaded on cpu:0")
    # Nothing that needs a right is on offer, and it is refused to who sends it all the same.
    expect(page.root.get_by_role("tab")).to_have_count(0)
    assert page.page.evaluate(PAUSE_ALL_THE_SAME, BASE_URL) == 403


def test_ones_own_notebooks_are_marked_and_an_instructor_restarts_a_kernel(
    browser: Browser, server: ServerProcess, open_panel: Open, boss: Person
) -> None:
    code = 'import workshop_gpu as wg\njob = wg.Client().submit("a red circle", model="shapes")'
    write_notebook(server.root_dir / "mine.ipynb", [code, "print(job.id)"])
    boss.http.post("api/queue/pause").raise_for_status()
    lab = Lab(browser, server, "mine.ipynb")
    lab.run(0)
    expect(lab.page.locator(STATUS)).to_contain_text("you: next")
    lab.command("workshop-gpu:open")
    mine = lab.page.locator("#workshop-gpu-panel .jp-wg-queue li.jp-mod-mine")
    expect(mine).to_contain_text("mine")
    page = open_panel(instructor=True)
    page.tab("People")
    person = page.root.locator(".jp-wg-person", has_text="mine")
    expect(person).to_contain_text("1 of 3 waiting")
    person.get_by_role("button", name="Restart this kernel").click()
    expect(page.page.locator(".jp-Dialog")).to_contain_text("all variables of the notebook")
    picture(page, "panel-restart")
    page.confirm()
    expect(page.outcome).to_contain_text("The kernel of mine is restarted")
    expect(person).to_contain_text("0 of 3 waiting")
    assert boss.get("api/audit")["entries"][0]["action"] == "restarted a kernel"
    lab.close()


def test_an_instructor_pauses_cancels_and_resumes_and_everybody_notices(
    open_panel: Open, boss: Person, ada: Person
) -> None:
    page = open_panel(instructor=True)
    page.tab("Room")
    page.do(page.root.get_by_role("button", name="Pause the queue"), "lunch until one")
    expect(page.outcome).to_have_text(re.compile("The queue is paused"))
    job = ada.submit()
    assert "lunch until one" in job["reason"]
    cancel = row(page, "Ada").get_by_role("button", name="Cancel")
    cancel.click()  # thinking better of it changes nothing
    expect(page.page.locator(".jp-Dialog")).to_contain_text("It leaves the queue")
    page.page.keyboard.press("Escape")
    assert ada.get(f"api/jobs/{job['id']}")["state"] == "queued"
    page.do(cancel)
    expect(row(page, "Ada")).to_have_count(0)
    assert ada.get(f"api/jobs/{job['id']}")["state"] == "cancelled"
    page.do(page.root.get_by_role("button", name="Resume the queue"))
    expect(page.outcome).to_contain_text("The queue goes on")
    assert ada.ended(ada.submit()["id"])["state"] == "done"


def test_an_instructor_withdraws_offers_loads_pins_and_evicts_a_model(
    open_panel: Open, boss: Person, ada: Person
) -> None:
    page = open_panel(instructor=True)
    page.tab("Models")
    model = page.model("shapes-dit")

    def press(name: str, text: str | None = None, *, chosen: str | None = None) -> None:
        page.do(model.get_by_role("button", name=name, exact=True), text, chosen=chosen)

    press("Withdraw", "too slow today")
    expect(model).to_contain_text("not offered: too slow today")
    status, error = ada.refused("POST", "api/jobs", json=TURBO | {"model": "shapes-dit"})
    assert (status, "too slow today" in error["message"]) == (409, True)
    press("Offer")
    expect(model).not_to_contain_text("not offered")
    press("Load")
    expect(model).to_have_attribute("data-state", "ready", timeout=SLOW_MS)
    model.get_by_text("Placement").click()
    expect(model.locator("tr.jp-mod-chosen")).to_have_count(1)
    expect(model.get_by_text("chosen: the fastest that fits")).to_be_visible()
    press("Pin")
    expect(model).to_contain_text("pinned")
    press("Unpin")
    press("Keep warm", "600")
    ada.until(lambda _: ada.get("api/models/shapes-dit")["keep_warm_s"] == 600)
    press("Keep warm", "")
    rung = model.locator("tbody", has_text=re.compile("^staged-encoders"))
    expect(rung).to_contain_text("text encoders staged")
    press("Place", chosen="staged-encoders")
    expect(model).to_have_attribute("data-placement", "staged-encoders")
    model.get_by_role("button", name="Place", exact=True).click()
    expect(page.page.locator(".jp-Dialog select")).to_have_value("staged-encoders")
    picture(page, "panel-place")
    page.page.locator(".jp-Dialog").get_by_role("button", name="Leave it").click()
    press("Place", chosen="")
    expect(model).to_have_attribute("data-placement", "auto")
    press("Evict")
    expect(model).to_have_attribute("data-state", "absent", timeout=SLOW_MS)
    page.tab("Log")
    expect(page.root.locator(".jp-wg-log li").first).to_contain_text("evicted a model shapes-dit")


def test_a_message_reaches_all_and_a_raised_hand_the_instructor(
    open_panel: Open, boss: Person, ada: Person
) -> None:
    page, other = open_panel(instructor=True), open_panel()
    page.tab("Room")
    page.do(page.root.get_by_role("button", name="Message to all"), "Save your work")
    expect(other.root.locator(".jp-wg-message")).to_have_text("Save your work")
    page.do(page.root.get_by_role("button", name="Take the message back"))
    expect(other.root.locator(".jp-wg-message")).to_have_count(0)
    ada.http.post("api/help", json={"text": "it is all grey"}).raise_for_status()
    hand = page.root.locator(".jp-wg-help li")
    expect(hand).to_contain_text("it is all grey")
    expect(other.root.get_by_text("it is all grey")).to_have_count(0)
    page.do(hand.get_by_role("button", name="Helped"))
    expect(hand).to_have_count(0)
    assert ada.get("api/help")["calls"] == []


def test_the_launchers_card_opens_a_notebook_that_is_ready_to_draw(
    open_panel: Open, server: ServerProcess
) -> None:
    page = open_panel()
    page.page.locator(".jp-LauncherCard", has_text="First image").click()
    notebook = page.page.locator(".jp-NotebookPanel")
    expect(notebook).to_contain_text("wg.Studio()")
    expect(page.page.locator(".jp-Dialog")).to_have_count(0)
    (file,) = server.root_dir.glob("Untitled*.ipynb")
    assert json.loads(file.read_text())["metadata"]["kernelspec"]["name"] == "python3"


def test_an_instructor_changes_rules_and_clears_a_gpu(
    open_panel: Open, boss: Person, ada: Person
) -> None:
    page = open_panel(instructor=True)
    page.tab("Room")
    for _ in range(2):  # who hides the panel and comes back finds what was there
        page.page.evaluate(
            "() => window.jupyterapp.commands.execute('application:toggle-right-area')"
        )
    expect(page.root.get_by_role("tab", name="Room")).to_have_attribute("aria-selected", "true")
    rule = page.root.locator(".jp-wg-rule", has=page.page.locator("[name='queue_limit']"))
    limit, apply = rule.locator("input"), rule.get_by_role("button", name="Apply")
    limit.fill("2")
    page.do(apply)
    expect(page.outcome).to_contain_text("is now 2")
    assert boss.get("api/policy")["queue_limit"] == 2
    limit.fill("0")  # the server's reason is shown, and nothing has changed
    page.do(apply)
    expect(page.outcome).to_contain_text("0 is not between 1 and")
    assert boss.get("api/policy")["queue_limit"] == 2
    boss.http.patch("api/policy", json={"queue_limit": None}).raise_for_status()
    page.do(page.root.get_by_role("button", name="Clear for training"))
    expect(page.root.get_by_text("cleared for training")).to_be_visible(timeout=SLOW_MS)
    assert ada.submit()["waiting_for"] == "reservation"
    page.do(page.root.get_by_role("button", name="Give back to the room"))
    expect(page.root.get_by_role("button", name="Clear for training")).to_be_visible()


def test_a_reservation_that_waits_is_in_the_queue_and_the_instructor_ends_it(
    open_panel: Open, boss: Person, ada: Person
) -> None:
    page, other = open_panel(instructor=True), open_panel()
    (device,) = (each["id"] for each in boss.get("api/status")["devices"])
    boss.http.post(f"api/devices/{device}/clear").raise_for_status()
    asked = ada.http.post("api/reservations", json={"size_bytes": 8_000_000})
    asked.raise_for_status()
    for panel in (page, other):
        expect(row(panel, "Ada")).to_contain_text("own code: 8.0 MB")
        expect(row(panel, "Ada")).to_contain_text(f"has all of {device}")
    page.tab("Room")
    for theme in ("JupyterLab Dark", "JupyterLab Light"):
        page.theme(theme)
        picture(page, f"reservation-{theme[-5:].strip().lower()}")
    page.do(row(page, "Ada").get_by_role("button"))
    expect(page.outcome).to_contain_text("The reservation of Ada is over")
    for panel in (page, other):
        expect(row(panel, "Ada")).to_have_count(0)
    assert ada.http.get(f"api/reservations/{asked.json()['id']}").status_code == 410
    boss.http.delete(f"api/devices/{device}/clear").raise_for_status()


def test_a_stream_that_is_cut_says_how_old_things_are_and_comes_back(
    open_panel: Open, ada: Person, boss: Person
) -> None:
    page = open_panel()
    boss.http.post("api/queue/pause").raise_for_status()
    expect(page.root.locator(".jp-wg-queue")).to_contain_text("Paused")
    page.context.set_offline(True)
    expect(page.root.locator(".jp-wg-link")).to_contain_text("old; trying again")
    ada.submit()
    page.context.set_offline(False)
    expect(row(page, "Ada")).to_have_count(1)
    expect(page.root.locator(".jp-wg-link")).to_have_count(0)


def test_the_panel_is_there_in_notebook_7_and_in_a_narrow_window(open_panel: Open) -> None:
    page = open_panel("tree", viewport={"width": 420, "height": 800})
    expect(page.root.locator(".jp-wg-legend")).to_contain_text("free")
    picture(page, "panel-narrow")


def test_at_last_what_does_not_work_is_shown_to_the_instructor_until_it_works(
    server: ServerProcess, open_panel: Open
) -> None:
    page, other = open_panel(instructor=True), open_panel()
    problems = page.root.locator(".jp-wg-problems li")
    expect(problems).to_have_count(0)
    models_file = server.folder / "config" / "workshop_gpu" / "models.toml"
    models_file.parent.mkdir(exist_ok=True)
    entry = '[[model]]\nid = "mine"\nsource = { hub = "me/mine" }\n'
    models_file.write_text(entry + "pinn = true\n")
    expect(problems.first).to_contain_text('unknown key "pinn" (did you mean "pin"?)')
    for theme in ("JupyterLab Dark", "JupyterLab Light"):
        page.theme(theme)
        picture(page, f"problems-{theme[-5:].strip().lower()}")
    expect(other.root.locator(".jp-wg-problems")).to_have_count(0)
    models_file.write_text(entry)  # from now on there is no other model
    expect(problems).to_have_count(0)
