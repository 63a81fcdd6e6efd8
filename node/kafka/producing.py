"""Append the records of producers.

A batch of a producer becomes one append, all or nothing, whose seqs follow each other without a
gap: clients compute the offset of each record from that of the first. The batches of a connection
are handed over in the order of their requests, before the first of them is acknowledged; the ranges
keep the order (S4). The door's client repeats an append whose answer was lost under the numbers of
its first attempt, so the range applies it once (S8). A client that repeats a request itself, after
REQUEST_TIMED_OUT or a lost connection, may append the records twice, unless its producer is
idempotent (`idempotent`).

An acknowledgement means a majority of disks whatever `acks` says (S1); with `acks=0` the client
does not hear of it.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, Final

from ...client.appends import AppendBatch, Columns, check_one_batch, check_sizes
from ...client.cluster import Cluster
from ...client.protocol import limits
from ...client.protocol.errors import LognodeError, LogNotFound, Unauthorized
from ...client.protocol.key_partitions import prefix
from ..runtime.slices import in_slices, one_by_one, stepped
from . import batches, codes, record_columns, stored_records
from .answers import NO_OFFSET, Appended
from .codes import code_of
from .compression import unpacked
from .idempotent import UNDER_WAY_BYTES, Idempotent, Ids, Stored, take_under_way
from .refused import Refused
from .requests import Produce, Produced
from .room import Hold, Room
from .topics import Topic, Topics

_TIMEOUT_S: Final = (1.0, 30.0)
"""The least and the most time that an append gets."""
_ID_S: Final = 10.0
_LATE_S: Final = 0.05
"""How long an answer waits after the deadline, at which the append knows its outcome."""
_UNPACKED_MAX: Final = 4 * limits.MIB
"""Bytes of the records of a batch with their lengths; a batch has at most half of it in keys,
values and headers."""
_INLINE_BYTES: Final = 32 * limits.KIB
_INLINE_UNPACKED: Final = 256 * limits.KIB
"""A batch of these sizes, packed and unpacked, is unpacked at once, within a millisecond."""
_MEMORY: Final = 256 * limits.MIB
"""Memory for all batches that are being unpacked and handed over; a host has half of it."""
_RECORD_COST: Final = 300
"""Memory of a record beside its bytes, about."""
_ACKS: Final = (-1, 0, 1)

Compacts = Callable[[int], bool | None]
"""Returns whether the log with an id is compacted, as this node knows by now; None: the node does
not know the log yet."""

Begun = asyncio.Future[Appended] | Appended
Settled = Callable[[], Awaitable[list[Appended]]]


class Memory:
    """Memory for batches, and the thread that unpacks them, of all clients of a node together."""

    def __init__(self, threads: ThreadPoolExecutor) -> None:
        self.threads = threads
        self.batches = Room(_MEMORY, _MEMORY // 2)
        self.under_way = Room(UNDER_WAY_BYTES, UNDER_WAY_BYTES // 2)
        self.plain_under_way = Room(UNDER_WAY_BYTES, UNDER_WAY_BYTES // 4)
        """Batches without numbers have this room. A topic may have a quarter for one host."""


class Producing:
    """Serves requests to append. `ids` gives producers their ids. All calls run on the loop's
    thread, except unpacking."""

    def __init__(
        self, cluster: Cluster, topics: Topics, ids: Ids, memory: Memory, *, compacts: Compacts
    ) -> None:
        self._cluster = cluster
        self._topics = topics
        self._idempotent = Idempotent(cluster, ids, memory.under_way)
        self._room = memory.batches
        self._plain_under_way = memory.plain_under_way
        self._threads = memory.threads
        self._compacts = compacts

    async def begin(self, request: Produce, host: str) -> Settled:
        """Hand the batches of a client on this host over; return what waits for their outcomes."""
        least, most = _TIMEOUT_S
        deadline = self._cluster.now() + min(max(request.timeout_ms / 1000, least), most)
        # The batches are not needed below: their records go as soon as they are appended, and not
        # when the client has taken its answer.
        begun = [
            await self._submit(request, each, deadline, host)
            async for each in one_by_one(request.batches)
        ]

        async def settled() -> list[Appended]:
            return [
                each if isinstance(each, Appended) else await each
                async for each in one_by_one(begun)
            ]

        return settled

    async def _submit(self, request: Produce, each: Produced, deadline: float, host: str) -> Begun:
        """Hand one batch over, or return why it was refused."""
        try:
            if request.transactional:
                raise Refused(codes.INVALID_REQUEST, "transactions are not available")
            if request.acks not in _ACKS:
                raise Refused(
                    codes.INVALID_REQUIRED_ACKS, f"acks is {request.acks}; give all, 0 or 1"
                )
            topic = await self._topics.known(each.topic, deadline)
            topic.check(each.partition)
            batch = batches.opened(each.records)
            async with self._memory(batch, host, deadline) as shrink:
                plain = await self._plain(batch.compression, batch.packed)
                shrink(_cost(batch, len(plain)))
                keyed = self._keyed(topic)
                if batch.producer >= 0:
                    entries = await self._packed(each.partition, plain, batch.count, keyed=keyed)
                    task = await self._idempotent.begin(
                        topic, each.partition, batch, entries, deadline, host
                    )
                    return _told_by(task, partial(self._stored, each.topic, each.partition, task))
                columns = await self._columns(each.partition, plain, batch.count, keyed=keyed)
                added = await self._added(topic, columns, _cost(batch, len(plain)), deadline, host)
                late = deadline + _LATE_S
                ends = added.done if added.done.done() else added.waiter(late)
                return _told_by(ends, partial(self._acked, each.topic, each.partition, added))
        except Refused as refusal:
            return Appended(each.topic, each.partition, refusal.code)
        except LognodeError as error:
            return self._failed(each.topic, each.partition, error)

    @asynccontextmanager
    async def _memory(
        self, batch: batches.Batch, host: str, deadline: float
    ) -> AsyncIterator[Callable[[int], None]]:
        """Have memory for a batch until another part of the node has the records; yield what gives
        a part of the memory back. Raises Refused."""
        if batch.count > limits.batch_records_max:
            raise Refused(
                codes.MESSAGE_TOO_LARGE,
                f"a batch has {batch.count} records; {limits.batch_records_max} are allowed",
            )
        most = _cost(batch, _UNPACKED_MAX if batch.compression else len(batch.packed))
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout_at(deadline):
                    shrink = await stack.enter_async_context(self._room.held(most, host))
            except TimeoutError:
                raise Refused(
                    codes.NOT_ENOUGH_REPLICAS, "the node has no memory for more batches"
                ) from None
            yield shrink

    def _keyed(self, topic: Topic) -> bool:
        """Return whether each record needs a key, as the log is compacted by keys."""
        # The client of the cluster asks for the policy seldom, and somebody may have changed it.
        compacts = None if topic.log_id is None else self._compacts(topic.log_id)
        return topic.routes.compacts if compacts is None else compacts

    async def _packed(
        self, partition: int, plain: bytes, count: int, *, keyed: bool
    ) -> record_columns.Packed:
        """Return the entries of the records of a batch, packed. Raises Refused, LimitExceeded."""
        entries = record_columns.packed(prefix(partition), plain, count, keyed=keyed)
        if entries is None:
            columns = await self._rows(partition, plain, count, keyed=keyed)
            entries = record_columns.Packed.of(columns)
        check_sizes(entries.count, entries.size)
        return entries

    async def _columns(self, partition: int, plain: bytes, count: int, *, keyed: bool) -> Columns:
        """Return the same as columns."""
        columns = record_columns.decoded(prefix(partition), plain, count, keyed=keyed)
        if columns is None:
            columns = await self._rows(partition, plain, count, keyed=keyed)
        check_one_batch(columns)
        return columns

    async def _rows(self, partition: int, plain: bytes, count: int, *, keyed: bool) -> Columns:
        """Return the same for records that are not plain."""
        records = await stepped(batches.records(plain, count))
        rows = stored_records.rows(prefix(partition), records, keyed=keyed)
        return Columns(await in_slices(rows))

    async def _plain(self, compression: int, packed: bytes) -> bytes:
        """Return the records of a batch, unpacked. A few bytes may become four million, so a thread
        unpacks what is not small afterwards."""
        if not compression:
            return unpacked(compression, packed, _UNPACKED_MAX)
        if len(packed) <= _INLINE_BYTES:
            try:
                return unpacked(compression, packed, _INLINE_UNPACKED)
            except Refused as refusal:
                if refusal.code != codes.MESSAGE_TOO_LARGE:
                    raise
        return await asyncio.get_running_loop().run_in_executor(
            self._threads, unpacked, compression, packed, _UNPACKED_MAX
        )

    async def _added(
        self, topic: Topic, columns: Columns, size: int, deadline: float, host: str
    ) -> AppendBatch:
        """Hand a batch of `size` bytes without numbers over, once there is room. A topic whose
        range has no majority takes a part of a host's room alone."""
        await topic.sender(len(columns), deadline)  # waits before the batch has room
        owner = f"{host} {topic.routes.name}"
        await take_under_way(self._plain_under_way, size, owner, deadline)
        held = Hold(self._plain_under_way, size, owner)
        try:
            sender = await topic.sender(len(columns), deadline)
            batch = sender.batcher.add_atomic(columns, deadline)
        except BaseException:
            held.free()
            raise
        batch.done.add_done_callback(lambda _: held.free())
        return batch

    def _acked(self, topic: str, partition: int, batch: AppendBatch) -> Appended:
        """Return the outcome of a batch without numbers, at its end or at its deadline."""
        if not batch.done.done():
            return Appended(topic, partition, codes.REQUEST_TIMED_OUT)
        try:
            ack = batch.ack(0)
        except LognodeError as error:
            error.__traceback__ = None  # its frames keep the batch
            return self._failed(topic, partition, error)
        seq = NO_OFFSET if ack.seq is None else ack.seq  # None: an attempt of long ago
        at_ms = NO_OFFSET if ack.timestamp_ms is None else ack.timestamp_ms
        return Appended(topic, partition, codes.NONE, seq, at_ms)

    def _stored(self, topic: str, partition: int, task: "asyncio.Task[Stored]") -> Appended:
        """Return the outcome of a batch of an idempotent producer."""
        try:
            seq, at_ms = task.result()
        except Refused as refusal:
            refusal.__traceback__ = None
            # A client may want the begin of the log with UNKNOWN_PRODUCER_ID.
            return Appended(topic, partition, refusal.code, begin=0)
        except LognodeError as error:
            error.__traceback__ = None
            return self._failed(topic, partition, error)
        at_ms = NO_OFFSET if at_ms is None else at_ms
        return Appended(topic, partition, codes.NONE, seq, at_ms)

    async def new_id(self, *, transactional: bool) -> tuple[int, int]:
        """Return an error code, and the id of a new producer."""
        if transactional:
            return codes.INVALID_REQUEST, NO_OFFSET
        try:
            return codes.NONE, await self._idempotent.new_id(self._cluster.now() + _ID_S)
        except Unauthorized:
            return codes.CLUSTER_AUTHORIZATION_FAILED, NO_OFFSET
        except LognodeError as error:
            return code_of(error), NO_OFFSET

    def _failed(self, topic: str, partition: int, error: LognodeError) -> Appended:
        if isinstance(error, LogNotFound):
            self._topics.gone(topic)
        return Appended(topic, partition, code_of(error))


def _cost(batch: batches.Batch, plain: int) -> int:
    """Return the memory of a batch with so many bytes of records: the bytes, the records, and the
    entries that are made of them."""
    return 2 * plain + _RECORD_COST * batch.count


def _told_by(
    ends: "asyncio.Future[Any]", outcome: Callable[[], Appended]
) -> "asyncio.Future[Appended]":
    """Return the future of the outcome of a batch that ends with `ends`. The future does not keep
    the batch."""
    found: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()

    def told(_: object) -> None:
        if found.done():
            return
        try:
            found.set_result(outcome())
        except asyncio.CancelledError:
            found.cancel()
        except Exception as error:  # of the program: the connection ends
            found.set_exception(error)

    ends.add_done_callback(told)
    return found
