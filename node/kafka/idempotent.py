"""Appends of idempotent producers: each record once, and in order, however often it is sent (S8).

Kafka counts the records of a producer in each partition, from 0 on. A range remembers the numbers
of its producers. So each pair of a Kafka producer and a partition is a producer of the ranges, and
a record's number is its sequence and one more, with the producer's epoch in front: a producer that
begins a new epoch counts from 0 again. Ids of these producers lie above all ids that the cluster
gives to clients of its own. The rows go with the ranges through splits, merges and changes of
leader, so a batch that is sent again gets the offset of its first append.

A batch names the number before its first as the predecessor, and the range refuses a batch whose
predecessor it does not have. So batches of one connection are under way together and are applied
in order. A refused batch waits for the batch before it, and is sent again. A batch without a known
predecessor is OUT_OF_ORDER_SEQUENCE_NUMBER, as with Kafka.

A range forgets a producer that appends nothing for a day, and a topic that was made anew knows no
producer. If the range had the predecessor, the batch is UNKNOWN_PRODUCER_ID, and the client begins
anew with another id. Any other batch of an unknown producer stays OUT_OF_ORDER_SEQUENCE_NUMBER: the
batch before it may still come, maybe through another node. Were the later batch appended,
librdkafka would report both as appended.

A range forgets numbers that are older than the last five batches, as Kafka does
(`recent_batches`). It calls records with lower numbers repetitions, without their seqs. Nothing
says that they were appended: the batch may be of a later turn of the sequences than this node
knows. So the node tries later turns. A batch that is in none of them is
OUT_OF_ORDER_SEQUENCE_NUMBER, too.
"""

import asyncio
import hashlib
import struct
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from ...client.cluster import Cluster
from ...client.durations import milliseconds
from ...client.protocol import limits
from ...client.protocol.appends import APPEND
from ...client.protocol.cluster import PRODUCER_OPEN
from ...client.protocol.errors import Fenced, LognodeError, OutOfOrder, Unavailable, from_wire
from ...client.protocol.key_partitions import prefix
from ...client.protocol.records import encode_packed, renumbered
from ...client.retry import Attempts
from ...client.routing import Range
from ...partitions import grants
from . import codes
from .batches import Batch
from .joined_appends import JoinedAppends, NumberedBatch, Outcome
from .recent_batches import RECORDS, SEQUENCES, Place, RecentBatches, Turns, start_of
from .record_columns import Packed
from .refused import Refused
from .room import Room
from .topics import Topic

_IDS_FROM: Final = 1 << 62
_PARTITION_BITS: Final = 12
_IDS_END: Final = 1 << 49
_INLINE_BYTES: Final = 256 * limits.KIB
"""A batch of this size without headers is packed at once, within a millisecond."""
_INLINE_HEADED_BYTES: Final = 64 * limits.KIB
"""The same with headers: 256 KiB may be 250,000 names, which would take ten."""
UNDER_WAY_BYTES: Final = 64 * limits.MIB
"""Bytes of all batches whose outcome is not known yet. One host may use half of them, so that a
range without a majority, to which that host appends, stops no producers of other hosts."""

Stored = tuple[int, int | None]
"""The first offset and the time of a batch."""

Ids = Callable[[int, int], tuple[int, bytes | None]]
"""Returns the id under which ranges know a producer's records for a partition, and the grant of
this id. Raises Unavailable while this node cannot tell."""


def open_id(producer: int, partition: int) -> tuple[int, None]:
    """Return the id of a producer while clients have no names."""
    return _IDS_FROM + (producer << _PARTITION_BITS) + partition, None


def ids_of(owner: str, key: Callable[[], bytes]) -> Ids:
    """Return the ids of the producers of a principal. `key` returns the secret of the grants,
    empty while this node does not know it.

    The id is a hash with the owner in it. So another principal that names the same producer gets
    other ids, and can neither append under the owner's ids nor fence them.
    """

    def of(producer: int, partition: int) -> tuple[int, bytes]:
        secret = key()
        if not secret:
            raise Unavailable("this node does not know the key of the grants yet", reason="behind")
        told = struct.pack(">QI", producer, partition) + owner.encode()
        digest = hashlib.blake2b(told, digest_size=8, key=secret, person=b"kafka").digest()
        found = _IDS_FROM + (int.from_bytes(digest, "big") >> 2)
        return found, grants.grant(secret, found, 1, owner)

    return of


class _Sent(NamedTuple):
    """A batch with its numbers."""

    topic: Topic
    place: Place
    batch: NumberedBatch
    first: int
    """The number of the first record."""
    deadline: float

    def in_turn(self, first: int) -> "_Sent":
        """Return the batch with the numbers of another turn."""
        prevs = [first - 1] + [0] * (self.batch.records - 1)
        data = renumbered(self.batch.data, first, first - RECORDS, prevs)
        return self._replace(batch=self.batch._replace(data=data), first=first)


async def take_under_way(room: Room, size: int, host: str, deadline: float) -> None:
    """Take memory for a batch until its outcome is known. Raises Refused."""
    try:
        async with asyncio.timeout_at(deadline):
            await room.take(size, host)
    except TimeoutError:
        raise Refused(
            codes.NOT_ENOUGH_REPLICAS, "the node has no memory for more batches under way"
        ) from None


class Idempotent:
    """Appends numbered batches. `ids` gives the ids in the ranges; `room` bounds the bytes of all
    batches under way. All calls run on the loop's thread."""

    def __init__(self, cluster: Cluster, ids: Ids, room: Room) -> None:
        self._cluster = cluster
        self._joined = JoinedAppends(cluster)
        self._ids_of = ids
        self._last: dict[Place, asyncio.Task[Stored]] = {}
        """The newest append under way of each topic, partition and producer."""
        self._recent = RecentBatches()
        self._ids: list[int] = []
        self._opening = asyncio.Lock()
        self._room = room

    async def new_id(self, deadline: float) -> int:
        """Return the id of a new producer. Raises Unavailable, Timeout."""
        async with self._opening:
            if not self._ids:
                answer = await self._cluster.call_any(
                    PRODUCER_OPEN, {"name": None}, deadline=deadline
                )
                self._ids = list(range(answer["id"], answer["id"] + answer["count"]))
            return self._ids.pop(0)

    async def begin(
        self, topic: Topic, partition: int, batch: Batch, entries: Packed, deadline: float,
        host: str,
    ) -> "asyncio.Task[Stored]":  # fmt: skip
        """Send a batch of a client on this host, once there is room; the result of the task is its
        place. Raises Refused, and Unavailable while this node cannot tell the id."""
        _check(batch)
        place = topic.routes.name, partition, batch.producer
        first, oldest = self._recent.note(place, batch.epoch, batch.sequence)
        producer, grant = self._ids_of(batch.producer, partition)
        pack = partial(
            encode_packed,
            entries.keys, entries.values, entries.count, headers=entries.headers, atomic=True,
            producer=producer, epoch=batch.epoch, numbers=first,
            low=oldest,
            prevs=None if first == start_of(batch.epoch) else [first - 1] + [0] * (batch.count - 1),
        )  # fmt: skip
        short = _INLINE_BYTES if entries.headers is None else _INLINE_HEADED_BYTES
        data = await asyncio.to_thread(pack) if entries.size > short else pack()
        await take_under_way(self._room, len(data), host, deadline)
        before = self._last.get(place)
        size = max(len(data), entries.size)
        packed = NumberedBatch(data, size, entries.count, grant)
        sent = _Sent(topic, place, packed, first, deadline)
        task = self._last[place] = asyncio.create_task(self._append(sent, before))

        def done(ended: "asyncio.Task[Stored]") -> None:
            self._room.free(len(data), host)
            if self._last.get(place) is ended:
                del self._last[place]
            if not ended.cancelled():
                ended.exception()  # the answer tells it; nobody may wait any more

        task.add_done_callback(done)
        return task

    async def _append(self, sent: _Sent, before: "asyncio.Task[Stored] | None") -> Stored:
        """Send the batch until its outcome is known. Raises Refused and the errors of an append."""
        routes = sent.topic.routes
        attempts = self._cluster.attempts(routes, APPEND, sent.deadline)
        noted, turns = sent.first, Turns()
        while True:
            outcome, known = await self._attempt(sent, attempts)
            if isinstance(outcome, LognodeError):
                error = outcome
            elif outcome["status"] == "ok":
                stored = _stored(outcome)
                if stored is not None:
                    self._recent.stored(sent.place, sent.first, sent.batch.records)
                    return stored
                if not turns.forgotten():
                    raise _out_of_order("the range has forgotten these records")
                sent = sent.in_turn(noted + turns.turn * SEQUENCES)
                continue
            else:
                error = from_wire(outcome.get("error"))
            if isinstance(error, Fenced):
                raise Refused(codes.INVALID_PRODUCER_EPOCH, error.message)
            if isinstance(error, OutOfOrder):
                if before is not None:
                    await asyncio.wait([before])
                    before = None
                elif turns.too_high():
                    sent = sent.in_turn(noted + turns.turn * SEQUENCES)
                elif error.fields.get("producer_known") is False and self._recent.had(
                    sent.place, sent.first - 1
                ):
                    raise Refused(codes.UNKNOWN_PRODUCER_ID, "the range has forgotten the producer")
                else:
                    raise _out_of_order(error.message)
                continue
            tried = self._cluster.target(known)
            news = self._cluster.heed(routes, known, tried, error)
            step = attempts.failed(error, self._cluster.now(), news=news)
            await self._cluster.prepare(routes, known, tried, step, sent.deadline)

    async def _attempt(self, sent: _Sent, attempts: Attempts) -> tuple[Outcome, Range]:
        """Send the batch and return its outcome, and the range. Raises the errors of an append.

        The first attempt goes with others, to the range that this node knows."""
        routes, key, now = sent.topic.routes, prefix(sent.place[1]), self._cluster.now()
        known = routes.table.find(key)
        if known is not None and not attempts.failures:
            until = attempts.attempt_deadline(now)
            return await self._joined.append(routes, known, sent.batch, until)
        body = {
            "batches": [sent.batch.data], "grant": sent.batch.grant,
            "timeout_ms": milliseconds(max(0.001, sent.deadline - now)),
        }  # fmt: skip
        answer, known = await self._cluster.call(
            routes, key, APPEND, body, deadline=sent.deadline, attempts=attempts
        )
        (result,) = answer["results"]
        return result, known


def _check(batch: Batch) -> None:
    """Raise Refused for a batch with an invalid producer id, epoch or sequence."""
    if not 0 <= batch.producer < _IDS_END:
        raise Refused(
            codes.UNKNOWN_PRODUCER_ID, f"no node has given the producer id {batch.producer}"
        )
    if batch.epoch < 0 or batch.sequence < 0:
        raise _out_of_order(f"a batch has epoch {batch.epoch} and sequence {batch.sequence}")


def _stored(result: dict[str, object]) -> Stored | None:
    """Return where the range has the batch, or None if the range has forgotten the records."""
    first, at_ms = result.get("first_seq"), result.get("timestamp_ms")
    seqs = result.get("seqs")
    if type(first) is not int:
        first = seqs[0] if isinstance(seqs, list) and seqs else None
        at_ms = None
    if type(first) is not int:
        return None
    return first, at_ms if type(at_ms) is int else None


def _out_of_order(message: str) -> Refused:
    return Refused(codes.OUT_OF_ORDER_SEQUENCE_NUMBER, message)
