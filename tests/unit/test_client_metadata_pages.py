"""What the client makes of metadata that comes in pages."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from itertools import pairwise

import pytest
from fake_cluster import FakeCluster, FakeNode, fake_cluster

import lognode
from lognode.client.accepting.request import Request
from lognode.client.protocol.cluster import METADATA, RANGES
from lognode.client.routing import Range, RangeTable

SPLITS = tuple(b"%02d" % n for n in range(1, 40))


def run(test: Callable[[FakeCluster, lognode.AsyncClient], Awaitable[None]]) -> None:
    async def main() -> None:
        async with fake_cluster(3) as cluster:
            cluster.create("log", SPLITS)
            cluster.create("other")
            cluster.page_ranges = 7
            async with lognode.AsyncClient(cluster.address, timeout=5) as client:
                async with asyncio.timeout(20):
                    await test(cluster, client)

    asyncio.run(main())


def test_a_whole_log_comes_in_as_many_pages_as_it_takes() -> None:
    async def test(cluster: FakeCluster, client: lognode.AsyncClient) -> None:
        ranges = (await client.log("log").describe())["ranges"]
        assert [row["start"] for row in ranges] == [b"", *SPLITS]
        assert [row["end"] for row in ranges] == [*SPLITS, None]
        assert cluster.count(METADATA) == 6
        rows = await client.admin.ranges()
        assert [row["log"] for row in rows] == ["log"] * 40 + ["other"]
        assert len((await client.metadata())["ranges"]) == 41
        assert len(await client.admin.ranges("log")) == 40

    run(test)


def test_one_key_costs_one_page() -> None:
    async def test(cluster: FakeCluster, client: lognode.AsyncClient) -> None:
        log = client.log("log")
        assert await log.count(b"20") == 0
        assert cluster.count(METADATA) == 1
        assert await log.count(b"22x") == 0
        assert cluster.count(METADATA) == 1, "it came with the page"
        assert await log.count(b"05") == 0
        assert cluster.count(METADATA) == 2

    run(test)


def test_many_keys_at_once_ask_one_question_after_the_other() -> None:
    """A thousand reads of one page's keys are one question, as before there were pages."""

    async def test(cluster: FakeCluster, client: lognode.AsyncClient) -> None:
        log = client.log("log")
        await asyncio.gather(*(log.count(b"20%d" % n) for n in range(200)))
        assert cluster.count(METADATA) == 1
        await asyncio.gather(*(log.count(b"%02d" % n) for n in range(40)))
        assert cluster.count(METADATA) <= 1 + 6

    run(test)


def test_appends_to_a_log_of_many_pages_arrive() -> None:
    async def test(cluster: FakeCluster, client: lognode.AsyncClient) -> None:
        log = client.log("log")
        records = [(b"%02dx" % n, b"v") for n in range(40)]
        assert len(await log.append_many(records)) == 40
        assert sorted(entry.key for entry in cluster.entries()) == [key for key, _ in records]

    run(test)


def test_pages_that_do_not_fit_together_are_begun_anew() -> None:
    """Two ranges are merged where one page ends, while the pages are asked for."""
    merges = []

    async def test(cluster: FakeCluster, client: lognode.AsyncClient) -> None:
        def merge(node: FakeNode, request: Request, when: str) -> None:
            if request.body.get("start_key") == b"07" and not merges:
                left = next(r for r in cluster.ranges if r.end == b"07")
                right = next(r for r in cluster.ranges if r.start == b"07")
                cluster.ranges.remove(right)
                left.end, left.generation = right.end, left.generation + 1
                cluster.version += 1
                merges.append(1)

        cluster.faults.append(merge)
        ranges = (await client.log("log").describe())["ranges"]
        assert merges
        assert len(ranges) == 39
        at = b""
        for row in ranges:
            assert row["start"] == at
            at = row["end"]
        assert at is None

    run(test)


def test_a_table_of_4096_ranges_is_made_in_a_moment() -> None:
    """Each range was looked for among all others: 4,096 of them took seconds of the loop."""
    keys = [b"", *(b"%05d" % n for n in range(1, 4096)), None]
    news = [
        Range(n + 1, 1, 1, start or b"", end, (1, 2, 3), 1)
        for n, (start, end) in enumerate(pairwise(keys))
    ]
    table = RangeTable()
    began = time.process_time()
    for at in range(0, len(news), 500):
        table.insert_all(news[at : at + 500])
    took = time.process_time() - began
    assert table.covers()
    assert took < 0.5, f"{took:.2f} s of CPU"
    began = time.process_time()
    for known in news:
        assert not table.is_newer(known)
        table.lead(known, 2)
    assert time.process_time() - began < 0.5
    assert table.find(b"02000") == table.ranges[2000]


@pytest.mark.parametrize("gone", [False, True])
def test_the_end_of_an_operation_is_seen_without_the_other_ranges(gone: bool) -> None:
    async def test(cluster: FakeCluster, client: lognode.AsyncClient) -> None:
        (known,) = (each for each in cluster.ranges if each.start == b"20")

        async def end() -> None:
            while not known.operation:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            if gone:
                cluster.ranges.remove(known)
            else:
                known.operation, known.generation = 0, known.generation + 1
            cluster.version += 1

        ending = asyncio.ensure_future(end())
        before = cluster.count(METADATA)
        if gone:
            with pytest.raises(lognode.NotFound):
                await client.admin.split("log", at=b"20x")
        else:
            assert (await client.admin.split("log", at=b"20x"))["range"] == known.range_id
        await ending
        asked = [body for _, op, body in cluster.requests if op == RANGES]
        assert asked
        assert all(body["range"] == known.range_id for body in asked)
        assert cluster.count(METADATA) == before

    run(test)
