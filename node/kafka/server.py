"""The port for Kafka clients: bounded connections, requests and answers.

A request is read only when its size is allowed and there is memory for it. A connection has a
bounded number of appends under way. It ends when a request takes too long to arrive, when its
client takes no answer, when nothing was asked for a long time, and at a request that breaks the
protocol. An idle connection costs a socket and a timer.
"""

import asyncio
import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any, Final

from ...client.accepting.listening import Entrance
from ...client.accepting.server_handshake import handshake_timeout_s
from ...client.loopback import is_loopback
from ...client.protocol import limits
from ...client.protocol.address import split_address
from ...client.protocol.errors import LognodeError, Unavailable
from ..access.access import Accesses
from ..access.http_guard import certificate_of
from ..audit.audit import Audit
from ..certificates.tls import NodeTls
from ..config import Config
from ..metadata.view import View
from ..metrics import Metrics
from .clients import CLIENTS_MAX, dialler, own_token
from .door import Finish, KafkaDoor
from .large_produce import LARGE_BYTES_MAX, LargeProduce
from .room import FREE, Room
from .sending import send
from .session import Access
from .wire import Malformed

REQUEST_BYTES_MAX: Final = 8 * limits.MIB
_REQUESTS_BYTES_MAX: Final = 64 * limits.MIB
"""Bytes of all requests that are being read or decoded."""
_OF_HOST: Final = _REQUESTS_BYTES_MAX // 2
"""Bytes of these that one host may have."""
_STRANGER_BYTES_MAX: Final = 64 * limits.KIB
"""The largest request of a client that has not authenticated."""
_UNDER_WAY_MAX: Final = 16
"""Appends of a connection whose answers are not sent yet."""
_LEAST: Final = 8
"""Bytes of the shortest request."""
_SIZE_BYTES: Final = 4
_IDLE_S: Final = 600.0
_REQUEST_S: Final = 30.0
"""How long a request may take to arrive after its size."""
_BUFFER_BYTES: Final = 8 * limits.KIB
"""Bytes that a connection reads at once, and twice of which it keeps, before a request has memory;
and bytes of answers that it keeps for its client."""
_READ_BYTES: Final = 256 * limits.KIB
"""Bytes that a connection reads at once for a request that has memory."""
_TLS_SHARE: Final = 1 / 4
"""The share of the connections that may exist with TLS, each of which has buffers of its own."""
_HOST_SHARE: Final = 0.5
"""The share of the connections that one host may have."""
_STRANGERS_SHARE: Final = 1 / 16
"""The share of the connections that one host may have before it shows tokens, and at least 8."""
_STRANGERS_LEAST: Final = 8
_SLACK: Final = 8
"""Sockets that are being closed while others take their places."""
_CLOSE_S: Final = 1.0
_LOGIN_S: Final = 10.0
"""How long a client of a cluster with tokens may take to authenticate."""
_TELL_EVERY_S: Final = 10.0
_DIALS_SHARE: Final = 4
"""One of so many descriptors is for connections to the nodes of the cluster."""

log = logging.getLogger("lognode.kafka")


class KafkaServer:
    """Listens for Kafka clients, and serves at most `connections_max` connections."""

    def __init__(
        self, door: KafkaDoor, accesses: Accesses, tls: NodeTls | None, *, connections_max: int
    ) -> None:
        self._door = door
        self._accesses = accesses
        self._tls = tls
        self._connections_max = connections_max
        self._room = Room(_REQUESTS_BYTES_MAX, _OF_HOST)
        self._endings = _Endings()
        self._guests: dict[_Guest, asyncio.Task[None] | None] = {}
        self._hosts: Counter[str] = Counter()
        self._strangers: Counter[str] = Counter()
        """Connections of each host whose clients have not authenticated."""
        self._entrance: Entrance | None = None

    async def start(self, address: str) -> None:
        """Listen. Raises Unavailable when the address is not available."""
        host, port = split_address(address, "kafka")
        self._entrance = Entrance(
            self._arrive, sockets_max=self._connections_max + _SLACK,
            tls=None if self._tls is None else self._tls.http_context,
            handshake_s=handshake_timeout_s,
        )  # fmt: skip
        try:
            await self._entrance.listen(host, port)
        except OSError as error:
            raise Unavailable(
                f"cannot listen on {address} for Kafka clients: {error.strerror or error}; give "
                "another address with --kafka"
            ) from None

    async def close(self) -> None:
        """Close the listener, all connections and the door; returns within about two seconds."""
        if self._entrance is not None:
            await self._entrance.close()
        serving = [task for task in self._guests.values() if task is not None]
        for task in serving:
            task.cancel()
        if serving:
            await asyncio.wait(serving, timeout=_CLOSE_S)
        await self._door.close()

    def numbers(self) -> Mapping[str, int]:
        """Return what the metrics show."""
        return {"connections": len(self._guests), **self._door.numbers()}

    @property
    def tls_ended(self) -> int:
        """The number of connections with TLS that have ended since the start."""
        return 0 if self._entrance is None or self._tls is None else self._entrance.ended

    def _arrive(self) -> asyncio.BaseProtocol | None:
        if len(self._guests) >= self._connections_max:
            return None
        guest = _Guest(self._begin, self._gone)
        self._guests[guest] = None
        return guest

    def _begin(self, guest: "_Guest", writer: asyncio.StreamWriter) -> None:
        name = writer.get_extra_info("peername")
        guest.host = str(name[0]) if name else "?"
        self._hosts[guest.host] += 1
        if self._hosts[guest.host] > max(1, int(self._connections_max * _HOST_SHARE)):
            writer.transport.abort()
            return
        if self._accesses.is_on:
            most = max(_STRANGERS_LEAST, int(self._connections_max * _STRANGERS_SHARE))
            if self._strangers[guest.host] >= most:
                writer.transport.abort()
                return
            self._strangers[guest.host] += 1
            guest.is_stranger = True
        try:
            connection = _Connection(
                self._door, self._accesses, self._tls, self._room, guest, writer, self._endings,
                self._known,
            )  # fmt: skip
        except LognodeError as error:
            self._endings.tell(error)
            writer.transport.abort()
            return
        self._guests[guest] = asyncio.create_task(connection.serve())

    def _known(self, guest: "_Guest") -> None:
        """Note that the client of a connection has authenticated, or is gone."""
        if guest.is_stranger:
            guest.is_stranger = False
            self._strangers[guest.host] -= 1
            if not self._strangers[guest.host]:
                del self._strangers[guest.host]

    def _gone(self, guest: "_Guest") -> None:
        task = self._guests.pop(guest, None)
        if task is not None:
            task.cancel()
        self._known(guest)
        if guest.host:
            self._hosts[guest.host] -= 1
            if not self._hosts[guest.host]:
                del self._hosts[guest.host]
        if self._entrance is not None:
            self._entrance.gone(guest)


class _Guest(asyncio.StreamReaderProtocol):
    """A connection as asyncio sees it."""

    def __init__(
        self,
        on_made: Callable[["_Guest", asyncio.StreamWriter], None],
        on_gone: Callable[["_Guest"], None],
    ) -> None:
        self.reader = asyncio.StreamReader(limit=_BUFFER_BYTES)
        self.host = ""
        self.is_stranger = False
        self._on_made = on_made
        self._on_gone = on_gone
        super().__init__(self.reader, self._made)

    def connection_made(self, transport: Any) -> None:
        self._own_transport = transport
        self.read_at_once(_BUFFER_BYTES)
        self._own_transport.set_write_buffer_limits(_BUFFER_BYTES)
        super().connection_made(transport)

    def read_at_once(self, size: int) -> None:
        """Read at most so many bytes at once from now on. This holds for connections without TLS;
        asyncio has no other way to say it."""
        self._own_transport.max_size = size

    def _made(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._on_made(self, writer)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._on_gone(self)


class _Connection:
    """The requests of one connection. Raises Unauthorized for a certificate of another cluster."""

    def __init__(
        self, door: KafkaDoor, accesses: Accesses, tls: NodeTls | None, room: Room,
        guest: _Guest, writer: asyncio.StreamWriter, endings: "_Endings",
        on_known: Callable[[_Guest], None],
    ) -> None:  # fmt: skip
        self._guest = guest
        self._on_known = on_known
        self._endings = endings
        self._door = door
        self._accesses = accesses
        self._room = room
        self._reader = guest.reader
        self._host = guest.host
        self._writer = writer
        self.access: Access | None = None
        """What the client may do; None until the client is known."""
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        secured = writer.get_extra_info("ssl_object")
        certificate = certificate_of(secured)
        if tls is not None and certificate is not None:
            tls.check_client(certificate)
        port = (writer.get_extra_info("peername") or ("?", 0))[1]
        self._session = door.session(
            host=guest.host, address=f"{guest.host}:{port}", certificate=certificate,
            is_private=secured is not None or is_loopback(guest.host), opened=self._opened,
        )  # fmt: skip
        self._begun: asyncio.Queue[Finish] = asyncio.Queue(_UNDER_WAY_MAX)

    async def serve(self) -> None:
        """Serve until the client leaves or has to leave; then close the connection."""
        parts = [asyncio.create_task(self._take()), asyncio.create_task(self._finish())]
        try:
            await asyncio.wait([*parts, self._ended], return_when=asyncio.FIRST_COMPLETED)
        finally:
            # Nothing waits before all is given back: a client that leaves now cancels this task.
            for part in parts:
                ended = part.done() and not part.cancelled()
                self._endings.tell(part.exception() if ended else None)
                part.cancel()
            self._accesses.closed(self)
            self._session.close()
            self._writer.transport.abort()
            await asyncio.gather(*parts, return_exceptions=True)

    @property
    def awaits_answers(self) -> bool:
        """Whether the rights of the connection may end only later: never."""
        return False

    def refuse(self, error: LognodeError) -> None:
        """End the connection, whose rights have ended."""
        self._endings.tell(error)
        if not self._ended.done():
            self._ended.set_result(None)

    def _opened(self, access: Access) -> None:
        self._on_known(self._guest)
        self.access = access
        self._accesses.opened(self)

    async def _take(self) -> None:
        """Take requests, one after another."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        while True:
            is_known = self._session.is_known
            async with asyncio.timeout(_IDLE_S if is_known else began + _LOGIN_S - loop.time()):
                size = int.from_bytes(await self._reader.readexactly(_SIZE_BYTES), "big")
            most = LARGE_BYTES_MAX if is_known else _STRANGER_BYTES_MAX
            if not _LEAST <= size <= most:
                raise Malformed(f"a request has {size} bytes; {_LEAST} to {most} are allowed")
            if size > REQUEST_BYTES_MAX:
                large = LargeProduce(
                    self._read, size, room=self._room, host=self._host,
                    batch_bytes_max=REQUEST_BYTES_MAX,
                    within_s=_REQUEST_S * math.ceil(size / REQUEST_BYTES_MAX),
                )  # fmt: skip
                await self._begun.put(await self._door.begin_large(large, self._session))
                continue
            async with self._room.held(size, self._host) if size > FREE else nullcontext():
                async with asyncio.timeout(_REQUEST_S):
                    data = await self._read(size)
                finish, may_go_on = await self._door.begin(data, self._session)
                del data
            await self._begun.put(finish)
            if not may_go_on:
                await self._begun.join()

    async def _read(self, size: int) -> bytes:
        """Return so many bytes, whose memory this connection has."""
        if size <= FREE:
            return await self._reader.readexactly(size)
        self._guest.read_at_once(_READ_BYTES)
        try:
            return await self._reader.readexactly(size)
        finally:
            self._guest.read_at_once(_BUFFER_BYTES)

    async def _finish(self) -> None:
        """Finish the requests in their order."""
        while True:
            finish = await self._begun.get()
            await finish(self._send)
            self._begun.task_done()

    async def _send(self, answer: bytes) -> None:
        await send(self._writer, answer, others_wait=self._door.answers_wait)


async def opened(
    config: Config, *, node_id: int, connections_max: int, view: View,
    alive: Callable[[], set[int] | None], accesses: Accesses, tls: NodeTls | None,
    audit: Audit, metrics: Metrics,
) -> KafkaServer | None:  # fmt: skip
    """Listen for Kafka clients; return None for a node that does not serve them.

    `alive` returns the nodes that the cluster heard lately; None while nobody knows. Raises the
    errors of `KafkaServer.start`.
    """
    own = config.advertised_kafka
    if own is None:
        return None

    def brokers() -> Mapping[int, str]:
        heard = alive()
        told = {node: at for node, at in view.kafka.items() if heard is None or node in heard}
        return {**told, node_id: own}

    def compacts(log_id: int) -> bool | None:
        known = view.metadata.logs.get(log_id)
        return None if known is None else known.policy.compacts

    dials = connections_max // _DIALS_SHARE
    door = KafkaDoor(
        dialler(config), own_token(config, lambda: accesses.is_on), accesses, node_id=node_id,
        brokers=brokers, producer_key=lambda: view.metadata.producer_key,
        on_refused=audit.turned_away, requests=metrics.kafka_requests,
        auto_partitions=config.kafka_auto_create, compacts=compacts,
        most=lambda: min(CLIENTS_MAX, max(1, dials // max(1, len(view.metadata.nodes)))),
    )  # fmt: skip
    most = connections_max - dials
    server = KafkaServer(
        door, accesses, tls,
        connections_max=most if tls is None else max(1, int(most * _TLS_SHARE)),
    )  # fmt: skip
    await server.start(config.kafka)
    metrics.show_kafka(server.numbers)
    return server


async def close(server: KafkaServer | None) -> None:
    """Close a server; None: no server."""
    if server is not None:
        await server.close()


def row(server: KafkaServer | None) -> dict[str, int] | None:
    """Return what the status shows of a server; None: no server."""
    return None if server is None else dict(server.numbers())


def tls_ended(server: KafkaServer | None) -> int:
    """Return how many connections with TLS of a server have ended; None: no server."""
    return 0 if server is None else server.tls_ended


class _Endings:
    """Logs why connections end: at most a line in ten seconds of what clients do, and of errors of
    the node. A client that connects again and again does not fill the log."""

    def __init__(self) -> None:
        self._told_s: dict[int, float] = {}
        """When there was a line, by level."""
        self._untold: Counter[int] = Counter()

    def tell(self, error: BaseException | None) -> None:
        """Log why a connection ended, unless the client has left."""
        if error is None or isinstance(error, (ConnectionError, EOFError)):
            return
        # A socket that fails, and a TimeoutError, are OSErrors.
        is_clients = isinstance(error, (Malformed, OSError, LognodeError))
        level = logging.INFO if is_clients else logging.ERROR
        now = time.monotonic()
        if now - self._told_s.get(level, -math.inf) < _TELL_EVERY_S:
            self._untold[level] += 1
            return
        fields = {"others_since": self._untold.pop(level, 0)}
        self._told_s[level] = now
        if is_clients:
            told = {"reason": str(error) or "the client was too slow", **fields}
            log.info("kafka connection closed", extra={"fields": told})
        else:
            log.error("kafka request failed", exc_info=error, extra={"fields": fields})
