"""An S3 server on this machine for the tier of a cluster under test: that of moto.

Known faults of moto: it keeps objects in memory only; it checks no signature and no hash; and it
carries out a conditional put in two steps, so that of two such puts at once both may succeed. The
proxy (`tier_proxy`), through which all nodes reach the server, therefore lets one conditional put
pass at a time.
"""

import asyncio
import contextlib
import importlib.util
import os
import re
import sys
from pathlib import Path
from typing import Final

import aiohttp

from ..client.protocol.errors import Unavailable

PLACE: Final = "s3://chaos/tier"
KEYS: Final = {"AWS_ACCESS_KEY_ID": "chaos", "AWS_SECRET_ACCESS_KEY": "no secret"}
"""The environment of all who use the server."""
_BUCKET: Final = "chaos"
_START_S: Final = 30.0
_POLL_S: Final = 0.1


def missing() -> str | None:
    """Return what this machine lacks for the server, and what installs it; None: nothing."""
    if all(importlib.util.find_spec(name) is not None for name in ("moto", "flask")):
        return None
    return "the S3 server of moto is not installed; run: pip install 'moto[server]'"


class TierServer:
    """The process of the server."""

    def __init__(self, log_path: Path) -> None:
        self._log_path = log_path
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> str:
        """Start the server with an empty bucket; return its address. Raises Unavailable."""
        self._log_path.parent.mkdir(parents=True, exist_ok=True)
        with self._log_path.open("wb") as output:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "moto.server", "-p", "0", stdout=output, stderr=output,
                stdin=asyncio.subprocess.DEVNULL, env={**os.environ, **KEYS},
            )  # fmt: skip
        endpoint = await self._address(self._process)
        async with aiohttp.ClientSession() as session, session.put(f"{endpoint}/{_BUCKET}") as made:
            if made.status != 200:
                raise Unavailable(f"the S3 server made no bucket: status {made.status}")
        return endpoint

    async def stop(self) -> None:
        """End the server, and all objects with it."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()

    async def _address(self, process: asyncio.subprocess.Process) -> str:
        """Return the address that the server prints."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _START_S
        while process.returncode is None and loop.time() < deadline:
            said = re.search(r"Running on (http://\S+)", self._log_path.read_text("utf-8"))
            if said is not None:
                return said[1]
            await asyncio.sleep(_POLL_S)
        told = self._log_path.read_text("utf-8")[-500:]
        raise Unavailable(f"the S3 server did not start in {_START_S:.0f} s:\n{told}")
