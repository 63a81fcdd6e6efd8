"""Read records for consumers, and find offsets.

A fetch reads the partitions that have records from the offset on, in the order of the request, up
to the bytes that the client allows. Without enough records it waits for news, up to the time that
the client allows. A waiting fetch is a listener and a timer.

A partition is read from the leader of its range, from a seq on, in the order of seq. The read waits
until the leader has applied the end of which the door was told, so a leader that was elected a
moment ago never answers with less. Where nothing is left between the offset and the end, because
the last entries were removed, the consumer gets a control batch and passes on.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from ...client.cluster import Cluster
from ...client.protocol import limits
from ...client.protocol.errors import LognodeError, LogNotFound
from ...client.protocol.key_partitions import span
from ...client.protocol.reads import READ_SPAN, RESOLVE
from ..runtime.slices import one_by_one, stepped
from . import batches, codes, record_columns
from .answers import Fetched, Offset
from .codes import code_of
from .partition_news import Tail
from .refused import Refused
from .requests import Asked, Fetch, Wanted
from .room import Room
from .topics import Topic, Topics

FETCH_BYTES_MAX: Final = 4 * limits.MIB
"""Bytes of records in one answer, whatever the client allows, and one record more."""
_WAIT_MAX_S: Final = limits.kafka_wait_ms_max / 1000
_TIMEOUT_S: Final = 10.0
_GATHER_S: Final = 0.05
"""The least time between two reads of a fetch whose records are too few."""
_AT_ONCE: Final = 4
"""Partitions that a fetch reads at the same time."""
_TIMES_AT_ONCE: Final = 16
"""Partitions whose offsets are looked up by time together."""
_END: Final = -1
_BEGIN: Final = -2

Send = Callable[[Sequence[Fetched]], Awaitable[None]]


class _Part:
    """A partition of a fetch."""

    def __init__(self, wanted: Wanted, topic: Topic | None, error: int) -> None:
        self.wanted = wanted
        self.topic = topic
        self.error = error
        self.offset = wanted.offset
        """The first offset that is not read yet."""
        self.records: list[bytes] = []
        self._seen = 0

    @property
    def tail(self) -> Tail:
        """Where the partition begins and ends, as the door was told."""
        return Tail() if self.topic is None else self.topic.news.tail(self.wanted.partition)

    @property
    def has_more(self) -> bool:
        """Whether there are records from the offset on."""
        return not self.error and self.offset < self.tail.end

    def again(self) -> None:
        """Forget what was read."""
        self.offset, self.records, self._seen = self.wanted.offset, [], self.tail.end

    @property
    def has_grown(self) -> bool:
        """Whether the partition has more records than when the last ones were forgotten."""
        return self.tail.end > self._seen

    def row(self) -> Fetched:
        """Return the row of the answer."""
        wanted = self.wanted
        if self.error:
            return Fetched(wanted.topic, wanted.partition, self.error)
        begin, end = self.tail
        end = max(end, self.offset)
        return Fetched(wanted.topic, wanted.partition, codes.NONE, end, begin, self.records)


async def _until(parts: Sequence[_Part], until: float, holds: Callable[[], bool]) -> None:
    """Wait for news of the partitions until the condition holds, or until the time is over."""
    news = asyncio.Event()
    places = [(part.topic.news, (part.wanted.partition,)) for part in parts if part.topic]
    try:
        async for told, partition in one_by_one(places):
            told.listen(partition, news.set)
        async with asyncio.timeout_at(until):
            while not holds():
                news.clear()
                await news.wait()
    except TimeoutError:
        return
    finally:
        for told, partition in places:
            told.unlisten(partition, news.set)


class Fetching:
    """Serves requests for records and offsets. `room` bounds the memory of answers."""

    def __init__(self, cluster: Cluster, topics: Topics, room: Room) -> None:
        self._cluster = cluster
        self._topics = topics
        self._room = room

    async def fetch(self, request: Fetch, send: Send, host: str) -> None:
        """Answer a fetch of a client on this host; `send` sends the rows.

        Records that are fewer than the client wants are dropped, and read again once there are
        more: a fetch that waits holds no room.
        """
        until = self._cluster.now() + min(max(request.max_wait_ms, 0) / 1000, _WAIT_MAX_S)
        parts = [await self._part(each) async for each in one_by_one(request.partitions)]
        most = min(max(request.max_bytes, 1), FETCH_BYTES_MAX)
        least = min(request.min_bytes, most)
        if least > 0 and parts and not any(part.error for part in parts):
            await _until(parts, until, lambda: any(part.has_more for part in parts))
        while any(part.has_more for part in parts):
            async with self._room.held(most + limits.value_bytes_max, host) as shrink:
                left = await self._read(parts, most)
                shrink(2 * (most - left))  # the records, and the answer that has them
                is_late = self._cluster.now() >= until or any(part.error for part in parts)
                if most - left >= least or is_late:
                    await send([part.row() for part in parts])
                    return
            for part in parts:
                part.again()
            await asyncio.sleep(min(_GATHER_S, max(0.0, until - self._cluster.now())))
            await _until(parts, until, lambda: any(part.has_grown for part in parts))
        await send([part.row() for part in parts])

    async def _part(self, wanted: Wanted) -> _Part:
        """Return a partition, checked against what the ranges tell."""
        deadline = self._cluster.now() + _TIMEOUT_S
        try:
            topic = await self._topics.known(wanted.topic, deadline)
            topic.check(wanted.partition)
            if not await topic.news.known(deadline):
                return _Part(wanted, None, codes.NOT_LEADER_OR_FOLLOWER)
            tail = topic.news.tail(wanted.partition)
            if wanted.offset > tail.end:  # the client may have heard of it from another node
                tail = await topic.news.ask(wanted.partition, deadline)
            if not tail.begin <= wanted.offset <= tail.end:
                return _Part(wanted, topic, codes.OFFSET_OUT_OF_RANGE)
            return _Part(wanted, topic, codes.NONE)
        except Refused as refusal:
            return _Part(wanted, None, refusal.code)
        except LognodeError as error:
            return _Part(wanted, None, self._failed(wanted.topic, error))

    async def _read(self, parts: list[_Part], left: int) -> int:
        """Read the partitions that have records, up to `left` bytes; return how many are left."""
        ready = [part for part in parts if part.has_more]
        for at in range(0, len(ready), _AT_ONCE):
            if left <= 0:
                break
            some = ready[at : at + _AT_ONCE]
            share = max(1, left // len(some))
            sizes = await asyncio.gather(*(self._read_part(part, share) for part in some))
            left -= sum(sizes)
        return left

    async def _read_part(self, part: _Part, most: int) -> int:
        """Read one partition; return the bytes of its records."""
        size = min(max(part.wanted.bytes_max, 1), most, limits.page_bytes_max)
        try:
            part.records = await self._page(part, size)
        except LognodeError as error:
            part.error = self._failed(part.wanted.topic, error)
        return sum(map(len, part.records))

    async def _page(self, part: _Part, size: int) -> list[bytes]:
        """Return batches from the offset on, and move the offset behind them."""
        assert part.topic is not None
        start_key, end_key = span(part.wanted.partition)
        end, at = part.tail.end, part.offset
        deadline = self._cluster.now() + _TIMEOUT_S
        while at < end:
            body = {
                "start_key": start_key, "end_key": end_key, "start": at, "bytes": size,
                "limit": limits.page_entries_max, "consistency": "prefix", "through": end - 1,
                "timeout_ms": 1000 * int(_TIMEOUT_S), "columns": True,
            }  # fmt: skip
            page, _ = await self._cluster.call(
                part.topic.routes, start_key, READ_SPAN, body, deadline=deadline, waits=True
            )
            if page["seqs"] or page["chunks"]:
                found, last = await stepped(record_columns.written(page))
                part.offset = last + 1
                return found
            if not page["more"] or page["next"] <= at:
                break
            at = page["next"]
        batch, part.offset = batches.passed(part.offset, end)
        return [batch]

    # Offsets.

    async def offsets(self, asked: Sequence[Asked]) -> list[Offset]:
        """Return the offsets that are asked for, as of now: with all that was acknowledged."""
        deadline = self._cluster.now() + _TIMEOUT_S
        fresh: dict[str, int] = {}
        """The error of each topic."""
        for name in dict.fromkeys(each.topic for each in asked):
            try:
                await self._ask_all(name, deadline)
                fresh[name] = codes.NONE
            except LognodeError as error:
                fresh[name] = self._failed(name, error)
        found: list[Offset] = []
        for at in range(0, len(asked), _TIMES_AT_ONCE):
            some = asked[at : at + _TIMES_AT_ONCE]
            found += await asyncio.gather(
                *(self._offset(each, fresh[each.topic], deadline) for each in some)
            )
            await asyncio.sleep(0)
        return found

    async def _ask_all(self, name: str, deadline: float) -> None:
        """Ask where the partitions of a topic begin and end; again, if the answer shows that
        somebody else has created the topic anew."""
        asked: Topic | None = None
        while (topic := await self._topics.known(name, deadline)) is not asked:
            await topic.news.ask_all(deadline)
            asked = topic

    async def _offset(self, asked: Asked, error: int, deadline: float) -> Offset:
        if error:
            return Offset(asked.topic, asked.partition, error)
        try:
            topic = await self._topics.known(asked.topic, deadline)
            topic.check(asked.partition)
            tail = topic.news.tail(asked.partition)
            if asked.timestamp in (_END, _BEGIN):
                offset = tail.end if asked.timestamp == _END else tail.begin
                return Offset(asked.topic, asked.partition, offset=offset)
            if self._cluster.now() >= deadline:  # the client asks for the others again
                return Offset(asked.topic, asked.partition, codes.NOT_LEADER_OR_FOLLOWER)
            seq, timestamp_ms = await self._since(topic, asked, deadline)
            return Offset(asked.topic, asked.partition, codes.NONE, timestamp_ms, seq)
        except Refused as refusal:
            return Offset(asked.topic, asked.partition, refusal.code)
        except LognodeError as failure:
            return Offset(asked.topic, asked.partition, self._failed(asked.topic, failure))

    async def _since(self, topic: Topic, asked: Asked, deadline: float) -> tuple[int, int]:
        """Return the offset and time of the first record that is not older, or -1 twice."""
        start_key, end_key = span(asked.partition)
        keys = {"start_key": start_key, "end_key": end_key}
        body: dict[str, Any] = {**keys, "start": ["ts", max(asked.timestamp, 0)]}
        answer, _ = await self._cluster.call(
            topic.routes, start_key, RESOLVE, body, deadline=deadline
        )
        at, end = answer["seq"], topic.news.tail(asked.partition).end
        while at < end:
            body = {**keys, "start": at, "limit": 1}
            page, _ = await self._cluster.call(
                topic.routes, start_key, READ_SPAN, body, deadline=deadline
            )
            if page["seqs"]:
                return page["seqs"][0], page["timestamps"][0]
            if not page["more"] or page["next"] <= at:
                break
            at = page["next"]
        return _END, _END

    def _failed(self, topic: str, error: LognodeError) -> int:
        if isinstance(error, LogNotFound):
            self._topics.gone(topic)
        return code_of(error)
