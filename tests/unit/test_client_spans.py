"""The client of a token that may not use every key: nodes tell it of its own keys alone."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from fake_cluster import FakeCluster, fake_cluster

import lognode
from lognode.client.protocol.appends import APPEND, FENCE
from lognode.client.protocol.cluster import METADATA
from lognode.client.protocol.errors import PartialFailure, Unauthorized
from lognode.client.protocol.key_spans import KeySpans, prefix_span
from lognode.client.protocol.reads import FOLLOW, RESOLVE
from lognode.client.protocol.types import FollowStart

SPLITS = (b"c", b"h", b"m", b"u5", b"x")
OWN = KeySpans([prefix_span(b"d"), prefix_span(b"u")])


def run(test: Callable[[FakeCluster, lognode.AsyncClient], Awaitable[None]]) -> None:
    async def main() -> None:
        async with fake_cluster(3) as cluster:
            cluster.create("log", SPLITS)
            cluster.spans = OWN
            async with lognode.AsyncClient(cluster.address, timeout=5) as client:
                async with asyncio.timeout(20):
                    await test(cluster, client)

    asyncio.run(main())


async def refused(call: Awaitable[Any]) -> None:
    with pytest.raises(Unauthorized, match="outside of the keys that the token allows"):
        await call


async def listed(source: Any) -> list[Any]:
    return [each async for each in source]


def test_own_keys_are_appended_and_read_over_the_ranges_that_have_them() -> None:
    async def test(cluster: FakeCluster, client: lognode.AsyncClient) -> None:
        log = client.log("log")
        keys = [b"d1", b"u1", b"u4", b"u5", b"u9"]
        await log.append_many([(key, b"v") for key in keys])
        assert sorted(entry.key for entry in cluster.entries()) == keys
        assert [len(await listed(log.scan(key))) for key in keys] == [1] * 5
        of_u = [key for batch in await listed(log.scan_columns(prefix="u")) for key in batch.keys]
        assert sorted(of_u) == keys[1:]
        assert await listed(log.keys(prefix="u")) == keys[1:]
        assert await listed(log.keys(prefix="d")) == keys[:1]
        assert await listed(log.keys(prefix="d", start_after="z")) == []
        ranges = (await log.describe())["ranges"]
        assert [(row["start"], row["end"]) for row in ranges] == [
            (b"d", b"e"), (b"u", b"u5"), (b"u5", b"v"),
        ]  # fmt: skip

    run(test)


@pytest.mark.parametrize("key", [b"a", b"c", b"e", b"t", b"v", b"z"])
def test_a_key_of_no_known_range_is_refused_without_a_node(key: bytes) -> None:
    async def test(cluster: FakeCluster, client: lognode.AsyncClient) -> None:
        log = client.log("log")
        await log.append(b"u1", b"v")
        before = cluster.count(APPEND)
        await refused(log.append(key, b"v"))
        await refused(log.append_batch([(b"u1", b"w"), (key, b"w")]))
        await refused(listed(log.scan(key)))
        await refused(log.count(key))
        await refused(listed(log.keys(prefix=key)))
        await refused(log.follow(prefix=key).open())
        await refused(log.follow(keys=[b"u1", key]).open())
        assert cluster.count(APPEND) == before
        with pytest.raises(PartialFailure, match="outside of the keys"):
            await log.append_many([(b"u1", b"w"), (key, b"w")])
        assert [entry.key for entry in cluster.entries()] == [b"u1", b"u1"]

    run(test)


def test_requests_about_the_whole_log_are_refused() -> None:
    async def test(cluster: FakeCluster, client: lognode.AsyncClient) -> None:
        log = client.log("log")
        await refused(listed(log.keys()))
        await refused(listed(log.scan_columns()))
        await refused(log.follow().open())
        await refused(log.snapshot())

    run(test)


def test_a_hole_among_own_keys_is_waited_for() -> None:
    """The key is the client's: its range is about to come."""

    async def test(cluster: FakeCluster, client: lognode.AsyncClient) -> None:
        (gone,) = [known for known in cluster.ranges if known.contains(b"u7")]
        cluster.ranges.remove(gone)
        adding = asyncio.create_task(client.log("log").append(b"u7", b"v"))
        while cluster.count(METADATA) < 3:  # noqa: ASYNC110  the node tells of no requests
            await asyncio.sleep(0.01)
        assert not adding.done()
        cluster.ranges.append(gone)
        await adding

    run(test)


def test_a_client_that_may_use_more_keys_now_finds_them() -> None:
    """Rights of a certificate change while the client lives."""

    async def test(cluster: FakeCluster, client: lognode.AsyncClient) -> None:
        log = client.log("log")
        await log.append(b"u1", b"v")
        await refused(log.append(b"t", b"v"))
        cluster.spans = KeySpans([prefix_span(b"d"), (b"s", b"v")])
        await log.append(b"t", b"v")
        cluster.spans = None
        assert await listed(log.keys()) == [b"t", b"u1"]
        assert len((await log.describe())["ranges"]) == 6

    run(test)


def test_a_named_producer_fences_the_ranges_of_its_keys() -> None:
    async def test(cluster: FakeCluster, client: lognode.AsyncClient) -> None:
        async with client.log("log").producer(name="p") as producer:
            await producer.submit(b"u1", b"v", number=1)
        ids = {body["range"] for _, asked, body in cluster.requests if asked is FENCE}
        assert ids == {
            known.range_id for known in cluster.ranges if known.start in (b"c", b"m", b"u5")
        }

    run(test)


@pytest.mark.parametrize("start", ["earliest", "latest"])
@pytest.mark.parametrize("keys", [None, [b"u1", b"u5"]])
def test_a_follow_of_own_keys_goes_on_over_a_split(
    start: FollowStart, keys: list[bytes] | None
) -> None:
    """Also where the range is split at a key that the client may not know."""

    async def test(cluster: FakeCluster, client: lognode.AsyncClient) -> None:
        log = client.log("log")
        await log.append(b"u1", b"0")
        prefix = "u" if keys is None else None
        async with log.follow(prefix=prefix, keys=keys, start=start) as feed:
            entries = feed.entries()
            expected = [] if start == "latest" else [b"0"]
            for number, at in enumerate((b"p", b"u3", b"w"), 1):
                await log.append(b"u1", b"%d" % number)
                await log.append(b"u5", b"%d" % number)
                cluster.split(at)
                expected += [b"%d" % number] * 2
            found = sorted([(await anext(entries)).value for _ in expected])
            assert found == sorted(expected)
        for _, asked, body in cluster.requests:
            if asked in (FOLLOW, RESOLVE) and body.get("keys") is None and body.get("key") is None:
                assert OWN.covers(body["start_key"], body["end_key"])

    run(test)
