"""Thousands of follows of one key each share streams; each still gets its key's entries once."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from fake_cluster import Drop, FakeCluster, FakeNode, fake_cluster

from lognode import AsyncClient, AsyncFeed, Entry, LognodeError, Unauthorized
from lognode.client import follow, follow_queue, follow_shared
from lognode.client.accepting.request import Request
from lognode.client.follow_span import FollowSpan
from lognode.client.protocol.reads import FOLLOW

KEYS = [b"%04d" % n for n in range(200)]


@pytest.fixture(autouse=True)
def _all_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "shared_from", 0)


@asynccontextmanager
async def opened(
    keys: list[bytes] = KEYS, *, split_at: tuple[bytes, ...] = ()
) -> AsyncIterator[tuple[FakeCluster, AsyncClient, list[AsyncFeed]]]:
    async with fake_cluster() as cluster, AsyncClient(cluster.address, timeout=10) as client:
        cluster.create("events", split_at)
        log = client.log("events")
        feeds = [log.follow(keys=[key], start=1) for key in keys]
        await asyncio.gather(*[feed.open() for feed in feeds])
        try:
            yield cluster, client, feeds
        finally:
            await asyncio.gather(*[feed.close() for feed in feeds])
            shared = client.log("events")._routes.shared_follows
            assert shared is not None
            assert shared.follows == 0
            assert not shared._waiting
            assert not shared._groups
            assert not shared._group_of


async def take(feed: AsyncFeed, count: int) -> list[bytes]:
    values: list[bytes] = []
    async with asyncio.timeout(20):
        while len(values) < count:
            values += [entry.value or b"" for entry in await anext(feed)]
    return values


def test_P4_follows_of_one_key_share_a_few_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow_shared, "groups_max", 2)

    async def run() -> None:
        async with opened(split_at=(b"0100",)) as (cluster, client, feeds):
            log = client.log("events")
            for n in range(5):
                await log.append_many([(key, b"%d" % n) for key in KEYS])
                for feed in feeds:
                    assert await take(feed, 1) == [b"%d" % n]
            assert cluster.count(FOLLOW) <= 16

    asyncio.run(run())


@pytest.mark.parametrize("seed", range(8))
def test_S4_S5_no_entry_is_skipped_or_repeated_through_changes(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Leaders move, ranges split, connections break, and follows come, go and stand still."""
    monkeypatch.setattr(follow_shared, "groups_max", 2 if seed % 2 else 192)

    async def run() -> None:
        rng = random.Random(seed)
        keys = KEYS[:60]
        expected: dict[bytes, list[bytes]] = {key: [] for key in keys}
        got: dict[bytes, list[bytes]] = {key: [] for key in keys}
        async with opened(keys, split_at=(b"0030",)) as (cluster, client, feeds):
            log = client.log("events")

            async def read(key: bytes, feed: AsyncFeed) -> None:
                while True:
                    if rng.random() < 0.1:
                        await asyncio.sleep(rng.random() * 0.05)
                    if rng.random() < 0.02:
                        cursor = feed.cursor
                        await feed.close()
                        feed = log.follow(keys=[key], start=cursor)
                        await feed.open()
                        feeds.append(feed)
                    got[key] += [entry.value or b"" for entry in await anext(feed)]

            readers = [asyncio.create_task(read(key, feed))
                       for key, feed in zip(keys, list(feeds), strict=True)]  # fmt: skip
            for n in range(150):
                some = rng.sample(keys, rng.randrange(1, 12))
                await log.append_many([(key, b"%d" % n) for key in some])
                for key in some:
                    expected[key].append(b"%d" % n)
                await asyncio.sleep(rng.random() * 0.004)
                if rng.random() < 0.05:
                    cluster.lead(rng.choice(cluster.ranges), rng.choice(list(cluster.nodes)))
                if rng.random() < 0.04:
                    _drop_next_follow(cluster)
                if rng.random() < 0.02:
                    at = rng.choice(keys)
                    if cluster.range_of(at).start != at:
                        cluster.split(at)
            async with asyncio.timeout(30):
                while got != expected:
                    await asyncio.sleep(0.02)
                    done = [reader for reader in readers if reader.done()]
                    assert not done, done
            for reader in readers:
                reader.cancel()
            await asyncio.gather(*readers, return_exceptions=True)

    asyncio.run(run())


def _drop_next_follow(cluster: FakeCluster) -> None:
    def fault(node: FakeNode, request: Request, when: str) -> None:
        if request.operation == FOLLOW:
            cluster.faults.remove(fault)
            raise Drop

    cluster.faults.append(fault)


def test_L3_a_caller_that_stands_still_slows_no_other_and_misses_nothing() -> None:
    async def run() -> None:
        async with opened(KEYS[:40]) as (_, client, feeds):
            log = client.log("events")
            for n in range(60):
                await log.append_many([(key, b"%d" % n) for key in KEYS[:40]])
                for feed in feeds[1:]:
                    assert await take(feed, 1) == [b"%d" % n]
            assert feeds[0]._queue.qsize() <= follow_queue.queued_pushes_max
            assert await take(feeds[0], 60) == [b"%d" % n for n in range(60)]

    asyncio.run(run())


def test_a_key_that_a_node_refuses_ends_only_its_own_follow() -> None:
    async def run() -> None:
        async with opened(KEYS[:30]) as (cluster, client, feeds):
            await take_nothing(feeds)

            def fault(node: FakeNode, request: Request, when: str) -> None:
                if request.operation == FOLLOW and KEYS[7] in (request.body["keys"] or {}):
                    raise Unauthorized("not this key")

            cluster.faults.append(fault)
            cluster.lead(cluster.ranges[0], cluster.ranges[0].leader % 3 + 1)  # all ask again
            log = client.log("events")
            await log.append_many([(key, b"x") for key in KEYS[:30]])
            for at, feed in enumerate(feeds):
                if at == 7:
                    with pytest.raises(Unauthorized):
                        await take(feed, 1)
                else:
                    assert await take(feed, 1) == [b"x"]
                    assert feed._shared, "the other follows have no streams of their own"

    asyncio.run(run())


async def take_nothing(feeds: list[AsyncFeed]) -> None:
    """Wait until every feed was told that it has caught up."""
    async with asyncio.timeout(20):
        for feed in feeds:
            batch = await anext(feed)
            assert batch.caught_up
            assert not len(batch)


def test_a_lost_node_is_told_and_found_again() -> None:
    async def run() -> None:
        async with opened(KEYS[:10]) as (cluster, client, feeds):
            await take_nothing(feeds)
            leader = cluster.nodes[cluster.ranges[0].leader]
            await leader.stop()
            for feed in feeds:
                async with asyncio.timeout(20):
                    assert not (await anext(feed)).caught_up
            cluster.lead(cluster.ranges[0], cluster.ranges[0].leader % 3 + 1)
            await client.log("events").append(KEYS[3], b"x")
            assert await take(feeds[3], 1) == [b"x"]

    asyncio.run(run())


def test_further_entries_of_one_key_wake_no_other_caller() -> None:
    """A page that is not the last has entries for one of thousands of keys: the others' callers are
    not woken."""

    async def run() -> None:
        async with opened(KEYS[:30]) as (_, client, feeds):
            await take_nothing(feeds)
            log = client.log("events")
            for n in range(3):
                await log.append_many([(KEYS[0], b"%d" % at) for at in range(9)])
                await take(feeds[0], 9)
                assert [feed._queue.qsize() for feed in feeds[1:]] == [0] * 29, n

    asyncio.run(run())


def test_two_follows_of_one_key_have_their_own_positions() -> None:
    async def run() -> None:
        async with opened([KEYS[0]]) as (_, client, feeds):
            log = client.log("events")
            for n in range(4):
                await log.append(KEYS[0], b"%d" % n)
            assert await take(feeds[0], 4) == [b"0", b"1", b"2", b"3"]
            async with (
                log.follow(keys=[KEYS[0]], start=feeds[0].cursor) as late,
                log.follow(keys=[KEYS[0]], start=1) as early,
            ):
                await log.append(KEYS[0], b"4")
                assert await take(late, 1) == [b"4"]
                assert await take(early, 5) == [b"0", b"1", b"2", b"3", b"4"]
            assert await take(feeds[0], 1) == [b"4"]

    asyncio.run(run())


def test_follows_end_when_their_client_is_closed() -> None:
    async def run() -> None:
        async with fake_cluster() as cluster:
            cluster.create("events")
            client = AsyncClient(cluster.address, timeout=10)
            feeds = [client.log("events").follow(keys=[key], start=1) for key in KEYS[:20]]
            for feed in feeds:
                await feed.open()
            await take_nothing(feeds)
            await client.close()

            for feed in feeds:
                with pytest.raises(LognodeError):
                    await take(feed, 1)
            await asyncio.gather(*[feed.close() for feed in feeds])

    asyncio.run(run())


def test_few_follows_have_streams_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "shared_from", 5)

    async def run() -> None:
        async with opened(KEYS[:8]) as (cluster, client, feeds):
            await take_nothing(feeds)
            assert [bool(feed._shared) for feed in feeds] == [False] * 5 + [True] * 3
            assert cluster.count(FOLLOW) >= 6
            many = client.log("events").follow(
                keys=KEYS[: follow_shared.shared_keys_max + 1], start=1
            )
            async with many:
                assert not many._shared

    asyncio.run(run())


def group_of(count: int) -> tuple[follow_shared._Group, list[tuple[FollowSpan, bool]]]:
    """Return a group of follows of one key each that were told caught up, and what they get."""
    told: list[tuple[FollowSpan, bool]] = []

    class Caller:
        def hand_over(
            self, span: FollowSpan, entries: list[Entry], *, caught_up: bool, fresh_at: float | None
        ) -> bool:
            told.append((span, caught_up))
            span.read_to(entries)
            span.told_caught_up = caught_up
            return True

        def read_alone(self, span: FollowSpan) -> None:
            raise AssertionError

    keys = [b"%06d" % n for n in range(count)]
    group = follow_shared._Group({FollowSpan(key, None, keys={key: 1}): Caller() for key in keys})
    group.deliver([], more=False, caught_up=True, fresh_at=None)
    assert len(told) == count
    told.clear()
    return group, told


async def told_to(count: int, told: list[tuple[FollowSpan, bool]]) -> None:
    async with asyncio.timeout(20):
        while len(told) < count:  # noqa: ASYNC110  each turn tells a slice
            await asyncio.sleep(0)


def test_P4_pages_followed_by_more_tell_only_the_follows_whose_entries_they_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(follow_shared, "behind_s", 0.0)

    async def run() -> None:
        group, told = group_of(1_000)
        for seq in (1, 2, 3):
            entry = Entry(b"000007", seq, 0, {}, b"x", False)
            group.deliver([entry], more=True, caught_up=False, fresh_at=None)
            await asyncio.sleep(0.01)
        group.deliver([], more=False, caught_up=True, fresh_at=None)
        span = group.by_key[b"000007"][0]
        assert told == [(span, False)] * 3 + [(span, True)]

    asyncio.run(run())


def test_S7_a_member_that_is_behind_for_long_tells_all_follows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(follow_shared, "behind_s", 0.0)

    async def run() -> None:
        group, told = group_of(1_000)
        group.deliver([], more=False, caught_up=False, fresh_at=None)
        await told_to(1_000, told)
        assert told == [(span, False) for span in group.members]

    asyncio.run(run())


def test_S7_all_follows_of_a_lost_stream_are_told_in_slices() -> None:
    async def run() -> None:
        group, told = group_of(1_000)
        group.lost()
        assert len(told) == follow_shared.told_a_turn
        await told_to(1_000, told)
        assert told == [(span, False) for span in group.members]

    asyncio.run(run())


def test_S7_a_group_that_ends_tells_the_rest_at_once() -> None:
    async def run() -> None:
        group, told = group_of(1_000)
        spans = list(group.members)
        group.lost()
        group.end()
        assert told == [(span, False) for span in spans]

    asyncio.run(run())


def test_P4_a_stream_that_is_back_spares_the_follows_that_were_not_told() -> None:
    async def run() -> None:
        group, told = group_of(1_000)
        group.lost()
        group.deliver([], more=False, caught_up=True, fresh_at=None)
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(told) == 2 * follow_shared.told_a_turn
        assert all(span.told_caught_up for span in group.members)

    asyncio.run(run())
