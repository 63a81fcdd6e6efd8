"""Reading a span of keys and seqs while its ranges are split: all of it, and in one order."""

import asyncio
import random
from pathlib import Path
from typing import Any

import msgpack
import pytest
from fake_cluster import FakeCluster, Stored, fake_cluster
from lineages import Lineages

from lognode.client.cluster import Cluster
from lognode.client.protocol import Operation
from lognode.client.protocol.address import parse
from lognode.client.protocol.errors import NotFound, RemoteProtocolError
from lognode.client.protocol.reads import EXPORT
from lognode.client.routing import Range
from lognode.client.span_pages import Span, SpanPage, span_pages
from lognode.node.runtime import fields
from lognode.statemachine.range_state import RangeState

Read = list[SpanPage]
Row = tuple[bytes, int]


def filled(cluster: FakeCluster, count: int = 60) -> list[Row]:
    cluster.create("log")
    (only,) = cluster.ranges
    for at in range(count):
        only.entries.append(Stored(b"k%d" % (at * 7 % 10), at + 1, 1_000 + at, None, b"v"))
    only.next_seq = count + 1
    return sorted((entry.key, entry.seq) for entry in only.entries)


async def read(cluster: FakeCluster, span: Span, changes: dict[int, Any] | None = None) -> Read:
    client = Cluster(parse(cluster.address))
    found: Read = []
    try:
        async for page in span_pages(
            client, client.log("log"), span, consistency="linearizable", timeout=5.0
        ):
            found.append(page)
            change = (changes or {}).get(len(found))
            if change is not None:
                change()
        return found
    finally:
        await client.close()


def rows(pages: Read) -> list[Row]:
    return [
        row
        for page in pages
        for chunk in page.chunks
        for row in zip(chunk.unpacked_keys(), chunk.unpacked_seqs(), strict=True)
    ]


def check_settled(pages: Read, expected: list[Row]) -> None:
    """What a page says is complete is: nothing below comes later."""
    for at, page in enumerate(pages):
        if page.settled is None:
            assert at == len(pages) - 1
            continue
        assert min(rows(pages[at + 1 :]), default=page.settled) >= page.settled
        assert {row for row in expected if row < page.settled} <= set(rows(pages[: at + 1]))


def test_all_of_a_span_is_read_once_through_splits_and_merges_of_files() -> None:
    async def main(seed: int) -> None:
        rng = random.Random(seed)
        async with fake_cluster() as cluster:
            entries = filled(cluster)
            low, high = sorted(rng.sample(range(1, 62), 2))
            start, end = b"k1", rng.choice([b"k8", None])

            def change() -> None:
                if rng.random() < 0.5:
                    cluster.split(b"k%d" % rng.randrange(1, 9))
                for known in cluster.ranges:
                    known.file_seqs = rng.choice([5, 8, 16, 100])

            changes = {rng.randrange(1, 12): change for _ in range(3)}
            expected = [
                (key, seq) for key, seq in entries
                if low <= seq < high and key >= start and (end is None or key < end)
            ]  # fmt: skip
            pages = await read(cluster, Span(start, end, low, high), changes)
            assert sorted(rows(pages)) == expected, f"seed={seed}"
            check_settled(pages, expected)

    for seed in range(40):
        asyncio.run(main(seed))


def test_files_are_read_side_by_side_and_little_is_held_back() -> None:
    async def main() -> None:
        async with fake_cluster() as cluster:
            entries = filled(cluster)
            cluster.ranges[0].file_seqs = 20
            pages = await read(cluster, Span(b"", None, 1, 61))
            assert sorted(rows(pages)) == entries
            check_settled(pages, entries)
            held = most = 0
            for at, page in enumerate(pages):
                if page.settled is not None:
                    held = sum(row >= page.settled for row in rows(pages[: at + 1]))
                most = max(most, held)
            assert most <= 3 * 4, "of four files a page"

    asyncio.run(main())


def test_nothing_is_asked_for_where_there_is_nothing() -> None:
    async def main() -> None:
        async with fake_cluster() as cluster:
            filled(cluster)
            assert await read(cluster, Span(b"", None, 5, 5)) == []
            (page,) = await read(cluster, Span(b"x", None, 5, 9))
            assert (page.chunks, page.settled) == ([], None)
            assert cluster.count(EXPORT) == 1

    asyncio.run(main())


def test_a_lease_that_has_ended_is_said_to_have() -> None:
    async def main() -> None:
        async with fake_cluster() as cluster:
            filled(cluster)
            with pytest.raises(NotFound, match="lease of this snapshot of log 'log' has ended"):
                await read(cluster, Span(b"", None, 1, 9, "gone"))

    asyncio.run(main())


class Served:
    """A cluster of one range, of the state machine itself, instead of nodes."""

    def __init__(self, state: RangeState, limit: int) -> None:
        self.state = state
        self.limit = limit

    def now(self) -> float:
        return 0.0

    async def call(
        self, routes: Any, key: bytes, op: Operation, body: dict[str, Any], **how: Any
    ) -> tuple[dict[str, Any], Range]:
        assert op == EXPORT
        page, following = self.state.read_bands(
            body["start_key"], body["end_key"], fields.position(body["position"]),
            self.state.next_seq,
            limit=self.limit, bytes_max=body["bytes"], as_of=body["as_of"],
        )  # fmt: skip
        answer = EXPORT.check_answer({**page.to_wire(), "position": following})
        return msgpack.unpackb(msgpack.packb(answer), strict_map_key=False), Range(
            1, 1, 1, b"", None, (1,)
        )


async def served(state: RangeState, limit: int, span: Span) -> Read:
    cluster: Any = Served(state, limit)
    routes: Any = None
    pages = span_pages(cluster, routes, span, consistency="linearizable", timeout=5.0)
    return [page async for page in pages]


def test_pages_of_the_state_machine_end_with_the_last_seq(
    tmp_path: Path,
) -> None:
    """Two chains of files, what was appended after their merge, and a memtable."""
    lineages = Lineages(tmp_path)
    lineages.split(lineages.ranges[0], b"e")
    for state, keys in zip(lineages.ranges, (b"abc", b"efg"), strict=True):
        for _ in range(8):
            lineages.append(state, [b"%c" % key for key in keys])
            lineages.flush(state)
    lineages.unite(0)
    (state,) = lineages.ranges
    for at in range(9):
        lineages.append(state, [b"a", b"f", b"g"])
        if at == 4:
            lineages.flush(state)
    every = [
        (key, seq) for key in (b"a", b"b", b"c", b"e", b"f", b"g")
        for seq in state.scan(key, limit=999, bytes_max=1 << 20).seqs
    ]  # fmt: skip
    for low, high in ((1, state.next_seq), (5, 21), (20, 40), (state.next_seq - 1, 1 << 40)):
        for limit in (1, 4, 100):
            for start, end in ((b"", None), (b"b", b"f\0")):
                pages = asyncio.run(served(state, limit, Span(start, end, low, high)))
                expected = [
                    (key, seq) for key, seq in every
                    if low <= seq < high and key >= start and (end is None or key < end)
                ]  # fmt: skip
                assert sorted(rows(pages)) == expected
                check_settled(pages, expected)


@pytest.mark.parametrize(
    "broken", [{"end_key": b"a"}, {"position": [[1]]}, {"position": [[[1, 2, 3, 4]], 1]},
               {"position": 7}, {"chunks": None}, {"chunks": [[1]]}]
)  # fmt: skip
def test_a_malformed_page_is_refused(broken: dict[str, Any]) -> None:
    async def main() -> None:
        async with fake_cluster() as cluster:
            filled(cluster)
            node = cluster.nodes[cluster.ranges[0].leader]
            serve = node.read
            node.read = lambda *asked: {**serve(*asked), **broken}
            with pytest.raises(RemoteProtocolError):
                await read(cluster, Span(b"k1", None, 1, 9))

    asyncio.run(main())
