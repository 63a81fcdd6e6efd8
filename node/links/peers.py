"""Link to the other nodes: one dialled connection to each peer carries all groups.

This node sends to a peer on the connection that it dialled; the peer sends on the connection that
the peer dialled. So each direction can fail, and be made to fail, alone. While a peer's unsent
bytes exceed the window, no group sends the peer more than heartbeats. This bounds the leader's
memory for a slow follower (promise L3, hole 26). The link keeps its epoch meanwhile. With a new
epoch, the acks of what is under way would not count, all of it would be sent again, the window
would fill again, and the follower would never catch up.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from ...client.connection import Connection, dial
from ...client.protocol import limits
from ...client.protocol.address import split_address
from ...client.protocol.errors import InvalidArgument, LognodeError, Unauthorized, Unavailable
from ...client.protocol.invariants import DiskFailure, InvariantError
from ...client.protocol.peers import RAFT
from ...raft.types import GroupId, Message
from ..certificates.tls import NodeTls
from ..metrics import Metrics
from ..runtime.unexpected import OnBroken
from . import raft_in

_RETRY_FIRST_S = 0.05
_RETRY_MAX_S = 1.0
_RETRY_UNUSABLE_S = 10.0
"""The retry pause after a failure that only another address, or another version, repairs."""
_DIAL_TIMEOUT_S = 2.0
_DRAIN_PERIOD_S = 0.02
_FRAME_BYTES = limits.frame_bytes_max - limits.MIB
_ITEM_WEIGHT = 64
_FRAME_COST = 1_024
"""A frame is sent once its cost for the receiver reaches this: the receiver handles a frame in one
turn of its loop. An entry costs 1 and a message costs 8 more. 1,024 are about 3 ms."""
_ITEM_COST = 8
_TOLD_CHARS = 500
"""The most characters of a peer's answer that are logged."""

log = logging.getLogger("lognode.peers")


class _UnusableError(Unavailable):
    """The registered address of a peer is invalid: an old version let a node register it."""


class PeerLinks:
    """Dials every peer while it is a peer, and sends Raft messages.

    `on_up(peer, epoch)` is called when a link can be used, `on_down(peer)` when it no longer can;
    epochs never repeat. `on_full(peer)` is called when the link's window is full, `on_room(peer)`
    when it has room again. `on_queued()` is called when something waits for `flush_queued`, at the
    end of the turn. `who()` returns (cluster id, node id, incarnation) at the time of dialling;
    `resolve` maps an advertised address to the address to dial. `check_nodes` raises Unavailable
    when there are too few descriptors for a cluster of that many nodes. Every frame carries `boot`,
    `clock_ms` and `ping_to(peer)`.
    """

    def __init__(
        self,
        *,
        who: Callable[[], tuple[str, int, int]],
        secret: bytes | None,
        tls: NodeTls | None,
        resolve: Callable[[str], str],
        on_up: Callable[[int, int], None],
        on_down: Callable[[int], None],
        on_full: Callable[[int], None],
        on_room: Callable[[int], None],
        on_broken: OnBroken,
        on_queued: Callable[[], None],
        rng: random.Random,
        boot: raft_in.Boot,
        clock_ms: Callable[[], int],
        ping_to: Callable[[int], list[object]],
        check_nodes: Callable[[int], None],
        metrics: Metrics,
    ) -> None:
        self._check_nodes = check_nodes
        self._ping_to = ping_to
        self._metrics = metrics
        self._boot = boot
        self._clock_ms = clock_ms
        self._who = who
        self._secret = secret
        self._tls = tls
        self._resolve = resolve
        self._on_up = on_up
        self._on_down = on_down
        self._on_full = on_full
        self._on_room = on_room
        self._on_broken = on_broken
        self._on_queued = on_queued
        self._queued: dict[_Link, None] = {}
        self._rng = rng
        self._links: dict[int, _Link] = {}
        self._epoch = rng.randrange(1, 1 << 32)

    def set_peers(self, addresses: Mapping[int, str]) -> None:
        """Link to exactly these nodes, at these advertised addresses."""
        if len(addresses) > len(self._links):
            try:
                self._check_nodes(len(addresses) + 1)
            except Unavailable as error:
                log.warning("%s", error.message)
        for peer in [peer for peer in self._links if peer not in addresses]:
            self._links.pop(peer).stop()
        for peer, address in addresses.items():
            link = self._links.get(peer)
            if link is not None and link.address != address:
                link.stop()
                link = None
            if link is None:
                link = self._links[peer] = _Link(self, peer, address)
                link.start()

    def redial(self) -> None:
        """Dial those peers again whose advertised addresses resolve to other addresses now."""
        for peer, link in list(self._links.items()):
            if link.target != self._resolve(link.address):
                link.stop()
                self._links[peer] = _Link(self, peer, link.address)
                self._links[peer].start()

    def recheck(self) -> None:
        """End the links to peers that show an old key, after nodes were bound to other keys."""
        for link in self._links.values():
            link.recheck()

    def connection(self, peer: int) -> Connection | None:
        """Return the open connection to a peer, for requests, or None."""
        link = self._links.get(peer)
        return None if link is None else link.connection

    def is_peer(self, node: int) -> bool:
        """Return whether this node links to `node`."""
        return node in self._links

    async def dial(self, peer: int) -> Connection:
        """Dial another connection to a peer; the caller owns it. Raises Unavailable,
        Unauthorized."""
        link = self._links.get(peer)
        if link is None:
            raise Unavailable(f"node {peer} is not a peer of this node")
        return await link._dial()

    def epochs(self) -> dict[int, int]:
        """Return the epochs of the links that can be used now, by peer."""
        return {peer: link.epoch for peer, link in self._links.items() if link.up}

    def full(self) -> list[int]:
        """Return the peers whose window is full now."""
        return [peer for peer, link in self._links.items() if link.full]

    def send(self, peer: int, gid: GroupId, fingerprint: bytes, message: Message) -> None:
        """Queue a Raft message for the end of this turn; it is lost if the link is lost."""
        link = self._links.get(peer)
        if link is not None and link.up:
            item = raft_in.item(gid, fingerprint, message)
            link.queue("messages", item, _weight(message), _cost(message))

    def send_read_round(self, peer: int, message: Message) -> None:
        """Queue a round of read confirmations, like `send`."""
        self._send_reads(peer, "reads", message)

    def send_read_answer(self, peer: int, message: Message) -> None:
        """Queue the answer to a peer's round, like `send`."""
        self._send_reads(peer, "answers", message)

    def _send_reads(self, peer: int, kind: str, message: Message) -> None:
        link = self._links.get(peer)
        if link is not None and link.up:
            link.queue(kind, message, _ITEM_WEIGHT * len(message[-1]), _cost(message))

    def ping(self) -> None:
        """Send a frame to every peer, even if nothing is queued."""
        for link in self._links.values():
            link.flush()

    def flush_queued(self) -> None:
        """Send a frame to each peer with queued items, at the end of a turn."""
        queued, self._queued = self._queued, {}
        for link in queued:
            link.flush_queued()

    def frame(self, peer: int, items: Mapping[str, list[list[object]]]) -> dict[str, object]:
        """Return the body of a frame of Raft messages; `items` may be empty."""
        return raft_in.frame(
            items, boot=self._boot, clock_ms=self._clock_ms(), ping=self._ping_to(peer)
        )

    def stop(self) -> None:
        """Close all links."""
        for link in self._links.values():
            link.stop()
        self._links.clear()


class _Link:
    """The connection to one peer, dialled again whenever it ends."""

    def __init__(self, owner: PeerLinks, peer: int, address: str) -> None:
        self.peer = peer
        self.address = address
        self.target = ""
        """The address of the last dial."""
        self.connection: Connection | None = None
        self.up = False
        self.full = False
        self.epoch = 0
        self._told = ""
        """The last logged reason of a failed dial."""
        self._owner = owner
        self._task: asyncio.Task[None] | None = None
        self._out: dict[str, list[list[object]]] = {}
        self._out_bytes = 0
        self._out_cost = 0
        self._loop = asyncio.get_running_loop()

    def start(self) -> None:
        self._task = self._begun(self._keep())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
        self._go_down()
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    def recheck(self) -> None:
        tls = self._owner._tls
        if tls is not None and self.connection is not None:
            try:
                tls.check_node(self.connection.certificate, self.peer)
            except LognodeError as error:
                self.connection.abort(error)

    def queue(self, kind: str, item: list[object], weight: int, cost: int) -> None:
        if not self._out:
            self._owner._queued[self] = None
            self._owner._on_queued()
        self._out.setdefault(kind, []).append(item)
        self._out_bytes += weight
        self._out_cost += cost
        if self._out_bytes > _FRAME_BYTES // 2 or self._out_cost >= _FRAME_COST:
            self.flush()

    def flush_queued(self) -> None:
        """Send what is still queued, without waiting for more."""
        if self._out:
            self.flush(now=True)

    def flush(self, *, now: bool = False) -> None:
        """Send a frame with what is queued, or an empty frame. `now`: the turn is at its end."""
        out, self._out = self._out, {}
        self._out_bytes = self._out_cost = 0
        if self.connection is None or not self.up:
            return
        self._owner._metrics.raft_frames.inc()
        self._owner._metrics.raft_messages.inc(len(out.get("messages", ())))
        self.connection.send(RAFT, self._owner.frame(self.peer, out), now=now)
        if not self.full and self.connection.queued_bytes > limits.peer_window_bytes_max:
            self.full = True
            self._owner._on_full(self.peer)
            self._begun(self._drain(self.connection))

    def _begun(self, part: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = self._loop.create_task(part, name=f"link to node {self.peer}")
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._owner._on_broken(error)

    async def _drain(self, connection: Connection) -> None:
        while connection.lost is None and self.up and connection is self.connection:
            if connection.queued_bytes < limits.peer_window_bytes_max // 4:
                self.full = False
                self._owner._on_room(self.peer)
                return
            await asyncio.sleep(_DRAIN_PERIOD_S)

    async def _keep(self) -> None:
        retry_s = _RETRY_FIRST_S
        while True:
            ended: asyncio.Future[None] = self._loop.create_future()
            try:
                connection = await self._dial()
            except (InvariantError, DiskFailure):
                raise
            except Exception as error:
                if isinstance(error, Unauthorized) and self._owner._tls is not None:
                    self._owner._tls.refused_by_peer(error)
                self._dial_failed(error)
                if not isinstance(error, LognodeError) or isinstance(error, _UnusableError):
                    retry_s = _RETRY_UNUSABLE_S
                await asyncio.sleep(retry_s * self._owner._rng.uniform(0.5, 1.0))
                retry_s = min(retry_s * 2, _RETRY_MAX_S)
                continue
            retry_s, self._told = _RETRY_FIRST_S, ""
            self.connection = connection
            connection.on_lost = lambda _, __, ended=ended: _finish(ended)
            connection.ping_when_idle()
            self._go_up(connection)
            try:
                if connection.lost is None:
                    await ended
            finally:
                self._go_down()
                self.connection = None
                connection.close()

    def _dial_failed(self, error: Exception) -> None:
        """Log a failure that needs an operator, once for each reason. No address and no answer of a
        peer ends this node: the link stays down, and is dialled again."""
        told = str(error)[:_TOLD_CHARS]
        if isinstance(error, _UnusableError):
            self._owner._metrics.unusable_records.labels("address").inc()
        if told == self._told:
            return
        fields = {"peer": self.peer, "address": self.address, "error": told}
        if isinstance(error, _UnusableError):
            log.error(
                "the address of a peer cannot be dialled: start that node with another "
                "--advertise, or remove the node", extra={"fields": fields},
            )  # fmt: skip
        elif isinstance(error, Unauthorized):
            log.error("a peer refuses this node; this node keeps trying", extra={"fields": fields})
        elif not isinstance(error, LognodeError):
            log.error(
                "dialling a peer failed because of a bug: report the log of this "
                "node", exc_info=error,
                extra={"fields": fields},
            )  # fmt: skip
        else:
            return
        self._told = told

    async def _dial(self) -> Connection:
        try:
            return await self._dial_at(self.address)
        except Unauthorized as error:
            told = error.fields.get("peer")
            if type(told) is not str:
                raise
        # The record of the node is from before nodes had a port for peers.
        return await self._dial_at(told)

    async def _dial_at(self, address: str) -> Connection:
        cluster, node, incarnation = self._owner._who()
        tls = self._owner._tls
        self.target = self._owner._resolve(address)
        try:
            host, port = split_address(self.target)
        except InvalidArgument as error:
            raise _UnusableError(error.message) from None
        connection = await dial(
            host, port, role="node", cluster=cluster, node=node, incarnation=incarnation,
            secret=self._owner._secret, timeout_s=_DIAL_TIMEOUT_S,
            tls=None if tls is None else tls.dialling(self.peer),
        )  # fmt: skip
        if connection.welcome.node not in (None, self.peer):
            connection.close()
            raise Unauthorized(
                f"{address} is the address of node {connection.welcome.node}, not of node "
                f"{self.peer}"
            )
        return connection

    def _go_up(self, connection: Connection) -> None:
        if not self.up and connection.lost is None and connection is self.connection:
            self._owner._epoch += 1
            self.epoch = self._owner._epoch
            self.up = True
            self._owner._on_up(self.peer, self.epoch)

    def _go_down(self) -> None:
        if self.up:
            self.up = self.full = False
            self._out.clear()
            self._out_bytes = self._out_cost = 0
            self._owner._on_down(self.peer)


def _weight(message: Message) -> int:
    """Return the approximate bytes of a message: only appends are large."""
    entries = message[-1]
    if not isinstance(entries, list):
        return _ITEM_WEIGHT
    return _ITEM_WEIGHT + sum(len(command) for _, command in entries)


def _cost(message: Message) -> int:
    """Return the cost of a message for its receiver; see `_FRAME_COST`."""
    last = message[-1]
    return _ITEM_COST + (len(last) if isinstance(last, list) else 0)


def _finish(ended: "asyncio.Future[None]") -> None:
    if not ended.done():
        ended.set_result(None)
