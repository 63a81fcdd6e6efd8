"""Readers of the HTTP pages: one that asks as it should, one that does not, one that never reads.

The judgement is that of the status code. Faults cut answers off, so that a missing answer proves
nothing.
"""

import asyncio
import contextlib
import json
import random
from collections.abc import Collection
from typing import Final, NamedTuple

from ...client.client import AsyncClient
from ...client.protocol.errors import LognodeError
from ..verdict import Anomaly
from .nodes import Machine, Machines

_EVERY_S: Final = 0.25
_ANSWER_S: Final = 3.0
_LAST_ANSWER_S: Final = 30.0
"""After a page of the status, a node rests three times as long as the page took. A pause of the
process counts (seed 122)."""
_UNREAD_PAGES: Final = 40
_UNREAD_S: Final = 35.0
"""Longer than a node waits for the next request of a connection."""
_BUSY: Final = 503
_NONE: Final[Collection[int]] = ()


class _Asked(NamedTuple):
    """A request, and the status codes that are right, besides 503."""

    page: str
    codes: Collection[int]
    token: str | None = None
    head: str = ""


class Pages:
    """Implements `sides.Side`."""

    def __init__(self, machines: Machines, rng: random.Random) -> None:
        self.anomalies: list[Anomaly] = []
        self.answers = 0
        self._machines = machines
        self._rng = rng
        self._limited: str | None = None
        """A token that may see one log."""

    async def prepare(self, admin: AsyncClient) -> None:
        """Make the token of a reader with few rights."""
        if self._machines.credentials.has_tokens:
            made = await admin.admin.create_token("reader", ["describe chaos"])
            self._limited = made["token"]

    async def run(self) -> None:
        """Ask until cancelled."""
        unread = asyncio.create_task(self._never_read())
        try:
            while True:
                await asyncio.sleep(_EVERY_S)
                machine = self._machines[self._rng.choice(self._machines.numbers)]
                with contextlib.suppress(OSError, EOFError, TimeoutError, LognodeError):
                    async with asyncio.timeout(_ANSWER_S):
                        await self._ask(machine, self._draw())
        finally:
            unread.cancel()

    async def finish(self, admin: AsyncClient) -> None:
        """Check that every node is ready and shows its pages once the faults are over."""
        for number in self._machines.numbers:
            for page in ("/healthz", "/readyz", "/metrics", "/status.json"):
                asked = _Asked(page, (200,), self._admin)
                try:
                    async with asyncio.timeout(_LAST_ANSWER_S):
                        await self._ask(self._machines[number], asked)
                except (OSError, EOFError, TimeoutError) as error:
                    told = f"node {number} does not show {page} at the end: {error!r}"
                    self.anomalies.append(Anomaly("no-page", told, promise="L2"))

    @property
    def _admin(self) -> str | None:
        given = self._machines.credentials
        return given.admin_token if given.has_tokens else None

    def _draw(self) -> _Asked:
        has_tokens = self._machines.credentials.has_tokens
        unproven = (401,) if has_tokens else (200,)
        limited = (403,) if has_tokens else (200,)
        return self._rng.choice((
            _Asked("/healthz", (200,)), _Asked("/readyz", (200,)),
            _Asked("/metrics", (200,), self._admin), _Asked("/status.json", (200,), self._admin),
            _Asked("/metrics", unproven), _Asked("/status.json", unproven),
            _Asked("/metrics", limited, self._limited),
            _Asked("/status.json", (200,), self._limited),
            _Asked("/metrics", (401,), "no token"), _Asked("/elsewhere", (404,)),
            _Asked("/healthz", (413,), head="Content-Length: 1\r\n"),
            _Asked("/healthz", (400,), head="no header\r\n"),
        ))  # fmt: skip

    async def _ask(self, machine: Machine, asked: _Asked) -> None:
        reader, writer = await self._connect(machine)
        try:
            writer.write(_request(machine.http, asked))
            code, head, body = await _answer(reader)
        finally:
            writer.transport.abort()
        self.answers += 1
        whole = head.get("content-length") == str(len(body))
        if code == _BUSY and asked.page != "/healthz":
            return
        if code not in asked.codes:
            told = f"node {machine.number} answers {asked.page} with {code}: {body[:200]!r}"
            self.anomalies.append(Anomaly("wrong-page", told, promise="X5"))
        elif code == 200 and asked.page == "/status.json" and whole:
            json.loads(body)

    async def _never_read(self) -> None:
        """Ask for many pages on one connection and read no answer."""
        while True:
            machine = self._machines[self._rng.choice(self._machines.numbers)]
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(_ANSWER_S):
                    _, writer = await self._connect(machine)
                try:
                    asked = _Asked("/status.json", _NONE, self._admin)
                    # Without `close`, so that the node would serve all of them.
                    request = _request(machine.http, asked, ends=False)
                    writer.write(request * _UNREAD_PAGES)
                    await asyncio.sleep(_UNREAD_S)
                finally:
                    writer.transport.abort()
            await asyncio.sleep(1.0)

    async def _connect(self, machine: Machine) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, port = machine.http.split(":")
        return await asyncio.open_connection(
            host, int(port), ssl=self._machines.credentials.context
        )


def _request(host: str, asked: _Asked, *, ends: bool = True) -> bytes:
    lines = [f"GET {asked.page} HTTP/1.1\r\nHost: {host}\r\n", asked.head]
    if asked.token is not None:
        lines.append(f"Authorization: Bearer {asked.token}\r\n")
    if ends:
        lines.append("Connection: close\r\n")
    return "".join([*lines, "\r\n"]).encode()


async def _answer(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    """Return the status code, the headers and the body until the end of the connection."""
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()
    named = (line.partition(":") for line in lines if line)
    head = {name.lower(): value.strip() for name, _, value in named}
    return int(first.split()[1]), head, await reader.read()
