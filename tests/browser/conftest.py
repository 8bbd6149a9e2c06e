"""Fixtures: JupyterLab with the extension, and Chromium to look at it."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from tests.api.people import WAIT_S
from tests.browser.lab import CHROMIUM, FLAGS, SLOW_MS, Lab
from tests.serverprocess import ROOT, ServerProcess

FOR_TESTS = ("--expose-app-in-browser", "--JupyterNotebookApp.expose_app_in_browser=True")
PATIENCE_MS = 60_000
OpenLab = Callable[..., Lab]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All tests of this folder drive a browser, and need one."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)
            if CHROMIUM is None:
                item.add_marker(pytest.mark.skip(reason="Chromium is not installed"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("lab")
    settings = folder / "config" / "lab" / "user-settings" / "@jupyterlab" / "apputils-extension"
    settings.mkdir(parents=True)
    quiet = {"fetchNews": "false", "checkForUpdates": False}  # no pop-up over what we look at
    (settings / "notification.jupyterlab-settings").write_text(json.dumps(quiet))
    process = ServerProcess(app="lab", args=FOR_TESTS, folder=folder)
    with process:
        for notebook in (ROOT / "notebooks").glob("*.ipynb"):
            shutil.copy(notebook, process.root_dir)
        yield process


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    # For a module only: Playwright keeps an event loop running that other tests would trip over.
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS, timeout=SLOW_MS)
        yield browser
        browser.close()


@pytest.fixture
def open_lab(
    browser: Browser, server: ServerProcess, request: pytest.FixtureRequest
) -> Iterator[OpenLab]:
    """Opens a notebook: a name of ours, or a list of cells for a new one (called `name`)."""
    labs: list[Lab] = []

    def open_one(notebook: str | list[str], name: str = "", **look: Any) -> Lab:
        if isinstance(notebook, list):
            test = request.node.name.replace("[", "-").replace("]", "")
            name = f"{name or f'{test}-{len(labs)}'}.ipynb"
            write_notebook(server.root_dir / name, notebook)
            notebook = name
        lab = Lab(browser, server, notebook, **look)
        labs.append(lab)
        return lab

    yield open_one
    for lab in labs:
        lab.close()
    end_kernels(server)
    assert [problem for lab in labs for problem in lab.problems] == []


def write_notebook(path: Path, cells: list[str]) -> None:
    notebook = {
        "cells": [
            {
                "cell_type": "code",
                "id": f"cell-{i}",
                "source": source.strip(),
                "metadata": {},
                "outputs": [],
                "execution_count": None,
            }
            for i, source in enumerate(cells)
        ],
        "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    path.write_text(json.dumps(notebook))


def end_kernels(server: ServerProcess) -> None:
    """A reset of the workspace leaves the kernels running."""
    headers = {"Authorization": f"token {server.token}"}
    with httpx.Client(
        base_url=server.url, headers=headers, trust_env=False, timeout=WAIT_S
    ) as http:
        for session in http.get("api/sessions").json():
            http.delete(f"api/sessions/{session['id']}")


@pytest.fixture
def screenshot() -> Callable[[Lab, str], None]:
    """Takes a picture of the page for people to look at, where WORKSHOP_GPU_SCREENSHOTS says."""
    folder = os.environ.get("WORKSHOP_GPU_SCREENSHOTS")

    def take(lab: Lab, name: str) -> None:
        if folder:
            Path(folder).mkdir(parents=True, exist_ok=True)
            lab.page.screenshot(path=str(Path(folder) / f"{name}.png"))

    return take
