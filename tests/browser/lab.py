"""JupyterLab in a real browser, driven by its commands where clicks would be fragile."""

import re
import shutil
from typing import Any

from playwright.sync_api import Browser, Error, Locator, Page, expect

from tests.serverprocess import ServerProcess

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
SLOW_MS = 120_000
"""A worker's first start on a busy machine."""

ACTIVATE = """(node) => {
  const notebook = window.jupyterapp.shell.currentWidget.content;
  notebook.deselectAll();
  notebook.activeCellIndex = notebook.widgets.findIndex((cell) => cell.node === node);
}"""


class Lab:
    """One page with one notebook open: JupyterLab, or Notebook 7 where `path` is "notebooks"."""

    def __init__(
        self,
        browser: Browser,
        server: ServerProcess,
        notebook: str,
        path: str = "lab/tree",
        **look: Any,
    ) -> None:
        self.context = browser.new_context(viewport={"width": 1280, "height": 900}, **look)
        self.page: Page = self.context.new_page()
        self.problems: list[str] = []
        if path.startswith("lab"):  # Notebook 7 has errors of its own at its start
            self.page.on("pageerror", self._note)
        self.page.set_default_timeout(SLOW_MS)
        self.page.goto(f"{server.url}{path}/{notebook}?reset&token={server.token}")
        self.page.locator(".jp-NotebookPanel").wait_for()
        self._wait_for_kernel()

    def _note(self, error: Error) -> None:
        """But for questions of JupyterLab's own that a reload of the page breaks off."""
        if "Failed to fetch" not in str(error):
            self.problems.append(str(error))

    @property
    def studio(self) -> Locator:
        return self.page.locator(".wg-studio").last

    @property
    def cells(self) -> Locator:
        return self.page.locator(".jp-NotebookPanel .jp-CodeCell")

    def command(self, name: str, arguments: dict[str, Any] | None = None) -> None:
        self.page.evaluate(
            "([name, args]) => window.jupyterapp.commands.execute(name, args)",
            [name, arguments or {}],
        )

    def start_command(self, name: str) -> None:
        """As `command`, without waiting for its end."""
        self.page.evaluate("(name) => { window.jupyterapp.commands.execute(name); }", name)

    def theme(self, name: str) -> None:
        self.command("apputils:change-theme", {"theme": name})
        light = "true" if "Light" in name else "false"
        self.page.locator(f"body[data-jp-theme-light='{light}']").wait_for(state="attached")
        self.page.locator("#jupyterlab-splash").wait_for(state="detached")

    def run(self, index: int) -> Locator:
        """Run code cell `index` and wait until it is done; its output."""
        return self.done(self.start(index))

    def start(self, index: int) -> Locator:
        """Run code cell `index` without waiting for its end."""
        cell = self.cells.nth(index)
        prompt = cell.locator(".jp-InputPrompt")
        before = prompt.inner_text()
        # Not by a click: JupyterLab takes the cell under the pointer when the button is let go,
        # and a widget above that grows meanwhile pushes another one there.
        cell.evaluate(ACTIVATE)
        self.start_command("notebook:run-cell")
        # Until then its number is that of the last time.
        expect(prompt).not_to_have_text(before, timeout=SLOW_MS)
        return cell

    def done(self, cell: Locator) -> Locator:
        numbered = re.compile(r"^\[\d+\]:$")
        expect(cell.locator(".jp-InputPrompt")).to_have_text(numbered, timeout=SLOW_MS)
        return cell.locator(".jp-OutputArea").first

    def reload(self) -> None:
        """Save, and load the page anew; the kernel goes on."""
        self.command("docmanager:save")
        self.page.reload()
        self.page.locator(".jp-NotebookPanel").wait_for()
        self._wait_for_kernel()

    def close(self) -> None:
        self.context.close()

    def _wait_for_kernel(self) -> None:
        """A cell that is run earlier is lost without an error."""
        self.page.locator(".jp-NotebookPanel .jp-Notebook-ExecutionIndicator").first.wait_for()
        self.page.wait_for_function(
            """() => {
              const panel = window.jupyterapp.shell.currentWidget;
              const kernel = panel?.sessionContext?.session?.kernel;
              return kernel?.connectionStatus === "connected" && kernel?.status === "idle";
            }"""
        )
