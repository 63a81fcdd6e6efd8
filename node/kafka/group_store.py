"""Committed offsets of consumer groups, in a compacted log of the cluster.

The log is made when a client first looks for a coordinator. It has Kafka partitions, and all
entries of a group are in one partition, so in one range:

    g GROUP                      the head: the claim of the coordinator, the newest generation
    o GROUP 0 TOPIC 0 PARTITION  the committed offset of a partition

A coordinator first claims a group: it appends a head with a claim of its own, if the head is still
the one that it has read. Each commit then is one append, all or nothing, of a head and the offsets,
on the condition that the head is the coordinator's last. So when another node has claimed the
group, no commit of the earlier coordinator is appended any more, however late it arrives, and what
the new coordinator reads after its claim is final (S9, S10).

An append whose outcome is unknown may still be on its way. So the next commit, and the next read of
offsets, claims the group anew with the same claim: afterwards the append is there or never will
be. A head with another claim tells the coordinator that it is no longer the coordinator.

The acknowledgement of a commit means a majority of disks (S1). A read is linearizable (S7).
An offset names the id of its log: a topic that was deleted and created again has no offsets.
What the log holds is checked, as any client of the cluster may write to it.

A group is removed by tombstones, of its offsets and then, in the last append, of its head (S2). The
appends have the condition of a commit, so nothing is removed of a group that another coordinator
has claimed meanwhile, and a commit of an earlier coordinator that comes late does not bring an
offset back. When the node dies in between, the group exists, without some of its offsets; the
client has no answer then, and removes the group again. Compaction removes the tombstones a minute
later. A list reads the heads until then: deleting the keys of the heads would leave a floor of each
removed group in the memory of the range for ever.
"""

import asyncio
import os
from collections.abc import Container, Sequence
from typing import Any, Final, NamedTuple

import msgpack

from ...client import progress
from ...client.appends import Columns, check_one_batch
from ...client.cluster import Cluster, LogRoutes
from ...client.protocol import Operation, limits
from ...client.protocol.cluster import CREATE_LOG
from ...client.protocol.errors import (
    Fenced,
    LimitExceeded,
    LogExists,
    LognodeError,
    SequenceMismatch,
    Timeout,
)
from ...client.protocol.key_partitions import partition_of, prefix
from ...client.protocol.reads import KEYS, LATEST
from ...client.protocol.records import EXPECT_ABSENT
from .answers import NO_EPOCH
from .topics import GROUPS_LOG, Topic, Topics

PARTITIONS: Final = 64
GROUP_BYTES_MAX: Final = 255
METADATA_BYTES_MAX: Final = 4 * limits.KIB
LISTED_MAX: Final = 10_000
"""Groups that a node lists, and partitions of a group whose offsets it tells at once."""
_REPLICAS: Final = 3
_TOMBSTONES_MS: Final = 60_000
"""How long compaction keeps a tombstone; nobody follows the log."""
_READS_AT_ONCE: Final = 64
_LISTED_AT_ONCE: Final = _READS_AT_ONCE // 2
"""Heads that a list reads at the same time: fetches of offsets do not wait behind lists."""
_CLAIM_BYTES: Final = 16
_CLAIMS_TRIED: Final = 5
_ROWS_TOGETHER: Final = 4_096
_BYTES_TOGETHER: Final = limits.batch_bytes_max // 2
"""Records and bytes of the commits that one append holds; a larger commit has its own."""
_WAITING_MAX: Final = 16 * _ROWS_TOGETHER
_LATE_S: Final = 0.05
_INT32_END: Final = 1 << 31

Row = tuple[bytes, bytes | None]
"""An entry; the value None removes an offset."""


class Head(NamedTuple):
    """The newest head of a group; `seq` is the condition for the next one."""

    seq: int
    claim: bytes
    generation: int


class Stored(NamedTuple):
    """A committed offset, with the id of the log that it is about."""

    log_id: int
    offset: int
    epoch: int
    metadata: str | None


def packed(stored: Stored) -> bytes:
    """Return the value of an offset's entry."""
    found: bytes = msgpack.packb(list(stored))
    return found


def unpacked(value: bytes | None) -> Stored | None:
    """Return the offset of an entry; None: no offset, or not one that a coordinator has written."""
    match _values(value):
        case [int(log_id), int(offset), int(epoch), (str() | None) as metadata] if (
            0 <= offset < 1 << 63
            and NO_EPOCH <= epoch < _INT32_END
            and len((metadata or "").encode(errors="replace")) <= METADATA_BYTES_MAX
        ):
            return Stored(log_id, offset, epoch, metadata)
    return None


def head_of(seq: int, value: bytes | None) -> Head:
    """Return the head of an entry."""
    match _values(value):
        case [bytes(claim), int(generation)] if 0 <= generation < _INT32_END:
            return Head(seq, claim, generation)
    return Head(seq, b"", 0)


def _values(value: bytes | None) -> Any:
    try:
        return None if value is None else msgpack.unpackb(value)
    except (ValueError, msgpack.exceptions.UnpackException):
        return None


class GroupStore:
    """Reads and writes the log. All calls run on the loop's thread, and raise Unavailable, Timeout
    and the other errors of reads and appends."""

    def __init__(self, cluster: Cluster, topics: Topics) -> None:
        self._cluster = cluster
        self._topics = topics
        self._reads = asyncio.Semaphore(_READS_AT_ONCE)

    async def create(self, ranges: int, deadline: float) -> None:
        """Create the log unless it exists."""
        body = {
            "name": GROUPS_LOG, "kafka_partitions": PARTITIONS, "ranges": min(PARTITIONS, ranges),
            "replicas": _REPLICAS, "cleanup": "compact", "retention_ms": None,
            "delete_retention_ms": _TOMBSTONES_MS, "creation": os.urandom(limits.creation_bytes),
        }  # fmt: skip
        try:
            await self._cluster.call_any(CREATE_LOG, body, deadline=deadline)
        except LogExists:
            return

    async def topic(self, deadline: float) -> Topic:
        """Return the log. Raises LogNotFound until a client has looked for a coordinator."""
        return await self._topics.of_groups(deadline)

    def prefix(self, routes: LogRoutes, group: str) -> bytes:
        """Return the bytes in front of the keys of a group, which are those of its partition."""
        return prefix(partition_of(group.encode(), routes.partitions or 1))

    async def append(self, group: str, head: Head, rows: Sequence[Row], deadline: float) -> int:
        """Append a head and offsets, if the last head is the one with `head.seq`; return the seq of
        the new head. Raises SequenceMismatch."""
        value = msgpack.packb([head.claim, head.generation])
        return await self._append(group, head, value, rows, deadline)

    async def append_last(
        self, group: str, head: Head, rows: Sequence[Row], deadline: float
    ) -> int:
        """Do what `append` does, with a tombstone as the new head."""
        return await self._append(group, head, None, rows, deadline)

    async def _append(
        self, group: str, head: Head, value: bytes | None, rows: Sequence[Row], deadline: float
    ) -> int:
        topic = await self.topic(deadline)
        front = self.prefix(topic.routes, group)
        columns = Columns([(_head_key(front, group), value), *rows])
        check_one_batch(columns)
        sender = await topic.sender(len(columns), deadline)
        expect = head.seq or EXPECT_ABSENT
        batch = sender.batcher.add_atomic(columns, deadline, expect=expect)
        seq = batch.ack(0).seq if await batch.wait(deadline + _LATE_S) else None
        if seq is None:
            raise Timeout("a commit of offsets has no outcome in time", outcome="unknown")
        return seq

    async def head(self, group: str, deadline: float) -> Head | None:
        """Return the head of a group, or None for a group that no coordinator has claimed. The head
        of a removed group has no claim."""
        topic = await self.topic(deadline)
        key = _head_key(self.prefix(topic.routes, group), group)
        found = await self._latest(topic.routes, key, deadline)
        return None if found is None else head_of(*found)

    async def offset_keys(self, group: str, after: bytes | None, deadline: float) -> list[bytes]:
        """Return the next keys of committed offsets behind a key, also of removed ones."""
        routes = (await self.topic(deadline)).routes
        front = _offsets_of(self.prefix(routes, group), group)
        return await self._keys(routes, front, limits.keys_page_max, deadline, after)

    async def offset_key(self, group: str, topic: str, partition: int, deadline: float) -> bytes:
        """Return the key of a committed offset."""
        routes = (await self.topic(deadline)).routes
        return _offset_key(self.prefix(routes, group), group, topic, partition)

    def row(self, routes: LogRoutes, group: str, topic: str, partition: int, value: Stored) -> Row:
        """Return the entry of an offset."""
        key = _offset_key(self.prefix(routes, group), group, topic, partition)
        return key, packed(value)

    async def offsets(
        self, group: str, wanted: Sequence[tuple[str, int]], deadline: float
    ) -> list[Stored | None]:
        """Return the committed offset of each partition."""
        routes = (await self.topic(deadline)).routes
        front = self.prefix(routes, group)
        keys = [_offset_key(front, group, *each) for each in wanted]
        found: list[Stored | None] = []
        for at in range(0, len(keys), _READS_AT_ONCE):
            some = keys[at : at + _READS_AT_ONCE]
            rows = await asyncio.gather(*(self._latest(routes, key, deadline) for key in some))
            found += [None if row is None else unpacked(row[1]) for row in rows]
        return found

    async def partitions(self, group: str, deadline: float) -> list[tuple[str, int]]:
        """Return the partitions with a committed offset, those of a topic together. Raises
        LimitExceeded for a group with more than `LISTED_MAX`."""
        routes = (await self.topic(deadline)).routes
        front = _offsets_of(self.prefix(routes, group), group)
        keys = await self._keys(routes, front, LISTED_MAX + 1, deadline)
        if len(keys) > LISTED_MAX:
            raise LimitExceeded(
                f"the group has more than {LISTED_MAX:,} partitions with offsets. Name partitions",
                limit="listed_max", value=len(keys), allowed=LISTED_MAX,
            )  # fmt: skip
        found = []
        for key in keys:
            name, _, number = key[len(front) :].partition(b"\0")
            if len(number) == 4:
                found.append((name.decode(errors="replace"), int.from_bytes(number, "big")))
        return found

    async def groups(
        self, partitions: Sequence[int], known: Container[str], deadline: float
    ) -> list[str]:
        """Return the groups of these partitions of the log; at most `LISTED_MAX`. The heads of
        `known` groups are not read."""
        routes = (await self.topic(deadline)).routes
        found: list[str] = []
        for partition in partitions:
            front, after = prefix(partition) + b"g", None
            while most := LISTED_MAX - len(found):
                keys = await self._keys(routes, front, most, deadline, after)
                groups = {key: key[len(front) :].decode(errors="replace") for key in keys}
                unsure = [key for key, group in groups.items() if group not in known]
                gone = await self._removed(routes, unsure, deadline)
                found += [group for key, group in groups.items() if key not in gone]
                if len(keys) < most:
                    break
                after = keys[-1]
        return found

    async def _removed(
        self, routes: LogRoutes, heads: Sequence[bytes], deadline: float
    ) -> set[bytes]:
        """Return the keys of heads that are tombstones."""
        found: set[bytes] = set()
        for at in range(0, len(heads), _LISTED_AT_ONCE):
            some = heads[at : at + _LISTED_AT_ONCE]
            rows = await asyncio.gather(*(self._latest(routes, key, deadline) for key in some))
            found |= {key for key, row in zip(some, rows, strict=True) if not row or row[1] is None}
        return found

    async def _latest(
        self, routes: LogRoutes, key: bytes, deadline: float
    ) -> tuple[int, bytes | None] | None:
        """Return the seq and the value of the newest entry of a key."""
        async with self._reads:
            page = await self._read(routes, key, LATEST, {"key": key}, deadline)
        return (page["seqs"][-1], page["values"][-1]) if page["seqs"] else None

    async def _keys(
        self, routes: LogRoutes, front: bytes, most: int, deadline: float,
        after: bytes | None = None,
    ) -> list[bytes]:  # fmt: skip
        """Return at most `most` keys that begin with `front`, behind the key `after`."""
        found: list[bytes] = []
        while len(found) < most:
            body = {"prefix": front, "start_after": after,
                    "limit": min(most - len(found), limits.keys_page_max)}  # fmt: skip
            answer = await self._read(routes, front, KEYS, body, deadline)
            found += answer["keys"]
            if not answer["more"]:
                break
            after = progress.later_key(answer, "after", after)
        return found

    async def _read(
        self, routes: LogRoutes, key: bytes, operation: Operation, body: dict[str, Any],
        deadline: float,
    ) -> dict[str, Any]:  # fmt: skip
        full = {**body, "consistency": "linearizable"}
        answer, _ = await self._cluster.call(routes, key, operation, full, deadline=deadline)
        return answer


def _head_key(front: bytes, group: str) -> bytes:
    return front + b"g" + group.encode()


def _offsets_of(front: bytes, group: str) -> bytes:
    return front + b"o" + group.encode() + b"\0"


def _offset_key(front: bytes, group: str, topic: str, partition: int) -> bytes:
    return _offsets_of(front, group) + topic.encode() + b"\0" + partition.to_bytes(4, "big")


def pieces(rows: Sequence[Row]) -> list[Sequence[Row]]:
    """Return the offsets of a commit in pieces that one append holds."""
    found: list[list[Row]] = [[]]
    size = 0
    for row in rows:
        size += len(row[0]) + len(row[1] or b"")
        if found[-1] and (size > _BYTES_TOGETHER or len(found[-1]) >= _ROWS_TOGETHER):
            found.append([])
            size = len(row[0]) + len(row[1] or b"")
        found[-1].append(row)
    return list(found)


class _Pending(NamedTuple):
    """A commit that waits for its turn."""

    rows: Sequence[Row]
    deadline: float
    done: "asyncio.Future[None]"


class Ledger:
    """The commits of one group by its coordinator, one append after another.

    Commits that wait while an append is under way share the next append.
    """

    def __init__(self, store: GroupStore, group: str) -> None:
        self._store = store
        self._group = group
        self._claim = os.urandom(_CLAIM_BYTES)
        self._head: Head | None = None
        """The last head of this coordinator; None while an append may be on its way."""
        self._waiting: dict[asyncio.Future[None], _Pending] = {}
        self._rows = 0
        self._task: asyncio.Task[None] | None = None
        self.generation = 0
        """The generation that the next head notes."""
        self.is_fenced = False
        """Whether another coordinator has claimed the group."""

    @property
    def is_idle(self) -> bool:
        """Whether no commit waits or is under way."""
        return self._task is None

    def note(self, generation: int) -> None:
        """Have the next head note a generation."""
        self.generation = generation

    async def open(self, deadline: float) -> None:
        """Claim the group; `generation` is then that of the last head. Raises the errors of reads
        and appends."""
        await self._claim_head(deadline, is_first=True)

    def submit(self, rows: Sequence[Row], deadline: float) -> "asyncio.Future[None]":
        """Put a commit in line at once: `settled` waits for it from now on. The future raises as
        `commit` does."""
        pending = _Pending(rows, deadline, asyncio.get_running_loop().create_future())
        if self._rows + len(rows) > _WAITING_MAX:
            _fail(pending, Timeout("too many commits of the group wait", outcome="not_applied"))
            return pending.done
        self._waiting[pending.done] = pending
        self._rows += len(rows)
        pending.done.add_done_callback(self._left)
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        return pending.done

    def _left(self, done: "asyncio.Future[None]") -> None:
        """Drop a commit whose client has left before its turn: otherwise clients that leave could
        fill the memory. Nobody was told of the commit."""
        pending = self._waiting.pop(done, None) if done.cancelled() else None
        if pending is not None:
            self._rows -= len(pending.rows)

    async def commit(self, rows: Sequence[Row], deadline: float) -> None:
        """Append offsets. Raises Fenced when another node coordinates the group, and the errors of
        an append."""
        await self.submit(rows, deadline)

    async def end(self, rows: Sequence[Row], deadline: float) -> int:
        """Append the last tombstones and that of the head; return its seq. No commit may wait.
        Raises Fenced and the errors of an append."""
        if self._head is None:
            await self._claim_head(deadline, is_first=False)
        try:
            return await self._write(rows, deadline, ends=True)
        except SequenceMismatch:
            self.is_fenced = True
            raise _fenced(self._group) from None

    async def settled(self, deadline: float) -> None:
        """Wait until every commit that was taken is appended or never will be. Raises Fenced and
        the errors of an append."""
        if self._task is not None or self._head is None:
            await self.commit((), deadline)

    async def close(self) -> None:
        """End the commits that wait; their outcome is unknown."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        """Append what waits, until nothing does."""
        some: list[_Pending] = []
        try:
            while self._waiting:
                some = self._together()
                try:
                    await self._append(some)
                except LognodeError as error:
                    for each in some:
                        _fail(each, error)
                for each in some:
                    if not each.done.done():
                        each.done.set_result(None)
        finally:
            self._task = None
            lost = Timeout("the node stops, or has failed", outcome="unknown")
            for each in [*some, *self._waiting.values()]:
                _fail(each, lost)
            self._waiting, self._rows = {}, 0

    def _together(self) -> list[_Pending]:
        """Take the commits for the next append: of the first, and more of them while they fit."""
        some: list[_Pending] = []
        count = size = 0
        for each in self._waiting.values():
            count += len(each.rows)
            size += sum(len(key) + len(value or b"") for key, value in each.rows)
            if some and (count > _ROWS_TOGETHER or size > _BYTES_TOGETHER):
                break
            some.append(each)
        for each in some:
            del self._waiting[each.done]
        self._rows -= sum(len(each.rows) for each in some)
        return some

    async def _append(self, some: Sequence[_Pending]) -> None:
        if self.is_fenced:
            raise _fenced(self._group)
        deadline = max(each.deadline for each in some)
        if self._head is None:
            await self._claim_head(deadline, is_first=False)
        # A later commit of the same partition takes the place of an earlier one.
        rows = list(dict(row for each in some for row in each.rows).items())
        if not rows:
            return
        try:
            await self._write(rows, deadline)
        except SequenceMismatch:
            await self._claim_head(deadline, is_first=False)
            await self._write(rows, deadline)

    async def _claim_head(self, deadline: float, *, is_first: bool) -> None:
        """Append a head with the claim of this coordinator."""
        for _ in range(_CLAIMS_TRIED):
            found = await self._store.head(self._group, deadline)
            if not is_first and (found is None or found.claim != self._claim):
                self.is_fenced = True
                raise _fenced(self._group)
            if is_first and found is not None:
                self.generation = max(self.generation, found.generation)
            self._head = Head(0 if found is None else found.seq, self._claim, self.generation)
            try:
                await self._write((), deadline)
            except SequenceMismatch:
                # A late commit of the coordinator before, or of this one, came in between; or
                # another node has claimed the group, and the next look at the head shows that.
                continue
            except LognodeError:
                self._head = None  # the append on its way may still come, until a claim succeeds
                raise
            return
        raise Timeout("other nodes claim the group at the same time", outcome="not_applied")

    async def _write(self, rows: Sequence[Row], deadline: float, *, ends: bool = False) -> int:
        """Append on the condition of the last head; return the seq of the new one. Raises
        SequenceMismatch."""
        head, self._head = self._head, None
        assert head is not None
        head = head._replace(generation=self.generation)
        try:
            append = self._store.append_last if ends else self._store.append
            seq = await append(self._group, head, rows, deadline)
        except SequenceMismatch:
            raise
        except LognodeError as error:
            if error.outcome == "not_applied":
                self._head = head
            raise
        self._head = head._replace(seq=seq)
        return seq


def _fail(pending: _Pending, error: Exception) -> None:
    if not pending.done.done():
        pending.done.set_exception(error)
        pending.done.exception()  # its caller may have left


def _fenced(group: str) -> Fenced:
    return Fenced(f"another node coordinates group {group!r}. Look for the coordinator")
