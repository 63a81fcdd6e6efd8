"""The process of a proxy server: the choice of the program, its start, end and restart."""

import asyncio
import contextlib
import os
import re
import shutil
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, Literal

from ..client.ports import free_ports
from ..client.protocol.errors import InvalidArgument, Unavailable
from .toxiproxy import TIMEOUT_S, Toxiproxy, ToxiproxyError

Choice = Literal["auto", "toxiproxy", "embedded"]
PROXIES: Final[tuple[Choice, ...]] = ("auto", "toxiproxy", "embedded")
VARIABLE: Final = "TOXIPROXY_SERVER"
_NAME: Final = "toxiproxy-server"
_MODULE: Final = re.compile(rb"mod\tgithub\.com/Shopify/toxiproxy/v2\tv(\d[\w.+-]*)\t")
"""Go writes the modules and versions of its build into each program."""
_START_S: Final = 20.0
_POLL_S: Final = 0.02


@dataclass(frozen=True, slots=True)
class Program:
    """A proxy server that takes `--host` and `--port` of its API."""

    command: tuple[str, ...]
    description: str
    """The name in `test.json`: `toxiproxy 2.12.0` or `embedded`."""


EMBEDDED: Final = Program((sys.executable, "-m", "lognode.chaos.faultproxy"), "embedded")


def choose(kind: Choice = "auto", environment: Mapping[str, str] | None = None) -> Program:
    """Choose the real server if there is one, else the embedded one.

    `kind` allows only one of them. The real server is the one that TOXIPROXY_SERVER names, or one
    on PATH or beside this Python. Raises InvalidArgument if the real server is required and
    missing.
    """
    variables = os.environ if environment is None else environment
    if kind not in PROXIES:
        raise InvalidArgument(
            f"the proxy server {kind!r} does not exist; the kinds are {', '.join(PROXIES)}"
        )
    if kind == "embedded":
        return EMBEDDED
    if named := variables.get(VARIABLE):
        if (path := shutil.which(named)) is None:
            raise InvalidArgument(
                f"{VARIABLE} is {named!r}, which is not a program; correct or unset the variable"
            )
    else:
        beside = str(Path(sys.executable).parent)
        path = shutil.which(_NAME, path=os.pathsep.join((variables.get("PATH", ""), beside)))
    if path is None:
        if kind == "auto":
            return EMBEDDED
        raise InvalidArgument(
            f"PATH contains no {_NAME}; scripts/setup installs the program if Go is "
            f"installed. Or set {VARIABLE}"
        )
    return Program((path,), f"toxiproxy {_version(Path(path))}")


def _version(program: Path) -> str:
    """Return the installed version: the server reports `git` unless its makefile built it."""
    found = _MODULE.search(program.read_bytes())
    return found[1].decode() if found else "of an unknown version"


class ProxyServer:
    """One server process on a free port. Its proxies are gone when it ends."""

    def __init__(
        self, program: Program, *, log_path: Path | None = None, timeout_s: float = TIMEOUT_S
    ) -> None:
        """Prepare the server.

        `log_path` takes its output, if given; `timeout_s` bounds every call.
        """
        self.program = program
        self.restarts = 0
        self._log_path = log_path
        self._timeout_s = timeout_s
        self._process: asyncio.subprocess.Process | None = None
        self._api: Toxiproxy | None = None

    @property
    def api(self) -> Toxiproxy:
        """A client of the API. Raises Unavailable before `start`."""
        if self._api is None:
            raise Unavailable("the proxy server was not started")
        return self._api

    @property
    def pid(self) -> int:
        """The process id. Raises Unavailable before `start`."""
        if self._process is None:
            raise Unavailable("the proxy server was not started")
        return self._process.pid

    async def start(self) -> None:
        """Start the process, and return when its API answers. Raises Unavailable."""
        port = free_ports(1)[0]
        with self._output() as output:
            self._process = await asyncio.create_subprocess_exec(
                *self.program.command, "--host", "127.0.0.1", "--port", str(port),
                stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output,
                start_new_session=True, env={"LOG_LEVEL": "warn", **os.environ},
            )  # fmt: skip
        self._api = Toxiproxy(f"127.0.0.1:{port}", timeout_s=self._timeout_s)
        deadline = asyncio.get_running_loop().time() + _START_S
        while True:
            try:
                await self._api.version()
                return
            except (Unavailable, ToxiproxyError) as error:
                code = self._process.returncode
                if code is None and asyncio.get_running_loop().time() < deadline:
                    await asyncio.sleep(_POLL_S)
                    continue
                await self.stop()
                how = "does not answer" if code is None else f"ended with {code}"
                raise Unavailable(f"{' '.join(self.program.command)} {how}: {error}") from None

    async def stop(self) -> None:
        """Send kill -9: a server that hangs needs it, and any other server loses nothing by it."""
        if self._api is not None:
            await self._api.close()
            self._api = None
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGKILL)
            await self._process.wait()
            self._process = None

    async def restart(self) -> None:
        """Start a new process, without any proxies. Raises Unavailable."""
        await self.stop()
        self.restarts += 1
        await self.start()

    def _output(self) -> BinaryIO:
        return open(self._log_path or os.devnull, "ab")
