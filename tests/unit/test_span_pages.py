"""Reading a span of keys and seqs while its ranges are split: all of it, and in one order."""

import asyncio
import random
from typing import Any

import pytest
from fake_cluster import FakeCluster, Stored, fake_cluster

from lognode.client import wire
from lognode.client.address import parse
from lognode.client.cluster import Cluster
from lognode.client.errors import NotFound, RemoteProtocolError
from lognode.client.span_pages import Span, SpanPage, span_pages

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
        (page.body["keys"] if type(page.body["keys"]) is bytes else page.body["keys"][at], seq)
        for page in pages
        for at, seq in enumerate(page.body["seqs"])
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
            assert (page.body["seqs"], page.settled) == ([], None)
            assert cluster.count(wire.EXPORT) == 1

    asyncio.run(main())


def test_a_lease_that_has_ended_is_said_to_have() -> None:
    async def main() -> None:
        async with fake_cluster() as cluster:
            filled(cluster)
            with pytest.raises(NotFound, match="lease of this snapshot of log 'log' has ended"):
                await read(cluster, Span(b"", None, 1, 9, "gone"))

    asyncio.run(main())


@pytest.mark.parametrize(
    "broken", [{"end_key": b"a"}, {"position": [[1]]}, {"position": [[[1, 2, 3, 4]], 1]},
               {"position": 7}]
)  # fmt: skip
def test_a_page_that_is_none_is_refused(broken: dict[str, Any]) -> None:
    async def main() -> None:
        async with fake_cluster() as cluster:
            filled(cluster)
            node = cluster.nodes[cluster.ranges[0].leader]
            serve = node.read
            node.read = lambda *asked: {**serve(*asked), **broken}
            with pytest.raises(RemoteProtocolError):
                await read(cluster, Span(b"k1", None, 1, 9))

    asyncio.run(main())
