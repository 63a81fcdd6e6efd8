"""What a TLS handshake that never ends has taken is free at the end of its connection.

Memory that refers to itself stays until a collection of garbage, and a collection counts objects: a
few of them hold the megabytes of OpenSSL and of asyncio's buffers.
"""

import asyncio
import contextlib
import gc
import os
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
from aiohttp import web
from pki import Pki, pki

from lognode.client.accepting import acceptor, handler
from lognode.client.accepting.listener import Accepted
from lognode.client.accepting.listening import Entrance
from lognode.client.protocol.errors import LognodeError
from lognode.client.protocol.tls import Channel, listen_context
from lognode.node.web.http_guests import HttpGuests

_MANY = 40


@pytest.fixture
def trust(tmp_path: Path) -> Pki:
    """An authority."""
    return pki(tmp_path)


@pytest.fixture(autouse=True)
def _no_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def context_of(trust: Pki) -> ssl.SSLContext:
    """The TLS of a node."""
    node = trust.node("n1")
    return listen_context(trust.ca, node.cert, node.key, ssl.CERT_NONE)


def hello() -> bytes:
    """The first message of a client's handshake."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    shaking = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        shaking.do_handshake()
    return outgoing.read()


def alive() -> int:
    """Connections and TLS objects that nobody has freed, of other tests too."""
    kinds = (ssl.SSLObject, acceptor.ServerConnection, Accepted)
    return sum(isinstance(each, kinds) for each in gc.get_objects())


HALVES = {
    "hello": hello(),
    "cut": hello()[:50],
    "then garbage": hello() + os.urandom(200),
    "garbage": b"\x16\x03\x03\xff\xff" + bytes(100),
    "no tls": b"GET / HTTP/1.1\r\n\r\n",
}


async def come_and_go(port: int, said: bytes, entrance: Entrance) -> None:
    """Connections say that and end, one half of them after the node's first answer."""
    for at in range(_MANY):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(said)
        if at % 2:
            with contextlib.suppress(TimeoutError, ConnectionError):
                async with asyncio.timeout(0.05):
                    await reader.read(1)
        writer.transport.abort()
    async with asyncio.timeout(10):
        while entrance.ended < _MANY:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await asyncio.sleep(0.01)  # what is called at the end of the turn


@pytest.mark.slow
@pytest.mark.parametrize("said", HALVES)
def test_a_dead_handshake_with_the_port_for_clients_leaves_nothing(trust: Pki, said: str) -> None:
    context = context_of(trust)

    class NodeTls:
        """The TLS of a node without clients' certificates."""

        def channel(self) -> Channel:
            return Channel(context, server_side=True)

        def refused(self, address: str, error: LognodeError) -> None:
            pass

    async def main() -> int:
        before = alive()
        listener = await acceptor.serve(
            cast(handler.Handler, None), "127.0.0.1", 0, tls=cast(handler.ListenTls, NodeTls())
        )
        await come_and_go(listener.port, HALVES[said], listener.entrance)
        left = alive() - before
        await listener.close()
        return left

    assert asyncio.run(main()) <= 1


async def answer(_: web.BaseRequest) -> web.StreamResponse:
    """Never asked for."""
    return web.Response()


@pytest.mark.slow
@pytest.mark.parametrize("said", HALVES)
def test_a_dead_handshake_with_the_port_for_https_leaves_nothing(trust: Pki, said: str) -> None:
    async def main() -> int:
        before = alive()
        server = web.Server(answer)
        guests = HttpGuests(
            server, connections_max=100, on_closed=lambda *_: None,
            on_gone=lambda guest: entrance.gone(guest), on_end=lambda guest: entrance.shut(guest),
        )  # fmt: skip
        entrance = Entrance(guests.arrive, sockets_max=100, tls=context_of(trust))
        await entrance.listen("127.0.0.1", 0)
        await come_and_go(entrance.port, HALVES[said], entrance)
        left = alive() - before
        await entrance.close()
        return left

    assert asyncio.run(main()) <= 1
