"""A headless Chromium with its network off, driven by its DevTools protocol over a websocket."""

import asyncio
import base64
import contextlib
import itertools
import json
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp

NAMES = ("chromium", "chromium-browser", "google-chrome")
START_S, CALL_S = 60.0, 60.0


def program() -> str | None:
    """The browser of this machine, or None."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Page:
    """One tab. What it logged and fetched is kept."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._loaded = asyncio.Event()
        self.errors: list[str] = []
        """What went to the console, was thrown or was refused by a policy."""
        self.fetched: list[str] = []
        """Addresses that the page asked for, its own first."""

    async def listen(self) -> None:
        """Take what the browser says; until the socket is closed."""
        async for message in self._socket:
            said = json.loads(message.data)
            if "id" in said:
                self._answers.pop(said["id"]).set_result(said)
            elif said["method"] == "Page.loadEventFired":
                self._loaded.set()
            elif said["method"] == "Network.requestWillBeSent":
                self.fetched.append(said["params"]["request"]["url"])
            elif said["method"] in (
                "Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded",
            ):  # fmt: skip
                self.errors.append(json.dumps(said["params"]))

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """A command of the protocol and its result."""
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        said = await asyncio.wait_for(answer, CALL_S)
        if "error" in said:
            raise RuntimeError(f"{method}: {said['error']}")
        result: dict[str, Any] = said["result"]
        return result

    async def open(self, address: str) -> None:
        """Go there and wait until the page is loaded."""
        self._loaded.clear()
        await self.call("Page.navigate", url=address)
        await asyncio.wait_for(self._loaded.wait(), CALL_S)

    async def run(self, script: str) -> Any:
        """The value of an expression of JavaScript in the page."""
        said = await self.call("Runtime.evaluate", expression=script, returnByValue=True)
        if "exceptionDetails" in said:
            raise RuntimeError(json.dumps(said["exceptionDetails"]))
        return said["result"].get("value")

    async def look(self, width: int, height: int, *, scheme: str = "light") -> None:
        """The size of the window, and whether its user prefers light or dark."""
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=False,
        )  # fmt: skip
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        await self.call("Emulation.setEmulatedMedia", features=features)

    async def screenshot(self, *, whole: bool = True) -> bytes:
        """A PNG of the page, or of the window."""
        said = await self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        return base64.b64decode(said["data"])


@contextlib.asynccontextmanager
async def browse() -> AsyncIterator[Page]:
    """A page of a browser without a network, which ends with the block."""
    found = program()
    assert found is not None
    # Not below a test's own folder: the browser's socket must have a short path.
    with tempfile.TemporaryDirectory(prefix="browser", ignore_cleanup_errors=True) as folder:
        async with _browser(found, Path(folder)) as page:
            yield page


@contextlib.asynccontextmanager
async def _browser(found: str, folder: Path) -> AsyncIterator[Page]:
    environment: Mapping[str, str] = {
        **os.environ, "HOME": str(folder), "TMPDIR": str(folder)
    }  # fmt: skip
    with (folder / "browser.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            found, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            "--no-first-run", "--disable-extensions", "--disable-background-networking",
            "--hide-scrollbars", f"--user-data-dir={folder / 'profile'}",
            "--remote-debugging-port=0", "about:blank",
            stdout=log, stderr=log, env=environment,
        )  # fmt: skip
    try:
        port = await _port(folder / "profile" / "DevToolsActivePort", process)
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
                targets = await answer.json()
            tab = next(one for one in targets if one["type"] == "page")
            async with session.ws_connect(tab["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                page = Page(socket)
                listening = asyncio.create_task(page.listen())
                for domain in ("Page", "Runtime", "Log", "Network"):
                    await page.call(f"{domain}.enable")
                await page.call(
                    "Network.emulateNetworkConditions",
                    offline=True, latency=0, downloadThroughput=-1, uploadThroughput=-1,
                )  # fmt: skip
                yield page
            await listening
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _port(path: Path, process: asyncio.subprocess.Process) -> str:
    """The browser says in a file on which port it listens."""
    async with asyncio.timeout(START_S):
        while not (said := _said(path)):
            assert process.returncode is None, _said(path.parents[1] / "browser.log")
            await asyncio.sleep(0.05)
    return said.split("\n")[0]


def _said(path: Path) -> str:
    said = path.read_text() if path.exists() else ""
    return said if "\n" in said else ""
