"""`scripts/bench scan`: a whole range read from one node, as entries, columns and Arrow batches.

Entries are written in a known order to a known set of keys of one range, so one node serves every
page. A snapshot of them is read several times in each way. The timed reads check the number of
entries and the sum of their seqs, of which none is left out. After each timed read the same way
reads the snapshot once more, and each key, seq and value is compared with what was written.

`client us` and `node us` are microseconds of processor time for an entry, of the reading process
and of the node that serves. `entries` and `columns` read by `lognode.AsyncClient`, `blocking
entries` by `lognode.Client`. `columns` touches the seqs only, `lists` makes lists of all columns.
"""

import asyncio
import time
from array import array
from collections.abc import AsyncIterator, Callable, Iterable
from itertools import islice
from typing import Any

import lognode
from lognode.client import entry_columns
from lognode.client.bench.shape import Shape
from lognode.node.local.dev import LocalCluster

from . import harness, nodes
from .load import fill

_LOG = "scan"
_AT_ONCE = 10_000
Batch = tuple[list[bytes], list[int], list[bytes | None]]
"""Keys, seqs and values."""


def main(arguments: list[str]) -> int:
    """Write, read, print. Raises CorruptData at the first difference."""
    parser = harness.parser("scan", __doc__)
    parser.add_argument("--records", type=int)
    parser.add_argument("--keys", type=int)
    parser.add_argument("--value-bytes", type=int, default=128)
    parser.add_argument("--rounds", type=int, help="timed reads in each way")
    parser.add_argument("--ways", default=",".join(_WAYS), help="comma-separated")
    options = parser.parse_args(arguments)
    records = options.records or (20_000 if options.quick else 2_000_000)
    shape = Shape(options.keys or (1_000 if options.quick else 1_000_000), 16, options.value_bytes)
    ways = options.ways.split(",")
    if not set(ways) <= set(_WAYS):
        parser.error(f"--ways {options.ways}; give some of {', '.join(_WAYS)}")
    around = harness.environment()
    rows = []
    with harness.cluster(options.data) as cluster:
        written = fill(
            cluster, _LOG, shape.keys, value_bytes=options.value_bytes, ranges=1, records=records
        )["records"]  # fmt: skip
        in_memory = _settled(cluster)
        for way in ways:
            for number in range(1, (options.rounds or (1 if options.quick else 3)) + 1):
                read = _Reading(cluster, shape, written)
                rows.append({"way": way, "round": number, **_WAYS[way](read)})
    harness.show(options, around, rows, bytes_in_memory=in_memory)
    return 0


class _Reading:
    """One timed read of the snapshot, and its repetition that is checked."""

    def __init__(self, cluster: LocalCluster, shape: Shape, records: int) -> None:
        self.servers = cluster.servers
        self._nodes = cluster.nodes
        self._shape = shape
        self._records = records

    def timed(self, read: Callable[[], tuple[int, int]]) -> dict[str, Any]:
        """Return the figures of a read, which returns the count and the sum of the seqs."""
        used = list(map(nodes.cpu_seconds, self._nodes))
        began, own = time.perf_counter(), time.process_time()
        count, seqs = read()
        seconds, own = time.perf_counter() - began, time.process_time() - own
        served = max(
            after - before
            for after, before in zip(map(nodes.cpu_seconds, self._nodes), used, strict=True)
        )
        if (count, seqs) != (self._records, self._records * (self._records + 1) // 2):
            raise lognode.CorruptData(
                f"{count} entries with seqs of sum {seqs}; {self._records} were written"
            )
        return {"entries/s": round(count / seconds), "client us": round(1e6 * own / count, 2),
                "node us": round(1e6 * served / count, 2)}  # fmt: skip

    def check(self, batches: Iterable[Batch]) -> dict[str, Any]:
        """Compare each entry with the written one: the next of its key. Return their number."""
        shape, read = self._shape, 0
        seen, last = array("Q", bytes(8 * shape.keys)), array("Q", bytes(8 * shape.keys))
        for keys, seqs, values in batches:
            for key, seq, value in zip(keys, seqs, values, strict=True):
                at = int(key)
                if value != shape.value(key, at + shape.keys * seen[at]) or seq <= last[at]:
                    raise lognode.CorruptData(f"entry {seq} of key {key!r} is {value!r:.80}")
                seen[at] += 1
                last[at] = seq
            read += len(keys)
        if read != self._records:
            raise lognode.CorruptData(f"{read} entries were read; {self._records} were written")
        return {"verified": read}


def _blocking_entries(reading: _Reading) -> dict[str, Any]:
    with lognode.Client(reading.servers, timeout=60) as client:
        snapshot = client.log(_LOG).snapshot()

        def read() -> tuple[int, int]:
            count = seqs = 0
            for entry in snapshot.read():
                count += 1
                seqs += entry.seq
            return count, seqs

        figures = reading.timed(read)
        again = snapshot.read()
        checked = reading.check(iter(lambda: _batch(list(islice(again, _AT_ONCE))), ([], [], [])))
        snapshot.release()
        return {**figures, **checked}


def _batch(entries: list[lognode.Entry]) -> Batch:
    return [e.key for e in entries], [e.seq for e in entries], [e.value for e in entries]


def _entries(reading: _Reading) -> dict[str, Any]:
    async def one(snapshot: lognode.AsyncSnapshot) -> tuple[int, int]:
        count = seqs = 0
        async for entry in snapshot.read():
            count += 1
            seqs += entry.seq
        return count, seqs

    async def batches(snapshot: lognode.AsyncSnapshot) -> AsyncIterator[Batch]:
        some: list[lognode.Entry] = []
        async for entry in snapshot.read():
            some.append(entry)
            if len(some) == _AT_ONCE:
                yield _batch(some)
                some = []
        yield _batch(some)

    return _in_async(reading, one, batches)


def _columns(reading: _Reading) -> dict[str, Any]:
    async def one(snapshot: lognode.AsyncSnapshot) -> tuple[int, int]:
        count = seqs = 0
        async for columns in snapshot.read_columns():
            count += len(columns)
            seqs += sum(columns.seqs)
        return count, seqs

    return _in_async(reading, one, _column_batches)


def _lists(reading: _Reading) -> dict[str, Any]:
    async def one(snapshot: lognode.AsyncSnapshot) -> tuple[int, int]:
        count = seqs = 0
        async for columns in snapshot.read_columns():
            lists = columns.keys, columns.values, columns.timestamps_ms
            count += min(map(len, lists))
            seqs += sum(columns.seqs)
        return count, seqs

    return _in_async(reading, one, _column_batches)


def _arrow(reading: _Reading) -> dict[str, Any]:
    import pyarrow.compute

    entry_columns.arrow()  # the first import of these takes longer than a small read

    async def one(snapshot: lognode.AsyncSnapshot) -> tuple[int, int]:
        count = seqs = 0
        async for batch in snapshot.read_arrow():
            count += batch.num_rows
            seqs += pyarrow.compute.sum(batch["seq"]).as_py()
        return count, seqs

    async def batches(snapshot: lognode.AsyncSnapshot) -> AsyncIterator[Batch]:
        async for batch in snapshot.read_arrow():
            yield tuple(batch[name].to_pylist() for name in ("key", "seq", "value"))

    return _in_async(reading, one, batches)


async def _column_batches(snapshot: lognode.AsyncSnapshot) -> AsyncIterator[Batch]:
    async for columns in snapshot.read_columns():
        yield columns.keys, columns.seqs, columns.values


def _in_async(
    reading: _Reading,
    one: Callable[[lognode.AsyncSnapshot], Any],
    batches: Callable[[lognode.AsyncSnapshot], AsyncIterator[Batch]],
) -> dict[str, Any]:
    """Run the timed read on a loop of its own, then check every entry of a second read."""
    with asyncio.Runner() as runner:
        client = runner.run(_made(reading.servers))
        snapshot = runner.run(client.log(_LOG).snapshot())
        figures = reading.timed(lambda: runner.run(one(snapshot)))
        source = batches(snapshot)

        def pulled() -> Iterable[Batch]:
            while (batch := runner.run(_next(source))) is not None:
                yield batch

        checked = reading.check(pulled())
        runner.run(snapshot.release())
        runner.run(client.close())
        return {**figures, **checked}


async def _made(servers: str) -> lognode.AsyncClient:
    return await lognode.AsyncClient(servers, timeout=60).__aenter__()


async def _next(source: AsyncIterator[Batch]) -> Batch | None:
    return await anext(source, None)


def _settled(cluster: LocalCluster, seconds: float = 120.0) -> int:
    """Wait until segments hold the entries; return the bytes that are in memory all the same."""
    until = time.monotonic() + seconds
    while (held := int(nodes.counters(cluster)["lognode_memtable_bytes"])) > 1 << 20:
        if time.monotonic() > until:
            break
        time.sleep(0.5)
    return held


_WAYS: dict[str, Callable[[_Reading], dict[str, Any]]] = {
    "entries": _entries,
    "blocking entries": _blocking_entries,
    "columns": _columns,
    "lists": _lists,
    "arrow": _arrow,
}
