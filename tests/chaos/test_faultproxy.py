"""The embedded proxy in this process and as a program: speed, what it leaves behind, its flags."""

import asyncio
import gc
import re
import signal
import socket
import statistics
import subprocess
import sys
import tracemalloc
from typing import Any

import pytest
from chaos_targets import until
from fault_proxies import ask, dial, rig, upstream

from lognode.chaos.faultproxy.api import FaultProxy
from lognode.chaos.faultproxy.proxy import Proxy
from lognode.chaos.faultproxy.stages import Stage
from lognode.chaos.faultproxy.streams import Connection
from lognode.chaos.proxyserver import EMBEDDED
from lognode.chaos.toxiproxy import Toxiproxy

pytestmark = pytest.mark.cluster


def test_the_proxy_carries_50_MB_a_second() -> None:
    async def body() -> float:
        size = 200_000_000
        done = asyncio.Event()

        async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            left = size
            while left and (data := await reader.read(1_000_000)):
                left -= len(data)
            done.set()

        async with rig(EMBEDDED, take) as made:
            _, writer = await made.connect()
            loop = asyncio.get_running_loop()
            began = loop.time()
            for _ in range(size // 1_000_000):
                writer.write(bytes(1_000_000))
                await writer.drain()
            await done.wait()
            return size / 1e6 / (loop.time() - began)

    rate = asyncio.run(body())
    print(f"{rate:.0f} MB/s")
    assert rate > 50


def test_the_proxy_adds_less_than_a_millisecond() -> None:
    async def body() -> tuple[float, float]:
        async with rig(EMBEDDED) as made:
            through, direct = await made.connect(), await dial(made.upstream.address)
            taken = [(await ask(through), await ask(direct)) for _ in range(500)]
            direct[1].transport.abort()
        both = list(zip(*taken, strict=True))
        return statistics.median(both[0]), statistics.median(both[1])

    through, direct = asyncio.run(body())
    print(f"{through * 1e6:.0f} us, {direct * 1e6:.0f} us without")
    assert through - direct < 0.001


def live(kind: type) -> list[Any]:
    gc.collect()
    return [one for one in gc.get_objects() if isinstance(one, kind)]


def test_nothing_is_left_of_connections() -> None:
    """Without toxics they go with their clients; with the proxy go those whose bytes are held."""

    async def holds() -> bool:
        return any(stage.held > 0 for stage in live(Stage))

    async def all_gone() -> bool:
        return not live(Connection)

    async def body() -> None:
        async with (
            FaultProxy() as server,
            upstream() as behind,
            Toxiproxy(server.address) as api,
        ):
            kinds = ("none", "latency", "bandwidth", "timeout", "slow_close")
            for round_, kind in enumerate(kinds, 1):
                listen = (await api.create(kind, behind.address))["listen"]
                attributes = {"latency": 60_000, "timeout": 60_000, "delay": 60_000}
                if kind != "none":
                    await api.add_toxic(kind, kind, attributes=attributes)
                many = await asyncio.gather(*(dial(listen) for _ in range(20)))
                await behind.newest(20 * round_)
                for _, writer in many:
                    writer.write(b"x" * 10_000)
                if kind in ("latency", "bandwidth"):
                    await until(holds, "bytes are held", 10.0)
                for _, writer in many:
                    writer.transport.abort()
                if kind != "none":
                    await api.delete(kind)
                await until(all_gone, f"connections with {kind} are gone", 10.0)

    asyncio.run(body())


async def pour(writer: asyncio.StreamWriter) -> None:
    data = bytes(1_000_000)
    while True:
        writer.write(data)
        await writer.drain()


def test_the_proxy_buffers_a_bounded_number_of_bytes() -> None:
    async def body() -> int:
        async with (
            FaultProxy() as server,
            upstream(None) as behind,
            Toxiproxy(server.address) as api,
        ):
            listen = (await api.create("p", behind.address))["listen"]
            await api.add_toxic("p", "bandwidth", stream="upstream", attributes={"rate": 1})
            _, writer = await dial(listen)
            await behind.newest()
            writer.transport.set_write_buffer_limits(high=0)
            tracemalloc.start()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(pour(writer), 3)
            held = tracemalloc.get_traced_memory()[0]
            tracemalloc.stop()
            writer.transport.abort()
            return held

    held = asyncio.run(body())
    # The test's own unsent megabyte is part of it.
    assert held < 3_000_000, f"{held} bytes"


def test_the_proxy_runs_as_a_program_and_ends_on_sigterm() -> None:
    command = [sys.executable, "-m", "lognode.chaos.faultproxy", "--host", "127.0.0.1", "--port"]
    with subprocess.Popen([*command, "0"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = re.search(r"at http://(\S+)", process.stdout.readline())
        assert address is not None
        port = address[1].rsplit(":", 1)[1]
        second = subprocess.run([*command, port], capture_output=True, text=True, timeout=20)
        assert second.returncode == 1
        assert "choose another port with --port" in second.stderr
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0


def test_a_connection_accepted_after_the_end_of_the_proxy_is_refused() -> None:
    """Accepted by then, it dialled through the toxics of a proxy that nobody could heal."""

    async def body() -> None:
        proxy = Proxy("late", "127.0.0.1:0", "127.0.0.1:1")
        await proxy.start()
        accepted = proxy._client()
        proxy.stop()
        ours, theirs = socket.socketpair()
        await asyncio.get_running_loop().create_connection(lambda: accepted, sock=theirs)
        assert not proxy._opening
        reader, writer = await asyncio.open_connection(sock=ours)
        async with asyncio.timeout(10):
            assert await reader.read() == b""
        writer.close()

    asyncio.run(body())


def test_bytes_that_arrive_before_the_upstream_is_reached_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """CPython 3.11.2 undoes a pause in `connection_made`: it begins to read afterwards."""

    def begin(self: Any, fd: int, call: Any, *args: Any) -> None:
        self._loop._add_reader(fd, call, *args)

    base = asyncio.selector_events._SelectorTransport  # type: ignore[attr-defined]
    monkeypatch.setattr(base, "_add_reader", begin)

    async def body() -> None:
        async with (
            FaultProxy() as server,
            upstream() as behind,
            Toxiproxy(server.address) as api,
        ):
            listen = (await api.create("p", behind.address))["listen"]
            host, port = listen.split(":")
            for _ in range(20):
                said = socket.create_connection((host, int(port)))
                said.sendall(b"at once")
                said.setblocking(False)
                async with asyncio.timeout(10):
                    assert await asyncio.get_running_loop().sock_recv(said, 100) == b"at once"
                said.close()

    asyncio.run(body())
