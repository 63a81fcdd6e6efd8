"""Serve the data protocol's operations, without sockets.

Every request names (range, generation). A replica of exactly that generation serves the request.
Any other request is refused with the descriptors that this node knows, so that the client can find
the right node (docs/design/ranges.md#routing).
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from functools import partial
from typing import Any

from ...client.accepting.access import Allowed
from ...client.accepting.request import Room
from ...client.protocol import Operation, limits
from ...client.protocol.appends import (
    DELETE_KEYS,
    FENCE,
    LEASE_RELEASE,
    LEASE_TAKE,
    RESTORE,
    TRIM,
)
from ...client.protocol.errors import (
    CorruptData,
    GenerationMismatch,
    LognodeError,
    NodeNotFound,
    NotLeader,
    Overloaded,
    RangeNotFound,
    Timeout,
    Unavailable,
    bare,
    from_wire,
    to_wire,
)
from ...client.protocol.limit_checks import check_limit
from ...client.protocol.records import Batch, PackedBatch, open_batch
from ...raft.types import GroupId
from ...statemachine import commands
from ..metrics import Metrics
from ..quota.quotas import Payer
from ..replicas.key_turns import WAIT_S
from ..replicas.range_replica import RangeReplica
from ..runtime import fields
from ..runtime.slices import InOrder
from . import cursor_service, lease
from .cursor_service import CursorChanges, Read
from .floor_shares import FloorShares
from .read_wait import BARRIER, wait_before
from .reads import READS, show
from .restores import Restores
from .trims import that_hide

_READ_TIMEOUT_MAX_MS = 60_000
_LAG_WAIT_S = 0.5
"""How long a prefix read waits for a replica that is behind the session: others may be ahead."""
_SMALL_BYTES = 64 * limits.KIB
"""A batch of at most this size is checked at once, which takes 4 ms at most. So are several batches
of at most this size together, packed and unpacked."""

Body = dict[str, Any]
Handler = Callable[[Body], Coroutine[Any, None, Body]]
PaidHandler = Callable[[Body, Room], Coroutine[Any, None, Body]]
Change = Callable[[RangeReplica, Body], Awaitable[Body]]


class DataService:
    """Appends and reads on the ranges of this node.

    `replica` returns the running replica of a range, of any generation. `describe` returns the
    descriptors that this node knows for the span of a range. `damaged` returns the reason why the
    replica of a generation does not serve, or None; `for_good` tells whether that replica never
    will again. `on_damaged` is called with the damage that a read finds. `level` returns the
    feature level of the cluster.
    """

    def __init__(
        self,
        *,
        node_id: int,
        replica: Callable[[int], RangeReplica | None],
        describe: Callable[[int], list[Body]],
        damaged: Callable[[GroupId], str | None],
        for_good: Callable[[GroupId], bool],
        on_damaged: Callable[[RangeReplica, CorruptData], None],
        level: Callable[[], int],
        metrics: Metrics,
    ) -> None:
        self._node_id = node_id
        self._replica = replica
        self._describe = describe
        self._damaged = damaged
        self._for_good = for_good
        self.on_damaged = on_damaged
        self._in_order = InOrder()
        self._floor_shares = FloorShares()
        self._metrics = metrics
        self.handlers: dict[Operation, Handler] = {
            FENCE: self.fence,
            TRIM: partial(self._remove, commands.TRIM_KEYS),
            DELETE_KEYS: partial(self._remove, commands.DELETE_KEYS),
            LEASE_TAKE: partial(self._change, lease.Leases().take),
            LEASE_RELEASE: partial(self._change, lease.release),
            RESTORE: partial(self._change, Restores(level).restore),
            **{
                operation: partial(self._change, change)
                for operation, change in CursorChanges(level).changes.items()
            },
        }
        self.reads: dict[Operation, PaidHandler] = {
            operation: partial(self._read, read)
            for operation, read in (*READS.items(), *cursor_service.READS.items())
        }

    def find(self, body: Body) -> RangeReplica:
        """Return the replica that the request names.

        Raises RangeNotFound and GenerationMismatch. A damaged replica raises NotLeader, so that the
        client asks another member. A request for this very node gets the reason instead:
        NodeNotFound, CorruptData.
        """
        gid = fields.group(body)
        node = body["node"]
        if node is not None and node != self._node_id:
            raise NodeNotFound(f"this is node {self._node_id}, not node {node}", node=node)
        replica = self._replica(gid.range_id)
        if replica is not None and replica.gid == gid and not replica.stopped:
            return replica
        reason = self._damaged(gid)
        if reason is not None:
            raise self.damage_refusal(gid, reason, node)
        if replica is not None and replica.gid == gid:
            return replica  # it has stopped, and raises that itself
        known = self._describe(gid.range_id)
        if replica is not None:
            raise GenerationMismatch(
                f"range {gid.range_id} has generation {replica.gid.generation} on this node",
                ranges=known,
            )
        if not known:
            raise RangeNotFound(f"this node has no range {gid.range_id}", range=gid.range_id)
        members = known[0]["members"]
        if node is not None and node not in members:
            raise NodeNotFound(
                f"node {node} has no replica of range {gid.range_id}; nodes "
                f"{', '.join(map(str, members))} have replicas",
                node=node,
            )
        raise GenerationMismatch(f"this node does not have range {gid.range_id}", ranges=known)

    # Appends.

    async def append(
        self, body: Body, allowed: Allowed | None = None, payer: Payer | None = None
    ) -> Body:
        """Append batches in their order; each has its own result.

        A batch with a key or a producer that is not `allowed` is refused with Unauthorized; None
        allows everything.
        """
        started = time.monotonic()
        replica = self.find(body)
        batches = body["batches"]
        traces = replica.services.traces
        trace = None if traces is None else traces.begin(body.get("trace"))
        waiting = None
        if self._in_order.idle and sum(map(len, batches)) <= _SMALL_BYTES:
            waiting = _append_small(replica, batches, allowed, payer)
        if waiting is None:
            few = len(batches) if len(batches) <= limits.ordered_batches_max else 1
            first = list(map(_opened, batches[:few]))
            keys = {(replica.gid, each.producer) for each in first if isinstance(each, PackedBatch)}
            steps = _append_steps(replica, first, batches[few:], allowed, payer)
            waiting = await self._in_order.stepped(keys, steps)
        if traces is not None and trace is not None:
            traces.waits(trace, waiting)
        results: list[Body] = []
        for item in waiting:
            if isinstance(item, LognodeError):
                results.append({"status": "error", "error": to_wire(item)})
                continue
            try:
                results.append(await item)
            except LognodeError as error:
                results.append({"status": "error", "error": to_wire(bare(error))})
        self._metrics.append_seconds.observe(time.monotonic() - started)
        if traces is not None and trace is not None:
            codes = [each["error"]["code"] for each in results if each.get("status") == "error"]
            code = codes[0] if codes else None
            traces.end(trace, code, range=replica.gid.range_id, batches=len(batches))
        return {"results": results}

    # Removal.

    async def _remove(self, kind: int, body: Body) -> Body:
        """Trim or delete keys, on the leader. A repetition has no further effect (S11). A key
        without an entry to remove keeps no floor."""
        replica = self.find(body)
        removals = [(key, before) for key, before in body["keys"]]
        span = replica.descriptor.span
        if any(key not in span for key, _ in removals):
            raise GenerationMismatch(
                f"a key is not in range {replica.gid.range_id}",
                ranges=[replica.descriptor.to_wire()],
            )
        if replica.proposed_bytes > limits.append_queue_bytes_max:
            raise Overloaded("the range's append queue is full", retry_after=0.05)
        try:
            removals = await that_hide(replica, removals)
        except CorruptData as error:
            self.on_damaged(replica, error)
            raise self.damage_refusal(replica.gid, error.message, body["node"]) from None
        if not removals:
            return {}
        self._floor_shares.take(replica, body.get("owner", ""), [key for key, _ in removals])
        reply = await replica.propose_and_wait(kind, removals)
        if reply.get("status") == "error":
            raise from_wire(reply["error"])
        return {}

    async def _change(self, change: Change, body: Body) -> Body:
        """Change a lease or a cursor, on the leader. A repetition has no further effect."""
        return await change(self.find(body), body)

    # Producers.

    async def fence(self, body: Body) -> Body:
        """Refuse lower epochs of a producer in this range from now on (x27)."""
        replica = self.find(body)
        payload = [body["id"], body["epoch"], body["epoch"]]
        reply = await replica.propose_and_wait(commands.FENCE, payload)
        if reply.get("status") == "error":  # a seal was committed before the fence
            raise from_wire(reply["error"])
        return {}

    def producer_close(self, body: Body) -> None:
        """Drop the row of a producer that has settled every append. There is no answer."""
        try:
            self.find(body).close_producer(body["id"])
        except LognodeError:
            return  # an idle row is removed after 24 h

    # Reads.

    def reading(self, read: Read) -> PaidHandler:
        """Return the handler that serves a read at the consistency that the request names."""
        return partial(self._read, read)

    async def _read(self, read: Read, body: Body, room: Room) -> Body:
        """Serve a read at its consistency. The answer has the index that was applied."""
        started = time.monotonic()
        replica = self.find(body)
        await self._until_readable(replica, body, room)
        try:
            answer = await read(replica, body)
        except CorruptData as error:
            self.on_damaged(replica, error)
            raise self.damage_refusal(replica.gid, error.message, body["node"]) from None
        replica.count_read()
        show(replica, body)
        answer.setdefault("applied", replica.applied_index)  # pages and numbers set their own
        if not replica.leads:
            answer["leader"] = replica.leader_hint
        self._metrics.read_seconds.observe(time.monotonic() - started)
        return answer

    def _check_runs(self, replica: RangeReplica) -> None:
        if replica.stopped:
            raise NotLeader("this replica has stopped", hint=None)

    async def _until_readable(self, replica: RangeReplica, body: Body, room: Room) -> None:
        """Wait until the replica may serve the read. Any member serves either consistency: a
        follower asks the leader which index to wait for.

        The room for the answer is taken last, so that no read holds room while it waits for others.
        """
        timeout_s = min(body["timeout_ms"], _READ_TIMEOUT_MAX_MS) / 1000
        through, session = body["through"], body["applied"] or 0
        try:
            async with asyncio.timeout(timeout_s):
                if body.get("turn") is not None:
                    await _in_turn(replica, body)
                wait = wait_before(body["consistency"], session, replica.applied_index)
                if wait == BARRIER:
                    await replica.read_barrier()
                elif wait:
                    await self._reach(replica, wait)
                if through is not None:
                    await replica.wait_seq(through, alone=body["node"] is not None)
                await room()
        except TimeoutError:
            reached = (
                ""
                if through is None
                else f"; the replica has applied seq {replica.state.next_seq - 1}"
            )
            raise Timeout(
                f"the read did not finish within {timeout_s:g} s{reached}", outcome="not_applied"
            ) from None
        self._check_runs(replica)

    async def _reach(self, replica: RangeReplica, index: int) -> None:
        """Wait until the replica has applied what the session has seen (S7, x2.19)."""
        try:
            async with asyncio.timeout(_LAG_WAIT_S):
                await replica.wait_applied(index)
        except TimeoutError:
            raise Unavailable(
                f"node {self._node_id} has applied entry {replica.applied_index} of "
                f"{replica.gid}, but the session has seen {index}; ask another member",
                reason="behind",
            ) from None

    def damage_refusal(self, gid: GroupId, reason: str, node: int | None) -> LognodeError:
        """Return the error for a damaged replica on this node; another member serves the range."""
        if node is None:
            return NotLeader(
                f"the replica of {gid} on this node takes no part now; ask another member",
                hint=None,
            )
        if not self._for_good(gid):
            return Unavailable(
                f"node {self._node_id}'s replica of range {gid.range_id} takes no part now: "
                f"{reason}",
                reason="mending",
            )
        return CorruptData(
            f"node {self._node_id}'s replica of range {gid.range_id} is damaged: {reason}; "
            "read without node=, and another member answers",
            outcome="not_applied",
        )


async def _in_turn(replica: RangeReplica, body: Body) -> None:
    """Wait for the turn to update the key, or end the turn. Raises NotLeader."""
    if body["turn"] == "end":
        replica.key_turns.end(body["key"])
    else:
        await replica.take_turn(body["key"], min(WAIT_S, body["timeout_ms"] / 2_000))


def _opened(data: bytes) -> PackedBatch | LognodeError:
    """Return the batch with its columns still packed, or the batch's error."""
    try:
        return open_batch(data)
    except CorruptData as error:
        return CorruptData(error.message, outcome="not_applied")


def _check_declared(batches: Sequence[PackedBatch]) -> None:
    """Raise LimitExceeded if the batches together are too large for one request."""
    values = sum(each.values_size for each in batches)
    check_limit(
        "values_bytes_max", limits.values_bytes_max, values,
        f"the batches of an append have values of {values} uncompressed bytes",
        "Send several requests",
    )  # fmt: skip
    records = sum(each.records for each in batches)
    check_limit(
        "request_records_max", limits.request_records_max, records,
      f"the batches of an append have {records} records",
        "Send several requests",
    )  # fmt: skip


def _append_small(
    replica: RangeReplica,
    batches: Sequence[bytes],
    allowed: Allowed | None,
    payer: Payer | None,
) -> list["asyncio.Future[Body] | LognodeError"] | None:
    """Give small batches to the replica at once; return None if that may take long."""
    opened: Sequence[bytes | PackedBatch | LognodeError] = batches
    if len(batches) > 1:
        opened = list(map(_opened, batches))
        packed = [each for each in opened if isinstance(each, PackedBatch)]
        _check_declared(packed)
        if sum(each.values_size for each in packed) > _SMALL_BYTES:
            return None
    waiting: list[asyncio.Future[Body] | LognodeError] = []
    for each in opened:
        try:
            waiting.append(
                each if isinstance(each, LognodeError) else replica.append(each, allowed, payer)
            )
        except LognodeError as error:
            waiting.append(bare(error))
    return waiting


def _append_steps(
    replica: RangeReplica,
    first: Sequence[PackedBatch | LognodeError],
    others: Sequence[bytes],
    allowed: Allowed | None,
    payer: Payer | None,
) -> Generator[None, None, list["asyncio.Future[Body] | LognodeError"]]:
    """Check the batches in steps, and then give them to the replica. Return the future of each
    reply, or an error.

    One step gives `ordered_batches_max` batches, so that one Raft entry takes them if they fit. A
    WAL round may begin after any step, and its entry takes the batches that were given before.

    Raises LimitExceeded before any column of any batch is unpacked.
    """
    opened = [*first]
    for data in others:
        opened.append(_opened(data))
        yield
    if len(opened) > 1:
        _check_declared([each for each in opened if isinstance(each, PackedBatch)])
    checked: list[tuple[bytes, Batch] | LognodeError] = []
    for each in opened:
        if isinstance(each, LognodeError):
            checked.append(each)
            continue
        try:
            checked.append((each.data, (yield from replica.check_append(each, allowed, payer))))
        except LognodeError as error:
            checked.append(bare(error))
        yield
    waiting: list[asyncio.Future[Body] | LognodeError] = []
    for number, one in enumerate(checked):
        if number and number % limits.ordered_batches_max == 0:
            yield
        if isinstance(one, LognodeError):
            waiting.append(one)
        else:
            waiting.append(_given(replica, *one, allowed, payer))
    return waiting


def _given(
    replica: RangeReplica, data: bytes, batch: Batch, allowed: Allowed | None, payer: Payer | None
) -> "asyncio.Future[Body] | LognodeError":
    try:
        return replica.append_checked(data, batch, allowed, payer)
    except LognodeError as error:
        return bare(error)
