"""The HTTP port on real sockets: few connections, none for long, and no bodies."""

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from pki import pki

from lognode.client.accepting.access import Access
from lognode.client.ports import free_ports
from lognode.client.protocol import limits
from lognode.client.protocol.errors import LognodeError
from lognode.client.protocol.tls import dial_context, listen_context
from lognode.node.access.access import Accesses
from lognode.node.access.http_guard import HttpGuard
from lognode.node.listeners.turned_away import TurnedAway
from lognode.node.metrics import Metrics
from lognode.node.web import http_status
from lognode.node.web.http import HttpServer
from lognode.node.web.http_status import MetricsPage, StatusPages
from lognode.partitions.metadata import Metadata

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
GET = b"GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n"


class Rig:
    """A server with room for few connections."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        (self.port,) = free_ports(1)
        self.told: list[str] = []
        self.refused: list[tuple[str, str, str, LognodeError]] = []
        self.rows: list[str] = []
        self.made = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.server = HttpServer(
            host="127.0.0.1", port=self.port, tls=tls, metrics=Metrics(),
            not_ready=lambda: None, status=self._status, connections_max=4,
            on_closed=lambda reason, _: self.told.append(reason),
            guard=HttpGuard(self._accesses(), ["h"]), visible=lambda _, __, status: status,
            on_refused=lambda *refusal: self.refused.append(refusal),
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
        self.made += 1
        return {"rows": self.rows}

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


def test_a_client_without_a_tls_handshake_gives_way_and_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has a place from its accept on, and no transport before the end of that handshake."""
    monkeypatch.setattr("lognode.node.web.http.handshake_timeout_s", 1_000.0)
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


def test_a_served_client_keeps_its_place_and_the_next_is_refused() -> None:
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


def test_the_head_of_a_request_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "http_head_bytes_max", 1_000)

    async def test(made: Rig) -> None:
        streams = await made.connect()
        for _ in range(3):  # each request has a bound of its own
            begin, end = GET[:-2] + b"x: " + b"y" * 900 + b"\r", b"\n\r\n"
            streams[1].write(begin)
            await asyncio.sleep(0.02)
            assert await made.get(streams, end) == b"HTTP/1.1 200 OK"
        streams[1].write(GET[:-2])
        for n in range(30):
            streams[1].write(b"x-%d: %b\r\n" % (n, b"y" * 40))
            await asyncio.sleep(0.001)
        with contextlib.suppress(ConnectionError):
            assert await ends(streams) == b""
        assert made.told == ["http_bad"]

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


STATUS = GET.replace(b"healthz", b"status.json")


def test_pages_that_are_not_read_have_a_bound_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of 64 connections could hold the status of all ranges for as long as it liked."""
    monkeypatch.setattr(http_status, "_READ_S", 2.0)

    async def test(rig: Rig) -> None:
        rig.rows = ["x" * 1_000] * 12_000
        for _ in range(2):
            _, writer = await rig.connect()
            writer.write(STATUS)
        while rig.made < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)
        streams = await rig.connect()
        assert b"503" in await rig.get(streams, STATUS)
        await asyncio.sleep(2.5)  # those that do not read are gone
        streams = await rig.connect()
        assert b"200" in await rig.get(streams, STATUS)

    run(test)


@pytest.mark.slow
def test_pages_are_made_for_a_part_of_the_time_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """One asker in a loop had the node make pages all the time."""
    spent_s = 0.0
    made = StatusPages._made

    async def timed(pages: StatusPages, access: Access) -> bytes:
        nonlocal spent_s
        began = time.perf_counter()
        try:
            return await made(pages, access)
        finally:
            spent_s += time.perf_counter() - began

    monkeypatch.setattr(StatusPages, "_made", timed)

    async def test(rig: Rig) -> None:
        rig.rows = ["x"] * 50_000
        began = time.perf_counter()
        until = began + 3.0

        async def ask() -> None:
            streams = await rig.connect()
            while time.perf_counter() < until:
                assert b"200" in await rig.get(streams, STATUS)

        await asyncio.gather(ask(), ask(), ask())
        assert 0.1 < spent_s < (time.perf_counter() - began) / 2

    run(test)


def test_a_client_that_leaves_its_page_delays_no_other_client(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Six seconds of such requests left thousands in line: nobody else got a status for more than
    90 s, and each page that was made for nobody wrote a traceback of 3 KB."""

    async def test(rig: Rig) -> None:
        rig.gate.clear()
        for _ in range(100):
            _, writer = await rig.connect()
            writer.write(STATUS)
            await writer.drain()
            writer.close()
        streams = await rig.connect()
        asked = asyncio.create_task(rig.get(streams, STATUS))
        while rig.server.connections != 1:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        rig.gate.set()
        assert b"200" in await asked
        assert rig.made <= 2, "pages for those who have left"
        assert not rig.server._pages._unread_bytes

    run(test)
    assert not [record for record in caplog.records if record.exc_info]


def test_a_client_that_leaves_during_its_page_does_not_skip_the_pause() -> None:
    """Else a client that leaves and asks again has pages begun all the time."""

    async def test(rig: Rig) -> None:
        rig.gate.clear()
        _, writer = await rig.connect()
        writer.write(STATUS)
        while not rig.server._pages._turn.locked():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        writer.transport.abort()
        while rig.server._pages._turn.locked():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert rig.made == 0
        assert rig.server._pages._not_before - time.monotonic() > 0.1

    run(test)


def test_a_reader_that_leaves_during_its_page_is_not_an_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test(rig: Rig) -> None:
        rig.rows = ["x" * 1_000] * 8_000
        for _ in range(5):
            reader, writer = await rig.connect()
            writer.write(STATUS)
            await reader.readuntil(b"\r\n\r\n")
            writer.transport.abort()
        while rig.server.connections:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert b"200" in await rig.get(await rig.connect(), STATUS)

    run(test)
    assert not [record for record in caplog.records if record.exc_info]


BAD = {
    "version": b"GET / HTTP/9.9\r\n\r\n",
    "length": b"GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
    "line": b"GET / HTTP/1.1\r\nHost: a\r\n" + b"A" * 5_000 + b"\r\n\r\n",
    "url": b"GET /\x00 HTTP/1.1\r\nHost : b\r\n\r\n",
    "host": b"GET http://[::1/ HTTP/1.1\r\nHost: [\r\n\r\n",
    "method": b"\x16\x03\x01 / HTTP/1.1\r\n\r\n",
}


@pytest.mark.parametrize("name", BAD)
def test_a_malformed_request_is_counted_and_writes_no_traceback(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "aiohttp.server")

    async def test(rig: Rig) -> None:
        for _ in range(3):
            streams = await rig.connect()
            assert b" 400 " in await rig.get(streams, BAD[name])
            await ends(streams)
        assert rig.told == ["http_bad"] * 3

    run(test)
    assert not [record for record in caplog.records if record.exc_info]


def test_malformed_requests_write_a_line_in_ten_seconds(caplog: pytest.LogCaptureFixture) -> None:
    metrics = Metrics()

    async def test(rig: Rig) -> None:
        told = TurnedAway(metrics)
        rig.server._on_closed = told
        await rig.server.stop()
        await rig.server.start()
        for at in range(20):
            streams = await rig.connect()
            await rig.get(streams, list(BAD.values())[at % len(BAD)])

    run(test)
    assert len(caplog.records) == 1
    assert (
        caplog.records[0].getMessage()
        == "the node closed connections: an HTTP request was malformed"
    )
    counted = b'lognode_connections_ended_total{reason="http_bad"} 20.0'
    assert counted in metrics.exposition()


def test_an_error_of_a_page_is_logged_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    async def test(rig: Rig) -> None:
        rig.rows = cast(list[str], [object()])  # nothing that JSON has
        assert b" 500 " in await rig.get(await rig.connect(), STATUS)
        assert rig.told == []

    run(test)
    (record,) = caplog.records
    assert record.levelname == "ERROR"
    assert record.exc_info is not None


def test_requests_for_metrics_share_a_page_for_a_moment() -> None:
    """A page for each request kept all others waiting for a second."""
    now, took_s, made = 0.0, 0.01, 0

    def make() -> bytes:
        nonlocal now, made
        now += took_s
        made += 1
        return b"%d" % made

    page = MetricsPage(make, lambda: now)
    assert [page.page() for _ in range(10)] == [b"%d" % number for number in range(1, 11)]
    for _ in range(1_000):  # the burst of 0.1 s is used up
        last = page.page()
    assert made in (10, 11)
    now += 0.5
    assert len({page.page() for _ in range(1_000)} - {last}) <= 3, "5 % of half a second"
    now, took_s = 100.0, 0.5
    newest = page.page()
    now = 101.4
    assert page.page() != newest, "a page is a second old at most"
    newest = page.page()
    assert newest == page.page()


def test_a_flood_of_requests_for_metrics_makes_few_pages() -> None:
    async def test(rig: Rig) -> None:
        made = 0
        make = rig.server._metrics._make

        def counted() -> bytes:
            nonlocal made
            made += 1
            time.sleep(0.05)
            return make()

        rig.server._metrics._make = counted
        request = GET.replace(b"healthz", b"metrics")
        began = time.monotonic()

        async def ask() -> None:
            streams = await rig.connect()
            for _ in range(50):
                assert b"200" in await rig.get(streams, request)

        await asyncio.gather(ask(), ask(), ask(), ask())
        assert made <= 3 + (time.monotonic() - began) / 0.9

    run(test)


def test_a_reader_that_leaves_in_the_middle_of_a_page_leaves_no_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """aiohttp logged each as an error of the handler, with a traceback of 3 KB."""

    async def test(made: Rig) -> None:
        made.rows = ["x" * 1_000] * 6_000
        for read_bytes in (0, 1, 100_000):
            made.gate.clear()
            reader, writer = await made.connect()
            writer.write(GET.replace(b"/healthz", b"/status.json"))
            if not read_bytes:  # it leaves before the page is made
                await asyncio.sleep(0.05)
                writer.transport.abort()
                await asyncio.sleep(0.05)
            made.gate.set()
            if read_bytes:
                async with asyncio.timeout(10):
                    await reader.readexactly(read_bytes)
                writer.transport.abort()
            async with asyncio.timeout(10):
                while made.server.connections or made.server._pages._unread_bytes:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        made.rows = []
        streams = await made.connect()
        assert await made.get(streams, GET.replace(b"/healthz", b"/status.json"))

    with caplog.at_level("INFO"):
        run(test)
    assert not [record for record in caplog.records if record.exc_info or record.levelno >= 40]
