"""Reading a span of keys and seqs while its ranges are split: all of it, and in one order."""

import asyncio
import random

import pytest
from fake_cluster import FakeCluster, Stored, fake_cluster

from lognode.client import wire
from lognode.client.address import parse
from lognode.client.cluster import Cluster
from lognode.client.errors import NotFound, RemoteProtocolError
from lognode.client.span_pages import Span, SpanPage, span_pages

Read = list[SpanPage]


def filled(cluster: FakeCluster, count: int = 40) -> list[tuple[int, bytes]]:
    cluster.create("log")
    (only,) = cluster.ranges
    for at in range(count):
        only.entries.append(Stored(b"k%d" % (at * 7 % 10), at + 1, 1_000 + at, None, b"v"))
    only.next_seq = count + 1
    return [(entry.seq, entry.key) for entry in only.entries]


async def read(cluster: FakeCluster, span: Span, split_after: dict[int, bytes]) -> Read:
    client = Cluster(parse(cluster.address))
    found: Read = []
    try:
        async for page in span_pages(
            client, client.log("log"), span, consistency="linearizable", timeout=5.0
        ):
            found.append(page)
            if len(found) in split_after:
                cluster.split(split_after[len(found)])
        return found
    finally:
        await client.close()


def rows(pages: Read) -> list[tuple[int, bytes]]:
    return [
        (seq, page.body["keys"] if type(page.body["keys"]) is bytes else page.body["keys"][at])
        for page in pages
        for at, seq in enumerate(page.body["seqs"])
    ]


def check_settled(pages: Read, expected: list[tuple[int, bytes]]) -> None:
    """What a page says is complete is: nothing below comes later."""
    for at, page in enumerate(pages):
        assert not [row for row in rows(pages[at + 1 :]) if row[0] < page.settled]
        assert {row for row in expected if row[0] < page.settled} <= set(rows(pages[: at + 1]))


def test_all_of_a_span_is_read_once_through_splits() -> None:
    async def main(seed: int) -> None:
        rng = random.Random(seed)
        async with fake_cluster() as cluster:
            entries = filled(cluster)
            low, high = sorted(rng.sample(range(1, 42), 2))
            span = Span(b"k1", b"k8", low, high)
            splits = {rng.randrange(1, 6): b"k%d" % rng.randrange(1, 9) for _ in range(2)}
            expected = [
                (seq, key) for seq, key in entries if low <= seq < high and b"k1" <= key < b"k8"
            ]
            pages = await read(cluster, span, splits)
            assert sorted(rows(pages)) == expected, f"seed={seed}"
            check_settled(pages, expected)
            if not cluster.ranges[1:]:
                assert rows(pages) == expected

    for seed in range(30):
        asyncio.run(main(seed))


def test_pages_end_below_the_last_seq() -> None:
    async def main() -> None:
        async with fake_cluster() as cluster:
            entries = filled(cluster)
            pages = await read(cluster, Span(b"", None, 5, 12), {})
            assert rows(pages) == entries[4:11]
            assert [body["limit"] for _, op, body in cluster.requests if op == wire.READ_SPAN] == [
                7, 4, 1,
            ]  # fmt: skip
            assert await read(cluster, Span(b"", None, 5, 5), {}) == []

    asyncio.run(main())


def test_a_page_with_more_than_was_asked_for_is_cut_in_all_its_columns() -> None:
    async def main() -> None:
        async with fake_cluster() as cluster:
            filled(cluster)
            cluster.ranges[0].entries[5].headers = {b"h": b"v"}
            cluster.ranges[0].entries[5].snapshot = True
            pages = await read(cluster, Span(b"", None, 4, 6), {})
            assert [page.body["seqs"] for page in pages] == [[4, 5]]
            (page,) = pages
            assert [len(page.body[name]) for name in ("keys", "timestamps", "values")] == [2, 2, 2]
            assert page.body["headers"] is page.body["snapshots"] is None

    asyncio.run(main())


def test_a_lease_that_has_ended_is_said_to_have() -> None:
    async def main() -> None:
        async with fake_cluster() as cluster:
            filled(cluster)
            with pytest.raises(NotFound, match="lease of this snapshot of log 'log' has ended"):
                await read(cluster, Span(b"", None, 1, 9, "gone"), {})

    asyncio.run(main())


def test_a_page_that_ends_before_it_begins_is_refused() -> None:
    async def main() -> None:
        async with fake_cluster() as cluster:
            filled(cluster)
            node = cluster.nodes[cluster.ranges[0].leader]
            serve = node.read
            node.read = lambda *asked: {**serve(*asked), "end_key": b"a"}
            with pytest.raises(RemoteProtocolError):
                await read(cluster, Span(b"k1", None, 1, 9), {})

    asyncio.run(main())
