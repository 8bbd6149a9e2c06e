"""The GPU panel in a page of JupyterLab, as a participant or an instructor has it."""

from typing import Any

from playwright.sync_api import Browser, Error, Locator, Page, expect

from tests.browser.lab import SLOW_MS
from tests.browser.roles import COOKIE
from tests.serverprocess import ServerProcess

STATUS = ".jp-wg-status"


class PanelPage:
    """A page with the panel open."""

    def __init__(
        self, browser: Browser, server: ServerProcess, *, instructor: bool = False, **look: Any
    ) -> None:
        self.context = browser.new_context(**({"viewport": {"width": 1280, "height": 1000}} | look))
        if instructor:
            self.context.add_cookies([{"name": COOKIE, "value": "yes", "url": server.url}])
        self.server = server
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(SLOW_MS)
        self.problems: list[str] = []
        self.page.on("pageerror", self._note)

    def _note(self, error: Error) -> None:
        """Only what our own code throws: others fail too while the network is off."""
        if "labextensions/workshop-gpu/" in (error.stack or ""):
            self.problems.append(str(error))

    def open(self, path: str = "lab") -> "PanelPage":
        self.page.goto(f"{self.server.url}{path}?reset&token={self.server.token}")
        self.page.wait_for_function("() => window.jupyterapp?.started")
        self.page.locator("#jupyterlab-splash").wait_for(state="detached")
        self.page.evaluate("() => window.jupyterapp.commands.execute('workshop-gpu:open')")
        self.root.locator(".jp-wg-device").first.wait_for()
        return self

    @property
    def root(self) -> Locator:
        return self.page.locator("#workshop-gpu-panel")

    def tab(self, name: str) -> None:
        self.root.get_by_role("tab", name=name).click()

    def model(self, model: str) -> Locator:
        return self.root.locator(f".jp-wg-model[data-model='{model}']")

    def do(self, button: Locator, text: str | None = None, *, chosen: str | None = None) -> None:
        """Press a button, type or choose what is asked for, and confirm. The server may hear of it
        later."""
        button.click()
        self.confirm(text, chosen=chosen)

    def confirm(self, text: str | None = None, *, chosen: str | None = None) -> None:
        dialog = self.page.locator(".jp-Dialog")
        if text is not None:
            dialog.locator("input").fill(text)
        if chosen is not None:
            dialog.locator("select").select_option(chosen)
        dialog.locator("button.jp-wg-ok").click()
        expect(dialog).to_have_count(0)

    @property
    def outcome(self) -> Locator:
        return self.root.locator(".jp-wg-outcome p")

    def theme(self, name: str) -> None:
        self.page.evaluate(
            "(theme) => window.jupyterapp.commands.execute('apputils:change-theme', {theme})", name
        )
        light = "true" if "Light" in name else "false"
        self.page.locator(f"body[data-jp-theme-light='{light}']").wait_for(state="attached")
        self.page.locator("#jupyterlab-splash").wait_for(state="detached")

    def close(self) -> None:
        self.context.close()
        assert self.problems == []
