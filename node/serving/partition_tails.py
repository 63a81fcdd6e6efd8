"""Serve `tails`: where the entries of the Kafka partitions of a range begin and end; and trims.

A node's door for Kafka asks for the news of all partitions of a range with one request that waits,
on behalf of all consumers that wait there. The wait costs a listener, and holds no turn.

The end of a partition never falls, see `statemachine.tails`. A member that lags tells an older end;
linearizable requests tell the end of all acknowledged entries.

A trim raises the floor of the partition's span, as retention does, by a command of the range: it is
acknowledged when a majority has it on disk, and a repetition has no further effect (S11). The floor
goes with the partition through splits, merges and moves. No floor is beyond the end of its
partition, so a trim hides nothing that is appended later.
"""

import asyncio
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from ...client.accepting.request import Room
from ...client.protocol import Operation, key_partitions, limits
from ...client.protocol.errors import (
    GenerationMismatch,
    InvalidArgument,
    Overloaded,
    Sealed,
    from_wire,
)
from ...client.protocol.partitions import TAILS, TRIM_PARTITION
from ...statemachine import commands
from ...statemachine.tails import Tails
from ..replicas.range_replica import RangeReplica
from ..runtime.slices import in_slices
from .data_service import DataService, PaidHandler

Body = dict[str, Any]


class PartitionTails:
    """Serves requests on the ranges of this node."""

    def __init__(self, data: DataService) -> None:
        self._data = data
        self._read = data.reading(_tails)
        self.paid_handlers: Final[Mapping[Operation, PaidHandler]] = {
            TAILS: self._serve, TRIM_PARTITION: self._trim,
        }  # fmt: skip

    async def _serve(self, body: Body, room: Room) -> Body:
        """Return the rows, at once or after an entry came. Raises InvalidArgument for a log
        without partitions, and Sealed when the generation ends during the wait."""
        answer = await self._read(body, room)
        if answer["rows"] or not body["wait_ms"]:
            return answer
        replica = self._data.find(body)
        await _until_news(replica, body)
        self._data.find(body)  # raises an error that says where the range is now
        if replica.is_sealed:
            raise Sealed("the generation has ended; its successor tells of the partitions")
        return {**await _tails(replica, body), "applied": replica.applied_index}

    async def _trim(self, body: Body, room: Room) -> Body:
        """Remove the entries of a partition below a seq, on the leader; return its begin. Raises
        InvalidArgument for a log without partitions, and for a span that is not a partition."""
        await room()
        replica = self._data.find(body)
        table = _table(replica)
        partition = key_partitions.first_of(body["start_key"])
        span = start, end = body["start_key"], body["end_key"]
        if key_partitions.span(partition) != span:
            raise InvalidArgument(
                f"the span from {start!r} to {end!r} is not a Kafka partition. Name the first key "
                "of a partition and of the next",
                what="start_key",
            )
        if start not in replica.descriptor.span:
            raise GenerationMismatch(
                f"partition {partition} is not in range {replica.gid.range_id}",
                ranges=[replica.descriptor.to_wire()],
            )
        if replica.proposed_bytes > limits.append_queue_bytes_max:
            raise Overloaded("the range's append queue is full", retry_after=0.05)
        await replica.lead_settled()
        if not replica.leads:
            raise replica.not_leader()
        await replica.read_barrier()  # the end is that of all acknowledged entries
        last = table.now(replica.state.memtables()).get(partition, 0)
        before = body["before"]
        if before > last + 1:
            raise InvalidArgument(
                f"before is {before}, beyond the end {last + 1} of partition {partition}; give a "
                "seq up to the end",
                what="before",
            )
        begin, _ = replica.state.earliest(*span)
        if before > begin:
            reply = await replica.propose_and_wait(commands.TRIM_SPANS, [[start, end, before]])
            if reply.get("status") == "error":
                raise from_wire(reply["error"])
            begin, _ = replica.state.earliest(*span)
        return {"begin": _begin(begin, last)}


def _table(replica: RangeReplica) -> Tails:
    found = replica.state.tails
    if found is None:
        raise key_partitions.without(f"range {replica.gid.range_id}")
    return found


async def _tails(replica: RangeReplica, body: Body) -> Body:
    """Return the rows as of now."""
    table, state = _table(replica), replica.state
    following = state.next_seq
    found = list(_fresh(table.now(state.memtables()), body).items())
    return {"rows": await in_slices(_rows(replica, found)), "next": following}


def _fresh(rows: Mapping[int, int], body: Body) -> dict[int, int]:
    """Return the last seqs of the partitions of the request with new entries, in order."""
    above, end_key = body["above"], body["end_key"]
    low = key_partitions.first_of(body["start_key"])
    high = key_partitions.end_of(end_key, limits.kafka_partitions_max)
    return {
        partition: rows[partition]
        for partition in sorted(rows)
        if low <= partition < high and rows[partition] >= above
    }


def _rows(replica: RangeReplica, found: list[tuple[int, int]]) -> Iterator[list[int]]:
    state = replica.state
    for partition, last in found:
        begin, _ = state.earliest(*key_partitions.span(partition))
        yield [partition, _begin(begin, last), last + 1]


def _begin(floor: int, last: int) -> int:
    """Return where a partition with this floor and last seq begins; nothing is below seq 1. The
    floor of a partition that never had an entry, of which `last` is 0, is that of other keys."""
    return 0 if floor <= 1 or not last else min(floor, last + 1)


async def _until_news(replica: RangeReplica, body: Body) -> None:
    """Return after an entry of the partitions, at the end of the generation, or when the wait is
    over."""
    news = asyncio.Event()
    span = body["start_key"], body["end_key"]

    def on_news(_: Collection[bytes] | None, __: int) -> None:
        news.set()

    replica.news.listen_span(on_news, *span)
    try:
        async with asyncio.timeout(body["wait_ms"] / 1000):
            while not (replica.stopped or replica.is_sealed):
                if _fresh(_table(replica).now(replica.state.memtables()), body):
                    return
                news.clear()
                await news.wait()
    except TimeoutError:
        return
    finally:
        replica.news.unlisten_span(on_news, *span)
        if not replica.news.has_listeners:
            replica.contact.end()
