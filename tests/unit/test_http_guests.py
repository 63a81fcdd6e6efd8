"""The HTTP port on real sockets: few connections, none for long, and no bodies."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pki import pki

from lognode.client import limits
from lognode.client.ports import free_ports
from lognode.client.tls import dial_context, listen_context
from lognode.node.access import Accesses
from lognode.node.http import HttpServer
from lognode.node.http_guard import HttpGuard
from lognode.node.metrics import Metrics
from lognode.partitions.metadata import Metadata

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
GET = b"GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n"


class Rig:
    """A server with room for few connections."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        (self.port,) = free_ports(1)
        self.told: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.server = HttpServer(
            host="127.0.0.1", port=self.port, tls=tls, metrics=Metrics(),
            not_ready=lambda: None, status=self._status, connections_max=4,
            on_closed=lambda reason, _: self.told.append(reason),
            guard=HttpGuard(self._accesses(), ["h"]), visible=lambda _, __, status: status,
        )  # fmt: skip
        self.opened: list[asyncio.StreamWriter] = []

    @staticmethod
    def _accesses() -> Accesses:
        """Those of a node without tokens."""

        async def refresh() -> None:
            return

        return Accesses(
            metadata=Metadata, refresh=refresh, identity=str, wall_ms=lambda: 0,
            wants_auth=False, is_fresh=lambda: True, metrics=Metrics(),
        )  # fmt: skip

    async def _status(self) -> dict[str, Any]:
        await self.gate.wait()
        return {"rows": []}

    async def connect(self, tls: ssl.SSLContext | None = None) -> Streams:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=tls)
        self.opened.append(writer)
        return reader, writer

    async def get(self, streams: Streams, request: bytes = GET) -> bytes:
        """The status line of the answer."""
        streams[1].write(request)
        async with asyncio.timeout(10):
            head = await streams[0].readuntil(b"\r\n\r\n")
            length = next(line for line in head.splitlines() if b"Content-Length" in line)
            await streams[0].readexactly(int(length.split(b":")[1]))
        return head.splitlines()[0]


@asynccontextmanager
async def rig(tls: ssl.SSLContext | None = None) -> AsyncIterator[Rig]:
    made = Rig(tls)
    await made.server.start()
    try:
        async with asyncio.timeout(30):
            yield made
    finally:
        made.gate.set()
        for writer in made.opened:
            writer.transport.abort()
        await made.server.stop()


def run(test: Callable[[Rig], Awaitable[None]], tls: ssl.SSLContext | None = None) -> None:
    async def main() -> None:
        async with rig(tls) as made:
            await test(made)

    asyncio.run(main())


async def ends(streams: Streams) -> bytes:
    """What still comes until the other side closes."""
    async with asyncio.timeout(10):
        try:
            return await streams[0].read()
        except ConnectionResetError:
            return b""


def test_silent_connections_keep_nobody_from_an_answer() -> None:
    async def test(made: Rig) -> None:
        silent = [await made.connect() for _ in range(50)]
        assert await made.get(await made.connect()) == b"HTTP/1.1 200 OK"
        for streams in silent[:45]:
            await ends(streams)
        assert made.server.connections <= 4
        assert set(made.told) == {"http_displaced"}

    run(test)


def test_who_does_not_shake_hands_for_tls_gives_way_and_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has a place from its accept on, and no transport before the end of that handshake."""
    monkeypatch.setattr("lognode.node.http.handshake_timeout_s", 1_000.0)
    trust = pki(tmp_path)
    node = trust.node("n1")

    async def test(made: Rig) -> None:
        silent = [await made.connect() for _ in range(50)]
        context = dial_context(trust.ca, None, None)
        assert await made.get(await made.connect(context)) == b"HTTP/1.1 200 OK"
        for streams in silent[:45]:
            assert await ends(streams) == b""
        assert made.server.connections <= 4
        assert set(made.told) == {"http_displaced"}
        entrance = made.server._entrance
        assert entrance is not None
        while entrance.sockets > 4:  # noqa: ASYNC110
            await asyncio.sleep(0.001)

    run(test, listen_context(trust.ca, node.cert, node.key, ssl.CERT_NONE))


def test_who_is_being_served_is_not_displaced_and_the_next_is_refused() -> None:
    async def test(made: Rig) -> None:
        made.gate.clear()
        served = [await made.connect() for _ in range(4)]
        request = GET.replace(b"/healthz", b"/status.json")
        asked = [asyncio.create_task(made.get(streams, request)) for streams in served]
        guests = made.server._guests
        assert guests is not None
        while len(guests) < 4 or guests._waiting:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        assert await ends(await made.connect()) == b""
        assert made.told == ["http_full"]
        made.gate.set()
        assert await asyncio.gather(*asked) == [b"HTTP/1.1 200 OK"] * 4
        assert await made.get(await made.connect()) == b"HTTP/1.1 200 OK"

    run(test)


def test_a_request_that_does_not_come_ends_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "http_first_request_s", 0.3)

    async def test(made: Rig) -> None:
        silent, slow = await made.connect(), await made.connect()

        async def drip() -> None:
            for byte in GET:
                slow[1].write(bytes([byte]))
                await asyncio.sleep(0.05)

        dripping = asyncio.create_task(drip())
        assert await ends(silent) == b""
        assert await ends(slow) == b""
        dripping.cancel()
        assert made.told == ["http_slow", "http_slow"]
        assert made.server.connections == 0

    run(test)


def test_the_next_request_has_to_come_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "http_next_request_s", 0.3)

    async def test(made: Rig) -> None:
        streams = await made.connect()
        for _ in range(4):
            assert await made.get(streams) == b"HTTP/1.1 200 OK"
            await asyncio.sleep(0.1)
        assert await ends(streams) == b""
        assert made.told == ["http_slow"]

    run(test)


@pytest.mark.parametrize(
    "header", [b"Content-Length: 1000000\r\n", b"Transfer-Encoding: chunked\r\n"]
)
def test_a_request_with_a_body_is_refused_before_the_body_is_read(header: bytes) -> None:
    async def test(made: Rig) -> None:
        streams = await made.connect()
        request = GET.replace(b"\r\n\r\n", b"\r\n" + header + b"\r\n")
        assert b" 413 " in await made.get(streams, request)
        assert await ends(streams) == b""
        assert await made.get(await made.connect()) == b"HTTP/1.1 200 OK"

    run(test)


def test_long_lines_and_many_headers_are_refused() -> None:
    async def test(made: Rig) -> None:
        for lines in (b"X: " + b"x" * 10_000, b"\r\n".join(b"X%d: 1" % n for n in range(100))):
            streams = await made.connect()
            request = GET.replace(b"\r\n\r\n", b"\r\n" + lines + b"\r\n\r\n")
            assert b" 400 " in await made.get(streams, request)
            await ends(streams)

    run(test)
