"""A client of the cluster for each token that askers show.

A request over HTTP is served by a client of the SDK, which shows the asker's token to the cluster.
So the rights, quotas, limits and errors are those of the port for clients.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from ...client.client import AsyncClient
from ...client.protocol import limits
from ...client.protocol.errors import Overloaded
from ...client.protocol.tls import Tls
from ..config import Config

CLIENTS_MAX: Final = 32
_IDLE_S: Final = 60.0
"""A client without requests for this time is closed when the next request comes."""
_CLOSE_S: Final = 1.0
_NAMES_MAX: Final = 1_024
"""A client remembers each log that it was asked for, whether the log exists or not: with so many
names, a new client takes its place."""
_FOLLOW_BYTES: Final = 256 * limits.KIB
"""Bytes that each follow reads ahead: a node has hundreds of event streams."""


def maker(config: Config) -> Callable[[str | None], AsyncClient]:
    """Return what makes the client of a token. The clients reach the cluster as every client does:
    through the address that this node advertises. With TLS they show the certificate of the node,
    and the rights of the token count."""
    tls = None
    if config.tls_ca is not None:
        tls = Tls(config.tls_ca, config.tls_cert, config.tls_key)

    def make(token: str | None) -> AsyncClient:
        return AsyncClient(
            f"lognode://{config.advertised}", tls=tls, token=token, follow_bytes_max=_FOLLOW_BYTES
        )

    return make


def most_clients(dials: int, nodes: int) -> int:
    """Return how many clients a node may have that may open so many connections together: each may
    connect to every node."""
    return max(1, min(CLIENTS_MAX, dials // max(1, nodes)))


class _Held:
    """A client, the number of its requests, and the time of the last one."""

    def __init__(self, client: AsyncClient) -> None:
        self.client = client
        self.names: set[str] = set()
        self.requests = 0
        self.used_s = 0.0


class Clients:
    """The clients of a node's askers. `make` makes the client of a token, None for askers without
    one. `most` returns how many clients the node may have."""

    def __init__(self, make: Callable[[str | None], AsyncClient], most: Callable[[], int]) -> None:
        self._make = make
        self._most = most
        self._held: OrderedDict[str | None, _Held] = OrderedDict()
        """By token, the client that was used last at the end."""
        self._worn: set[_Held] = set()
        """Clients with too many names, which only end their requests."""
        self._closing: set[asyncio.Task[None]] = set()
        self._closed = False

    def __len__(self) -> int:
        return len(self._held) + len(self._worn)

    @asynccontextmanager
    async def of(self, token: str | None, log: str | None) -> AsyncIterator[AsyncClient]:
        """Return the client of a token for one request, which names the log. Raises Overloaded when
        all others are in use."""
        held = self._held.get(token)
        if held is not None and log not in held.names and len(held.names) >= _NAMES_MAX:
            self._wear(token, held)
            held = None
        if held is None:
            self._make_room()
            held = self._held[token] = _Held(self._make(token))
        self._held.move_to_end(token)
        held.requests += 1
        if log is not None:
            held.names.add(log)
        try:
            yield held.client
        finally:
            held.requests -= 1
            held.used_s = asyncio.get_running_loop().time()
            if held in self._worn and not held.requests:
                self._worn.remove(held)
                self._close(held)

    def _wear(self, token: str | None, held: _Held) -> None:
        del self._held[token]
        if held.requests:
            self._worn.add(held)
        else:
            self._close(held)

    def _make_room(self) -> None:
        now = asyncio.get_running_loop().time()
        idle = [token for token, held in self._held.items() if not held.requests]
        old = [token for token in idle if now - self._held[token].used_s > _IDLE_S]
        for token in old:
            self._end(token)
        if not self._closed and len(self) < self._most():
            return
        left = [token for token in idle if token in self._held]
        if self._closed or not left:
            raise Overloaded(
                f"the node serves requests with {len(self)} tokens; come back later, or ask "
                "another node",
                retry_after=1,
            )
        self._end(left[0])

    def _end(self, token: str | None) -> None:
        self._close(self._held.pop(token))

    def _close(self, held: _Held) -> None:
        task = asyncio.ensure_future(held.client.close(_CLOSE_S))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Close all clients; returns within about two seconds."""
        self._closed = True
        for token in list(self._held):
            self._end(token)
        while self._worn:
            self._close(self._worn.pop())
        await asyncio.gather(*self._closing, return_exceptions=True)
