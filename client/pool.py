"""The client's connections: one per node, dialled at the first use, by one task at a time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from .connection import Connection, dial
from .protocol.address import Address
from .protocol.errors import LognodeError, Timeout
from .protocol.tls import ClientTls
from .retry import ClientClosed

T = TypeVar("T")
Token = str | Callable[[], Awaitable[str | None]] | None
"""A token, or what returns the token for each dial; None: no token."""

dial_timeout_s: Final = 1.5
suspect_s: Final = 2.0
"""How long a node that did not answer is asked last."""


async def shared(task: "asyncio.Task[T]") -> T:
    """Wait for a task on which other callers wait too; cancelling one caller does not cancel the
    task.

    Raises ClientClosed when the task was cancelled, which only closing the client does.
    """
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        caller = asyncio.current_task()
        if task.cancelled() and (caller is None or not caller.cancelling()):
            raise ClientClosed("this client was closed", reason="closed") from None
        raise


class Pool:
    """Connections by address; `tls` is None for plain connections, `token` for anonymous ones."""

    def __init__(self, tls: ClientTls | None = None, token: Token = None) -> None:
        self._tls = tls
        self._token = token
        self.cluster: str | None = None
        """The cluster that this client knows; a node of another cluster is refused (x24)."""
        self._open: dict[Address, Connection] = {}
        self._dialling: dict[Address, asyncio.Task[Connection]] = {}
        self._suspect_until: dict[Address, float] = {}
        self._closed = False

    async def get(self, address: Address, deadline: float) -> Connection:
        """Return an open connection to the address.

        Raises Unavailable when nobody answers there, ClientClosed after `close`, Timeout
        (`not_applied`) at the deadline.
        """
        connection = self.peek(address)
        if connection is not None:
            return connection
        if self._closed:
            raise ClientClosed("this client was closed", reason="closed")
        task = self._dialling.get(address)
        if task is None:
            task = asyncio.create_task(self._dial(address))
            self._dialling[address] = task
            task.add_done_callback(lambda done: self._dialled(address, done))
        try:
            async with asyncio.timeout_at(deadline):
                return await shared(task)
        except TimeoutError:
            raise Timeout(f"{address} does not answer", outcome="not_applied") from None

    def peek(self, address: Address) -> Connection | None:
        """Return the open connection to the address, or None."""
        connection = self._open.get(address)
        return connection if connection is not None and connection.lost is None else None

    def suspect(self, address: Address) -> None:
        """Note that the node did not answer in time, or not at all."""
        self._suspect_until[address] = asyncio.get_running_loop().time() + suspect_s

    def is_suspect(self, address: Address) -> bool:
        """Whether the node recently failed to answer."""
        return self._suspect_until.get(address, 0.0) > asyncio.get_running_loop().time()

    def rank(self, address: Address) -> int:
        """Return the order in which to ask, lower first: connected, unknown, suspect."""
        if self.is_suspect(address):
            return 2
        return 0 if self.peek(address) is not None else 1

    async def close(self) -> None:
        """Close every connection; returns within about a second."""
        self._closed = True
        for task in self._dialling.values():
            task.cancel()
        connections = list(self._open.values())
        self._open.clear()
        for connection in connections:
            connection.close()
        if connections:
            await asyncio.gather(*(connection.wait_closed() for connection in connections))

    async def _dial(self, address: Address) -> Connection:
        token = await self._token() if callable(self._token) else self._token
        connection = await dial(
            address.host, address.port, cluster=self.cluster, timeout_s=dial_timeout_s,
            tls=None if self._tls is None else self._tls.current(), token=token,
        )  # fmt: skip
        if self.cluster is None:
            self.cluster = connection.welcome.cluster
        self._open[address] = connection
        self._suspect_until.pop(address, None)
        connection.on_lost = lambda lost, _error: self._lost(address, lost)
        return connection

    def _dialled(self, address: Address, task: "asyncio.Task[Connection]") -> None:
        self._dialling.pop(address, None)
        if task.cancelled():
            return
        if isinstance(task.exception(), LognodeError):
            self.suspect(address)

    def _lost(self, address: Address, connection: Connection) -> None:
        if self._open.get(address) is connection:
            del self._open[address]
