"""The GPU panel in JupyterLab, below a base URL: what participants see and instructors do."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, expect

from tests.api.people import Person
from tests.browser.conftest import FOR_TESTS
from tests.browser.lab import SLOW_MS, Lab
from tests.browser.panel import STATUS, PanelPage
from tests.browser.roles import COOKIE
from tests.serverprocess import ROOT, ServerProcess

Open = Callable[..., PanelPage]
BASE_URL = "/a/b/"


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
    ada.ended(ada.submit()["id"])
    boss.http.post("api/queue/pause", json={"reason": "lunch"}).raise_for_status()
    ada.submit(model="shapes")
    page = open_panel()
    page.theme("JupyterLab Light")
    legend = page.root.locator(".jp-wg-legend")
    expect(legend).to_contain_text("Shapes DiT Turbo")
    expect(legend).to_contain_text("free")
    expect(page.model("shapes-dit-turbo")).to_contain_text("ready")
    expect(page.root.locator(".jp-wg-queue")).to_contain_text("Paused: lunch")
    expect(row(page, "Ada")).to_contain_text("Shapes")
    expect(page.page.locator(STATUS)).to_contain_text("paused · 1 waiting")
    picture(page, "panel-light")
    boss.http.post("api/queue/resume").raise_for_status()
    expect(row(page, "Ada")).to_have_count(0, timeout=SLOW_MS)
    # Nothing that needs a right is on offer.
    expect(page.root.get_by_role("tab")).to_have_count(0)


def test_the_jobs_of_ones_own_notebooks_are_marked(
    browser: Browser, server: ServerProcess, boss: Person
) -> None:
    from tests.browser.conftest import write_notebook

    code = 'import workshop_gpu as wg\njob = wg.Client().submit("a red circle", model="shapes")'
    write_notebook(server.root_dir / "mine.ipynb", [code])
    boss.http.post("api/queue/pause").raise_for_status()
    lab = Lab(browser, server, "mine.ipynb")
    lab.run(0)
    expect(lab.page.locator(STATUS)).to_contain_text("you: next")
    lab.command("workshop-gpu:open")
    mine = lab.page.locator("#workshop-gpu-panel .jp-wg-queue li.jp-mod-mine")
    expect(mine).to_contain_text("mine")
    lab.close()
