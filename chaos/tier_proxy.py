"""A proxy in front of the S3 server of a test, which spoils a share of the requests.

A connection carries one request. What a fault does:

    500       answers 500 or 503, and does not ask the server
    lost      asks the server, and ends the connection without an answer
    cut       asks the server, and ends the connection in the middle of the answer
    part      ends the connection in the middle of an upload, of which the server sees nothing
    silent    says nothing while the fault lasts
    late      asks the server some seconds after the fault has ended, also for a dead node
    old       answers a listing as an earlier one of the same folder
    away      ends all connections at once

One conditional put passes at a time: see `tier_server`.
"""

import asyncio
import contextlib
import random
import re
from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple
from urllib.parse import urlsplit

FAULTS: Final = ("500", "lost", "cut", "part", "silent", "late", "old", "away")
_LATE_S: Final = (0.0, 8.0)
_ANSWER_S: Final = 60.0
_HEAD_BYTES_MAX: Final = 64 << 10
_LISTINGS: Final = 8
"""How many listings of a folder are kept."""
_FOLDERS: Final = 500
_CODES: Final = ((500, b"InternalError"), (503, b"SlowDown"))


class _Request(NamedTuple):
    method: str
    target: str
    head: bytes
    """The head for the server."""
    body: bytes
    conditional: bool


class TierProxy:
    """The proxy; `spoil` begins a fault, and `heal` ends it."""

    def __init__(self, endpoint: str, rng: random.Random) -> None:
        parts = urlsplit(endpoint)
        self._upstream = (parts.hostname or "127.0.0.1", parts.port or 80)
        self._rng = rng
        self._fault = ""
        self._share = 0.0
        self._healed = asyncio.Event()
        self._one_at_a_time = asyncio.Lock()
        self._listings: dict[str, deque[bytes]] = {}
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.spoiled = 0
        """How many requests were spoiled."""

    async def start(self) -> str:
        """Listen; return the address for nodes."""
        self._server = await asyncio.start_server(self._begun, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        return f"http://127.0.0.1:{port}"

    async def stop(self) -> None:
        """End all connections."""
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def spoil(self, fault: str, share: float) -> None:
        """Spoil this share of the requests from now on."""
        self._fault, self._share = fault, share
        self._healed.clear()

    def heal(self) -> None:
        """Spoil no further request. Late requests still arrive."""
        self._fault = ""
        self._healed.set()

    def _begun(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
                await self._answer(reader, writer)
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        fault = self._drawn()
        if fault == "away" or len(head) > _HEAD_BYTES_MAX:
            return
        size = int(_header(head, b"content-length") or 0)
        if fault == "part" and head.startswith(b"PUT"):
            await reader.readexactly(size // 2)
            return
        method, target, _ = head.split(b"\r\n", 1)[0].decode().split(" ", 2)
        request = _Request(
            method, target, _one_request(head), await reader.readexactly(size),
            _header(head, b"if-none-match") is not None,
        )  # fmt: skip
        if fault == "500":
            code, name = self._rng.choice(_CODES)
            writer.write(_error(code, name))
        elif fault == "silent":
            await self._healed.wait()
            return
        else:
            if fault == "late":
                await self._healed.wait()
                await asyncio.sleep(self._rng.uniform(*_LATE_S))
            answer = await self._asked(request, is_old=fault == "old")
            if fault == "lost":
                return
            writer.write(answer[: len(answer) // 2] if fault == "cut" else answer)
        await writer.drain()

    def _drawn(self) -> str:
        """Return the fault of the next request, "" for none."""
        if not self._fault or self._rng.random() >= self._share:
            return ""
        self.spoiled += 1
        return self._fault

    async def _asked(self, request: _Request, *, is_old: bool) -> bytes:
        """Return the answer of the server, or an earlier listing."""
        is_listing = request.method == "GET" and "list-type=2" in request.target
        known = self._listings.get(request.target)
        if is_listing and is_old and known:
            return self._rng.choice(known)
        if request.conditional:
            async with self._one_at_a_time:
                return await self._forwarded(request)
        answer = await self._forwarded(request)
        if is_listing:
            while len(self._listings) >= _FOLDERS:
                del self._listings[next(iter(self._listings))]
            self._listings.setdefault(request.target, deque(maxlen=_LISTINGS)).append(answer)
        return answer

    async def _forwarded(self, request: _Request) -> bytes:
        async with asyncio.timeout(_ANSWER_S):
            reader, writer = await asyncio.open_connection(*self._upstream)
            try:
                writer.write(request.head + request.body)
                return await reader.read()
            finally:
                writer.close()


def _header(head: bytes, name: bytes) -> bytes | None:
    """Return the value of a header; names of headers have no case."""
    found = re.search(rb"\r\n" + re.escape(name) + rb":[ \t]*([^\r]*)\r\n", head, re.IGNORECASE)
    return None if found is None else found[1]


def _one_request(head: bytes) -> bytes:
    """Return the head of a request after whose answer the server ends the connection."""

    def kept() -> Iterator[bytes]:
        for line in head[:-4].split(b"\r\n"):
            if not line.lower().startswith((b"connection:", b"keep-alive:")):
                yield line

    return b"\r\n".join((*kept(), b"Connection: close", b"", b""))


def _error(code: int, name: bytes) -> bytes:
    body = b"<Error><Code>%s</Code></Error>" % name
    return b"HTTP/1.1 %d %s\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (
        code, name, len(body), body,
    )  # fmt: skip
