"""The hot paths of lognode as pieces of work whose size is chosen, and what a record costs each.

A path runs with few and with many records, several times in turn. The least count of each function
counts, since what a node does in the background only adds to the counts. What remains of the
difference, divided by the records, is what a record costs: the fixed cost of a call, a request or a
batch is in both, and cancels out.
"""

import asyncio
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from call_counts import Counting, Events, Place, least, slope
from live_nodes import LiveCluster, until

from lognode import ABSENT, AsyncLog
from lognode.client.log import Record
from lognode.client.protocol.records import encode_batch
from lognode.statemachine.segment_writer import Source, build

_FEW: Final = 400
_MANY: Final = 1_600
_BUILT: Final = (4_000, 16_000)
"""Sizes of a segment: of both the builder reads a sample of 256 KiB of values one by one."""
LARGE: Final = (2_000, 14_000)
"""Sizes for paths on which a record costs little, beside much that happens in the background."""
_LEAST: Final = 0.5
"""A function with fewer events for each record does not work on single records. Such events are of
slices, of blocks, and of what nodes do beside the path: heartbeats, timers, pieces from sockets."""

Work = Callable[[], Awaitable[None]]
Prepare = Callable[[int], Awaitable[Work]]
"""Prepares a piece of work with so many records; only the work is counted."""


def part_of(place: Place) -> str:
    """Return the part of lognode to which a function belongs."""
    if place.file.startswith(("client/accepting/", "client/transport.py")):
        return "connections"
    return place.file.partition("/")[0]


class Costs(NamedTuple):
    """The events of each record: of each function with events, and of each part together."""

    places: Mapping[Place, Events]
    parts: Mapping[str, Events]

    def table(self) -> str:
        """Return a line for each part, and under it a line for each of its functions."""
        lines = []
        for name, events in sorted(self.parts.items()):
            lines.append(f"{name}: {events.calls:.2f} calls, {events.lines:.2f} lines")
            lines += [
                f"    {place.file} {place.name}: {each.calls:.2f} calls, {each.lines:.2f} lines"
                for place, each in sorted(self.places.items())
                if part_of(place) == name
            ]
        return "\n".join(lines)


def costs(
    few: Sequence[Mapping[Place, Events]], many: Sequence[Mapping[Place, Events]], records: int
) -> Costs:
    """Return the costs by repeated runs, of which those of `many` have so many `records` more."""
    found = {
        place: events
        for place, events in slope(least(few), least(many), records).items()
        if max(events) >= _LEAST
    }
    parts: defaultdict[str, Events] = defaultdict(lambda: Events(0.0, 0.0))
    for place, events in found.items():
        of = parts[part_of(place)]
        parts[part_of(place)] = Events(of.calls + events.calls, of.lines + events.lines)
    return Costs(found, dict(parts))


class Paths:
    """The hot paths of a log of four ranges."""

    def __init__(self, cluster: LiveCluster, log: AsyncLog, root: Path) -> None:
        self._cluster = cluster
        self._log = log
        self._root = root
        self._rng = random.Random(1)
        self._built = False
        self._sorted: dict[int, bytes] = {}
        self._of_one_key: dict[int, bytes] = {}

    async def measure(
        self, counting: Counting, name: str, *, turns: int = 3,
        sizes: tuple[int, int] | None = None,
    ) -> Costs:  # fmt: skip
        """Return what a record of the path with this name costs, by the least counts of some
        turns. `sizes`: the records of the smaller and the larger run."""
        prepare: Prepare = getattr(self, name)
        few, many = sizes or (_BUILT if name == "build" else (_FEW, _MANY))
        runs: dict[int, list[dict[Place, Events]]] = {few: [], many: []}
        for _ in range(turns):
            for count, found in runs.items():
                work = await prepare(count)
                with counting.counted() as events:
                    await work()
                found.append(events)
        return costs(runs[few], runs[many], many - few)

    def _keys(self, count: int) -> list[bytes]:
        """Return new keys, spread over all ranges."""
        return [b"%016x" % self._rng.getrandbits(64) for _ in range(count)]

    def _records(self, count: int) -> list[Record]:
        return [(key, b"v%031d" % at) for at, key in enumerate(self._keys(count))]

    async def append_many(self, count: int) -> Work:
        """Append in one call, until all members have applied it.

        Another call of the same size goes before it: the range forgets the numbers of the records
        before when it gets new ones.
        """
        records = self._records(count)
        await self._log.append_many(self._records(count))
        await self._cluster.settled()

        async def work() -> None:
            assert len(await self._log.append_many(records)) == count
            await self._cluster.settled()

        return work

    async def append_with_headers(self, count: int) -> Work:
        """Append in one call, with a header for each record."""
        records = [(key, value, {b"h": b"1"}) for key, value in self._records(count)]
        await self._log.append_many(self._records(count))

        async def work() -> None:
            assert len(await self._log.append_many(records)) == count

        return work

    async def append_with_conditions(self, count: int) -> Work:
        """Append in one call, with a condition for each record."""
        records = self._records(count)
        await self._log.append_many(self._records(count))

        async def work() -> None:
            assert len(await self._log.append_many(records, expects=[ABSENT] * count)) == count

        return work

    async def append_singly(self, count: int) -> Work:
        """Append by a call for each record, all calls at once."""
        keys = self._keys(count)
        await self._log.append_many(self._records(count))

        async def work() -> None:
            await asyncio.gather(*(self._log.append(key, b"v" * 32) for key in keys))

        return work

    async def append_followed(self, count: int) -> Work:
        """Append to one key that is followed, until the follower has all entries."""
        (key,) = self._keys(1)
        records = [(key, b"v%031d" % at) for at in range(count)]
        await self._log.append_many([(key + b"-", value) for _, value in records])
        feed = self._log.follow(keys=[key], start="latest")
        await feed.__aenter__()

        async def work() -> None:
            await self._log.append_many(records)
            left = count
            async for batch in feed:
                left -= len(batch.entries)
                if not left:
                    break
            await feed.close()

        return work

    async def scan_memtable(self, count: int) -> Work:
        """Read the entries of a key that are in memory."""
        (key,) = self._keys(1)
        await self._log.append_many([(key, b"v%031d" % at) for at in range(count)])
        return self._scan(key, count)

    async def scan_segment(self, count: int) -> Work:
        """Read the entries of a key from a segment."""
        await self._build()
        return self._scan(self._of_one_key[count], count)

    def _scan(self, key: bytes, count: int) -> Work:
        async def work() -> None:
            assert len([entry async for entry in self._log.scan(key)]) == count

        return work

    async def snapshot_pages(self, count: int) -> Work:
        """Read the entries of many keys from a segment, as columns."""
        await self._build()
        start = self._sorted[count]
        snapshot = await self._log.snapshot()

        async def work() -> None:
            pages = snapshot.read_columns(prefix=start)
            assert sum([len(columns.keys) async for columns in pages]) == count
            await snapshot.release()

        return work

    async def _build(self) -> None:
        """Have the node build a segment with entries to read, once."""
        if self._built:
            return
        self._built = True
        for count in (_FEW, _MANY):
            self._of_one_key[count], start = self._keys(2)
            self._sorted[count] = start
            records = [(self._of_one_key[count], b"v%031d" % at) for at in range(count)]
            records += [(b"%b%08d" % (start, at), b"v" * 32) for at in range(count)]
            await self._log.append_many(records)
        (node,) = self._cluster.nodes
        replicas = node.host.ranges()
        for replica in replicas:
            replica.propose_freeze()

        def built() -> bool:
            states = [replica.state for replica in replicas]
            return not any(state.queue or len(state.memtable) for state in states)

        await until(built, "all segments are built")

    async def build(self, count: int) -> Work:
        """Build a segment."""
        sources = []
        part = count // 4
        for at in range(4):
            values = [b"%0128x" % self._rng.getrandbits(512) for _ in range(part)]
            data = encode_batch(
                self._keys(part), values, producer=1, epoch=1, low=1, numbers=at * part + 1
            )
            sources.append(Source(data, None, 1))

        async def work() -> None:
            build(self._root / "built", 1, sources)

        return work
