"""What each toxic does to real sockets, on the embedded proxy and on Toxiproxy itself."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from fault_proxies import Rig, Streams, ask, dial, ends, program, rig, silent

from lognode.chaos.proxyserver import Program

pytestmark = pytest.mark.cluster


@pytest.fixture(params=["embedded", "toxiproxy"])
def server(request: pytest.FixtureRequest) -> Program:
    found: Program = program(request.param)
    return found


def run(server: Program, body: Callable[[Rig], Awaitable[None]], serve: Any = ...) -> None:
    async def all_of_it() -> None:
        async with rig(server) if serve is ... else rig(server, serve) as made:
            await body(made)

    asyncio.run(all_of_it())


def test_bytes_pass_unchanged_both_ways(server: Program) -> None:
    async def body(rig: Rig) -> None:
        words = os.urandom(5_000_000)
        reader, writer = await rig.connect()
        writer.write(words)
        async with asyncio.timeout(30):
            assert await reader.readexactly(len(words)) == words
        writer.close()
        async with asyncio.timeout(10):
            await (await rig.upstream.newest())[1].wait_closed()

    run(server, body)


@pytest.mark.parametrize("stream", ["upstream", "downstream"])
def test_latency_delays_one_stream_and_does_not_queue(server: Program, stream: str) -> None:
    async def body(rig: Rig) -> None:
        streams = await rig.connect()
        assert await ask(streams) < 0.5
        await rig.toxic("latency", stream, latency=600)
        assert 0.59 < await ask(streams) < 3
        # Ten that follow each other by 30 ms are under way together, and stay in order.
        loop = asyncio.get_running_loop()
        began = loop.time()
        for number in range(10):
            streams[1].write(b"%d" % number)
            await asyncio.sleep(0.03)
        assert await streams[0].readexactly(10) == b"0123456789"
        assert loop.time() - began < 3, "in a queue they would take six seconds"

    run(server, body)


def test_latency_with_jitter_varies_within_its_bounds(server: Program) -> None:
    async def body(rig: Rig) -> None:
        streams = await rig.connect()
        await rig.toxic("latency", latency=50, jitter=40)
        taken = [await ask(streams) for _ in range(20)]
        assert min(taken) >= 0.009
        assert max(taken) - min(taken) > 0.01, taken

    run(server, body)


def test_a_change_of_latency_is_seen_by_live_connections(server: Program) -> None:
    async def body(rig: Rig) -> None:
        streams = await rig.connect()
        await rig.toxic("latency", latency=1_000)
        assert await ask(streams) > 0.99
        await rig.api.update_toxic("p", "latency_downstream", attributes={"latency": 0})
        assert await ask(streams) < 0.9
        await rig.api.delete_toxic("p", "latency_downstream")
        assert await ask(streams) < 0.9

    run(server, body)


def test_bandwidth_is_a_rate(server: Program) -> None:
    async def body(rig: Rig) -> None:
        streams = await rig.connect()
        await rig.toxic("bandwidth", "upstream", rate=100)
        assert 0.7 < await ask(streams, os.urandom(100_000)) < 4

    run(server, body)


def test_slow_close_delays_the_end_and_no_byte(server: Program) -> None:
    async def body(rig: Rig) -> None:
        await rig.toxic("slow_close", delay=400)
        streams = await rig.connect()
        assert await ask(streams) < 0.3
        loop = asyncio.get_running_loop()
        began = loop.time()
        (await rig.upstream.newest())[1].close()
        assert await ends(streams) == b""
        assert 0.39 < loop.time() - began < 3

    run(server, body)


def test_timeout_drops_bytes_and_then_closes(server: Program) -> None:
    async def body(rig: Rig) -> None:
        await rig.toxic("timeout", timeout=400)
        streams = await rig.connect()
        loop = asyncio.get_running_loop()
        began = loop.time()
        streams[1].write(b"lost")
        assert await ends(streams) == b""
        assert 0.3 < loop.time() - began < 3
        async with asyncio.timeout(10):  # and so does the other side
            await (await rig.upstream.newest())[1].wait_closed()

    run(server, body)


def test_timeout_of_0_drops_bytes_until_its_removal_closes(server: Program) -> None:
    async def body(rig: Rig) -> None:
        streams = await rig.connect()
        await ask(streams)
        await rig.toxic("timeout", timeout=0)
        assert await silent(streams)
        await rig.api.delete_toxic("p", "timeout_downstream")
        assert await ends(streams) == b"", "bytes are missing, and yet it goes on"

    run(server, body)


async def reset(streams: Streams) -> bool:
    """Whether the connection ends by a reset; else it ended in order."""
    try:
        async with asyncio.timeout(10):
            streams[1].write(b"x")
            await streams[0].read(1)
    except ConnectionResetError:
        return True
    return False


def test_reset_peer_resets_connections_opened_after_it(server: Program) -> None:
    async def body(rig: Rig) -> None:
        before = await rig.connect()
        await ask(before)
        await rig.toxic("reset_peer", timeout=200)
        after = await rig.connect()
        loop = asyncio.get_running_loop()
        began = loop.time()
        assert await reset(after)
        assert 0.19 < loop.time() - began < 3
        assert not await reset(before), "it was opened before"

    run(server, body)


def test_slicer_breaks_up_what_was_one_write(server: Program) -> None:
    async def body(rig: Rig) -> None:
        await rig.toxic("slicer", average_size=100, size_variation=20, delay=10_000)
        reader, writer = await rig.connect()
        words = os.urandom(2_000)
        writer.write(words)
        pieces: list[bytes] = []
        async with asyncio.timeout(20):
            while sum(map(len, pieces)) < len(words):
                pieces.append(await reader.read(65_536))
        assert b"".join(pieces) == words
        assert len(pieces) >= 5, f"{len(pieces)} reads"
        assert max(map(len, pieces)) < 1_000

    run(server, body)


def test_limit_data_cuts_after_so_many_bytes(server: Program) -> None:
    async def body(rig: Rig) -> None:
        await rig.toxic("limit_data", bytes=1_000)
        streams = await rig.connect()
        await ask(streams, b"a" * 600)
        streams[1].write(b"b" * 600)
        assert await ends(streams) == b"b" * 400

    run(server, body)


def test_toxics_of_one_stream_add_up(server: Program) -> None:
    async def body(rig: Rig) -> None:
        await rig.toxic("latency", "downstream", latency=600)
        await rig.toxic("limit_data", "downstream", bytes=10)
        streams = await rig.connect()
        assert 0.59 < await ask(streams, b"12345") < 3
        streams[1].write(b"6789012345")
        assert await ends(streams) == b"67890"

    run(server, body)


def test_toxicity_is_the_share_of_connections(server: Program) -> None:
    async def body(rig: Rig) -> None:
        await rig.api.add_toxic("p", "limit_data", toxicity=0.5, attributes={"bytes": 3})

        async def taken() -> bool:
            streams = await rig.connect()
            streams[1].write(b"hello")
            async with asyncio.timeout(10):
                got = await streams[0].read(5)
            return bool(got == b"hel")

        many = await asyncio.gather(*(taken() for _ in range(80)))
        assert 15 < sum(many) < 65, f"{sum(many)} of 80; half is meant"
        await rig.api.update_toxic("p", "limit_data_downstream", toxicity=0.0)
        assert not any(await asyncio.gather(*(taken() for _ in range(20))))

    run(server, body)


def test_one_stream_is_cut_and_the_other_is_not(server: Program) -> None:
    async def body(rig: Rig) -> None:
        streams = await rig.connect()
        streams[1].write(b"one")
        behind = await rig.upstream.newest()
        assert await behind[0].readexactly(3) == b"one"
        await rig.toxic("timeout", "downstream", timeout=0)
        streams[1].write(b"two")
        assert await behind[0].readexactly(3) == b"two"
        assert await silent((streams[0], behind[1])), "an answer came"
        await rig.api.update("p", enabled=False)
        await rig.api.delete_toxic("p", "timeout_downstream")
        await rig.api.update("p", enabled=True)
        await rig.toxic("timeout", "upstream", timeout=0)
        streams = await rig.connect()
        behind = await rig.upstream.newest(2)
        behind[1].write(b"three")
        assert await streams[0].readexactly(5) == b"three"
        assert await silent((behind[0], streams[1])), "a request came"

    run(server, body, None)


def test_a_proxy_that_is_not_enabled_refuses_and_closes(server: Program) -> None:
    async def body(rig: Rig) -> None:
        streams = await rig.connect()
        await ask(streams)
        await rig.api.update("p", enabled=False)
        assert await ends(streams) == b""
        with pytest.raises(ConnectionRefusedError):
            await dial(rig.listen)
        await rig.api.update("p", enabled=True)
        assert await ask(await rig.connect()) < 1

    run(server, body)


def test_an_upstream_that_refuses_closes_the_client(server: Program) -> None:
    async def body(rig: Rig) -> None:
        await rig.api.update("p", upstream="127.0.0.1:1")
        assert await ends(await rig.connect()) == b""

    run(server, body)


@pytest.mark.parametrize(
    ("kind", "attributes"),
    [(None, {}), ("bandwidth", {"rate": 1}), ("latency", {"latency": 60_000})],
)
def test_a_receiver_that_does_not_read_stops_the_sender(
    server: Program, kind: str | None, attributes: dict[str, int]
) -> None:
    """No memory without bound: the writer is held up, after buffers of the kernel and ours."""

    async def body(rig: Rig) -> None:
        if kind is not None:
            await rig.toxic(kind, "upstream", **attributes)
        _, writer = await rig.connect()
        await rig.upstream.newest()
        writer.transport.set_write_buffer_limits(high=0)
        sent = 0
        while sent < 120_000_000:
            writer.write(bytes(1_000_000))
            try:
                async with asyncio.timeout(1):
                    await writer.drain()
            except TimeoutError:
                break
            sent += 1_000_000
        limit = 60_000_000  # the real one's latency holds 1024 chunks of 32 KiB
        assert sent < limit, f"{sent} bytes were taken, and nobody read them"

    async def reads_nothing(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        transport: asyncio.ReadTransport = reader._transport  # type: ignore[attr-defined]
        transport.pause_reading()

    run(server, body, reads_nothing)
