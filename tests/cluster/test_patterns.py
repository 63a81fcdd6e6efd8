"""Reads with patterns of three real nodes, before and after a split of the range."""

import asyncio
import random
from collections.abc import Iterator
from typing import Final

import pytest
from cluster_ranges import ranges_of

import lognode
from lognode import testing
from lognode.client.protocol.errors import Conflict, InvalidArgument, LimitExceeded
from lognode.client.protocol.patterns import patterns_of
from lognode.client.protocol.reads import EXPORT, FOLLOW, KEYS

pytestmark = pytest.mark.cluster

LISTS: Final = (
    ["eu/*/orders/>"], ["us/1*/>", "eu/2/*"], ["!eu/>"], ["*/3/>", "!us/>"], ["absent/>"],
)  # fmt: skip
AREAS: Final = ("ap", "eu", "us")


@pytest.fixture
def client(three: testing.LocalCluster) -> Iterator[lognode.Client]:
    with lognode.Client(three.servers, timeout=60) as found:
        yield found


def check_reads(log: lognode.Log, keys: list[bytes]) -> None:
    """Compare each read with what the patterns choose among all keys."""
    snapshot = log.snapshot()
    for given in LISTS:
        due = patterns_of(b"/", given).matching(sorted(keys))
        assert list(log.keys(pattern=given)) == due
        assert list(log.keys(pattern=given, limit=2)) == due[:2]
        assert sorted(entry.key for entry in snapshot.read(pattern=given)) == due
        columns = log.scan_columns(pattern=given)
        assert sorted(entry.key for batch in columns for entry in batch.entries()) == due
        assert sorted(followed(log, given)) == due
    snapshot.release()


def followed(log: lognode.Log, given: list[str]) -> list[bytes]:
    """Return the keys of a follow from the beginning, up to the first moment without a rest."""
    found: list[bytes] = []
    with log.follow(pattern=given, start="earliest") as feed:
        for batch in feed:
            found += [entry.key for entry in batch]
            if batch.caught_up:
                return found
    raise AssertionError("the feed ended")


def test_reads_with_patterns_show_the_keys_that_match(
    three: testing.LocalCluster, client: lognode.Client
) -> None:
    log = client.create_log("shop", hierarchy="/", replicas=3)
    assert log.describe()["hierarchy"] == b"/"
    assert [each["hierarchy"] for each in client.logs() if each["name"] == "shop"] == [b"/"]
    with pytest.raises(Conflict, match="a hierarchy never changes"):
        client.create_log("shop", hierarchy=".", exist_ok=True)
    keys = [
        f"{area}/{customer}/{kind}/{number}".encode()
        for area in AREAS for customer in range(12) for kind in ("orders", "seen")
        for number in range(3)
    ] + [b"eu/2/x", b"eu/2", b"plain"]  # fmt: skip
    random.Random(7).shuffle(keys)
    log.append_many([(key, b"value of " + key) for key in keys])
    check_reads(log, keys)
    asyncio.run(ask_by_hand(three.servers))
    with log.follow(pattern="eu/*/new", start="latest") as feed:
        client.admin.split("shop", at=b"eu/2")
        assert len(ranges_of(client, "shop")) == 2
        log.append_many([(b"us/%d" % number, b"") for number in range(3_000)])
        log.append("eu/1/new", b"1")
        log.append("eu/5/new", b"2")
        found: list[bytes] = []
        for batch in feed:
            found += [entry.key for entry in batch]
            if len(found) == 2:
                break
        assert sorted(found) == [b"eu/1/new", b"eu/5/new"]
    asyncio.run(follow_nothing(three.servers))
    more = [b"us/%d" % number for number in range(3_000)]
    check_reads(log, [*keys, *more, b"eu/1/new", b"eu/5/new"])


async def ask_by_hand(servers: str) -> None:
    """Check that nodes choose keys themselves, and refuse patterns that the client never sends."""
    async with lognode.AsyncClient(servers, timeout=60) as client:
        log = client.log("shop")
        cluster, routes = log._cluster, log._routes
        deadline = cluster.now() + 60
        for operation in (KEYS, EXPORT):
            body = {"prefix": b"eu/", "patterns": [b"/", [b"eu/*/orders/>"]]}
            answer, known = await cluster.call(routes, b"eu/", operation, body, deadline=deadline)
            assert answer["matched"]
            for wrong, error in (
                ([b"/", [b"a*b"]], InvalidArgument), ([b"*", [b"a"]], InvalidArgument),
                ([b"/", [b"/".join([b"*"] * 17)]], LimitExceeded),
                ([b"/", [b"a" * 600, b"b" * 600]], LimitExceeded),
            ):  # fmt: skip
                body = {"patterns": wrong}
                with pytest.raises(error):
                    await cluster.call(routes, b"eu/", operation, body, deadline=deadline)
        stream = await cluster.stream(
            known, FOLLOW, {"patterns": [b"/", [b">>"]]}, deadline, node=cluster.target(known),
            credit_bytes=1 << 20,
        )  # fmt: skip
        with pytest.raises(InvalidArgument):
            await anext(aiter(stream))


async def follow_nothing(servers: str) -> None:
    """Check that the position of a follow moves on where no entry of thousands matches."""
    async with lognode.AsyncClient(servers, timeout=60) as client:
        log = client.log("shop")
        cluster, routes = log._cluster, log._routes
        deadline = cluster.now() + 60
        known = await cluster.locate(routes, b"us/", deadline)
        stream = await cluster.stream(
            known, FOLLOW, {"patterns": [b"/", [b"absent/>"]]}, deadline,
            node=cluster.target(known), credit_bytes=1 << 20,
        )  # fmt: skip
        reached = [1]
        async for push in stream:
            assert (push["page"]["seqs"], push["matched"]) == ([], True)
            reached.append(push["next"])
            if push["caught_up"]:
                break
        stream.cancel()
    assert reached[-1] > 3_000
    assert len(reached) > 2, "the position moves before the follow has caught up"
