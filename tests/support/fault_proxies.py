"""Proxy servers for tests: which there are, one with an upstream behind it, and raw clients."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from chaos_targets import until

from lognode.chaos.proxyserver import EMBEDDED, Program, ProxyServer, choose
from lognode.chaos.toxiproxy import Toxiproxy
from lognode.client.protocol.errors import InvalidArgument

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
WAIT_S = 20.0


def program(kind: str) -> Program:
    """The server of this kind. Without the real one a test is skipped, but fails in CI."""
    if kind == "embedded":
        return EMBEDDED
    try:
        found = choose("toxiproxy")
    except InvalidArgument as error:
        if os.environ.get("CI") == "true":
            pytest.fail(f"CI runs these tests on the real server: {error}")
        pytest.skip(str(error))
    print(f"on {found.description}, {found.command[0]}")
    return found


@dataclass
class Upstream:
    """A server on a free port, with what it accepted."""

    address: str
    accepted: list[Streams]
    changed: asyncio.Condition

    async def newest(self, count: int = 1) -> Streams:
        """The last connection, once there were `count`."""
        async with asyncio.timeout(WAIT_S), self.changed:
            await self.changed.wait_for(lambda: len(self.accepted) >= count)
        return self.accepted[-1]


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Say back what is said, until it ends."""
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.close()


@contextlib.asynccontextmanager
async def upstream(
    serve: Callable[..., Awaitable[None]] | None = echo,
) -> AsyncIterator[Upstream]:
    """`serve` None: it accepts and does nothing, and the test reads and writes."""
    accepted: list[Streams] = []
    changed = asyncio.Condition()

    async def on_client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with changed:
            accepted.append((reader, writer))
            changed.notify_all()
        if serve is not None:
            await serve(reader, writer)

    server = await asyncio.start_server(on_client, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    try:
        yield Upstream(f"{host}:{port}", accepted, changed)
    finally:
        server.close()
        for _, writer in accepted:
            writer.transport.abort()


@dataclass
class Rig:
    """A server with one proxy, `p`, in front of an upstream; and its clients."""

    api: Toxiproxy
    server: ProxyServer
    upstream: Upstream
    listen: str
    clients: list[asyncio.StreamWriter]

    async def connect(self) -> Streams:
        """A new client's connection through the proxy."""
        reader, writer = await dial(self.listen)
        self.clients.append(writer)
        return reader, writer

    async def toxic(self, kind: str, stream: Any = "downstream", **attributes: int) -> None:
        """Put one on the proxy."""
        await self.api.add_toxic("p", kind, stream=stream, attributes=attributes)


@contextlib.asynccontextmanager
async def rig(
    program: Program, serve: Callable[..., Awaitable[None]] | None = echo
) -> AsyncIterator[Rig]:
    """All of it, closed with the block."""
    server = ProxyServer(program)
    async with upstream(serve) as behind:
        await server.start()
        try:
            listen = (await server.api.create("p", behind.address))["listen"]
            made = Rig(server.api, server, behind, listen, [])
            yield made
            for writer in made.clients:
                writer.transport.abort()
        finally:
            await server.stop()


async def hang(pid: int) -> None:
    """Stop a process; returns when all its threads stand still, which takes the kernel a moment."""
    os.kill(pid, signal.SIGSTOP)

    async def is_so() -> bool:
        return _stands_still(pid)

    await until(is_so, f"process {pid} stands still", 10.0)


def _stands_still(pid: int) -> bool:
    stats = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    return all(stat.rpartition(")")[2].split()[0] == "T" for stat in stats)


async def dial(address: str) -> Streams:
    """A plain connection."""
    host, port = address.rsplit(":", 1)
    return await asyncio.open_connection(host, int(port))


async def ask(streams: Streams, words: bytes = b"hello") -> float:
    """Say something to an echo; returns the seconds until it came back whole."""
    reader, writer = streams
    loop = asyncio.get_running_loop()
    began = loop.time()
    writer.write(words)
    async with asyncio.timeout(WAIT_S):
        assert await reader.readexactly(len(words)) == words
    return loop.time() - began


async def ends(streams: Streams) -> bytes:
    """What still comes until the connection ends, however it ends."""
    found = b""
    with contextlib.suppress(ConnectionError):
        async with asyncio.timeout(WAIT_S):
            while data := await streams[0].read(65_536):
                found += data
    return found


async def silent(streams: Streams, words: bytes = b"?", for_s: float = 0.3) -> bool:
    """Whether the connection stays open, and nothing comes back."""
    streams[1].write(words)
    try:
        async with asyncio.timeout(for_s):
            await streams[0].read(1)
    except TimeoutError:
        return True
    except ConnectionError:
        pass
    return False
