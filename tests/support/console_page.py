"""The console of a node in Debian's Chromium, driven by playwright; and axe, which checks that
people with other senses and other devices can use a page."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from browser import program
from playwright.sync_api import Browser, Page, sync_playwright

SCREENS = {
    "overview": "Overview", "nodes": "Nodes", "ranges": "Ranges", "hot": "Hot keys",
    "explorer": "Entries", "groups": "Groups", "storage": "Storage", "settings": "Settings",
    "connections": "Connections",
}  # fmt: skip
"""The screens of the console: names in addresses, and titles."""
TIMEOUT_MS = 20_000


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser, which ends with the block; without Chromium the test is skipped."""
    found = program()
    if found is None:
        why = "no Chromium on PATH; install it (Debian: chromium)"
        if os.environ.get("CI"):
            pytest.fail(why)
        pytest.skip(why)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=found, args=["--no-sandbox", "--disable-gpu"]
        )
        try:
            yield browser
        finally:
            browser.close()


class Console:
    """A tab with the console of a node. `errors` has what the page logged or threw, and what the
    policy of the page refused; `foreign` the addresses outside of the node that it asked for."""

    def __init__(self, page: Page, http: str) -> None:
        self.page = page
        self.http = http
        self.errors: list[str] = []
        self.foreign: list[str] = []
        page.set_default_timeout(TIMEOUT_MS)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda told: self._told(told.type, told.text))
        page.on("request", lambda request: self._asked(request.url))

    def _told(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.errors.append(text)

    def _asked(self, url: str) -> None:
        if not url.startswith(f"http://{self.http}/"):
            self.foreign.append(url)

    def open(self, screen: str, query: str = "", *, filled: bool = True) -> Page:
        """Open a screen, and wait until it shows something, unless not `filled`."""
        self.page.goto("about:blank")
        self.page.goto(f"http://{self.http}/#/{screen}{'?' if query else ''}{query}")
        self.page.locator("h1", has_text=SCREENS[screen]).wait_for()
        if filled:
            self.page.locator(".body > *").first.wait_for()
        return self.page


@contextmanager
def console(
    browser: Browser, http: str, *, width: int = 1_280, height: int = 900, scheme: Any = "light",
    bypass_csp: bool = False,
) -> Iterator[Console]:  # fmt: skip
    """A tab of its own, with a window of this size for a reader who prefers light or dark."""
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=scheme, bypass_csp=bypass_csp
    )
    try:
        yield Console(context.new_page(), http)
    finally:
        context.close()


def axe_findings(page: Page) -> list[str]:
    """What axe finds in the page that is serious or critical."""
    spec = find_spec("axe_playwright_python")
    assert spec is not None
    assert spec.origin is not None
    (script,) = Path(spec.origin).parent.rglob("axe.min.js")
    page.evaluate(script.read_text("utf-8"))
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{each['id']}: {each['help']}: {node['html'][:200]}"
        for each in found["violations"]
        if each["impact"] in ("serious", "critical")
        for node in each["nodes"]
    ]
