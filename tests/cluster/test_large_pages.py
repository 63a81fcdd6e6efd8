"""Entries of the largest and of the smallest size are read by everything that reads a log.

A page has as many entries as its bytes allow, so that no answer exceeds a frame. Before this rule
twelve values of 1 MiB in one range could never be read again by a snapshot or by Spark.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from live_nodes import LiveCluster, live

import lognode
from lognode.client.cluster import Cluster
from lognode.client.pages import entries_of
from lognode.client.protocol import chunks, limits
from lognode.client.protocol.address import parse
from lognode.client.span_pages import Span, span_pages

pytestmark = pytest.mark.cluster

Record = tuple[bytes, bytes | None, dict[bytes, bytes] | None]
Row = tuple[bytes, int, bytes | None]
_KEY = limits.key_bytes_max
_HEADERS = {b"%02d" % at: bytes(limits.header_bytes_max // 32 - 2) for at in range(32)}


def twelve_values() -> list[Record]:
    """Twelve values of 1 MiB, of twelve keys."""
    return [(b"k%02d" % at, bytes([at]) * limits.value_bytes_max, None) for at in range(12)]


def twelve_versions() -> list[Record]:
    """Twelve of the largest entries, of one of the longest keys."""
    value = bytes(limits.value_bytes_max)
    return [(b"h" * _KEY, bytes([at]) + value[1:], _HEADERS) for at in range(12)]


def long_keys() -> list[Record]:
    """21,000 of the longest keys, each with an empty value."""
    return [(b"%06d" % at + bytes(_KEY - 6), b"", None) for at in range(21_000)]


def large_headers() -> list[Record]:
    """6,000 entries of two keys that have hardly anything but headers of 4 KiB."""
    return [(b"%d" % (at % 2), None, _HEADERS) for at in range(6_000)]


def hot_key() -> list[Record]:
    """21,000 empty values of one key."""
    return [(b"hot", b"", None)] * 21_000


SCANS_MAX = 500
"""A scan reads one key, so that scans of 21,000 keys would take minutes."""
SHAPES = (twelve_values, twelve_versions, long_keys, large_headers, hot_key)


async def by_scan(log: lognode.AsyncLog, *, reverse: bool = False, each: int = 1) -> list[Row]:
    """Key by key, with `scan`: the first of every `each` keys."""
    found: list[Row] = []
    at = 0
    async for key in log.keys():
        at += 1
        if (at - 1) % each:
            continue
        own = [(e.key, e.seq, e.value) async for e in log.scan(key, reverse=reverse)]
        found += reversed(own) if reverse else own
    return found


async def by_latest(log: lognode.AsyncLog) -> list[Row]:
    """The last entry of each of some keys."""
    found: list[Row] = []
    async for key in log.keys(limit=20):
        entry = await log.latest(key)
        assert entry is not None
        found.append((entry.key, entry.seq, entry.value))
    return found


async def by_snapshot(log: lognode.AsyncLog) -> list[Row]:
    """With `snapshot().read()`."""
    snapshot = await log.snapshot()
    found = sorted([(e.key, e.seq, e.value) async for e in snapshot.read()])
    await snapshot.release()
    return found


async def by_follow(log: lognode.AsyncLog, count: int, keys: list[bytes] | None) -> list[Row]:
    """With `follow`, of the log or of some keys."""
    found: list[Row] = []
    async with log.follow(keys=keys, start="earliest") as feed:
        async for batch in feed:
            found += [(e.key, e.seq, e.value) for e in batch]
            if len(found) >= count:
                break
    return sorted(found)


async def by_export(address: str, log: str) -> list[Row]:
    """As tasks of Spark read it."""
    cluster = Cluster(parse(address))
    found: list[Row] = []
    span = Span(b"", None, 1, 1 << 62)
    async with contextlib.aclosing(
        span_pages(cluster, cluster.log(log), span, consistency="linearizable", timeout=30.0)
    ) as pages:
        async for page in pages:
            for chunk in page.chunks:
                columns = chunks.unpacked({"chunks": [[*chunk]]})
                found += [(e.key, e.seq, e.value) for e in entries_of(columns)]
    await cluster.close()
    return sorted(found)


async def check(cluster: LiveCluster, log: lognode.AsyncLog, appended: list[Record]) -> None:
    """Each way to read the log has all that was appended."""
    expected = await by_snapshot(log)
    assert sorted((key, value or b"") for key, _, value in expected) == sorted(
        (key, value or b"") for key, value, _ in appended
    )
    keys = sorted({key for key, _, _ in expected})
    each = -(-len(keys) // SCANS_MAX)
    read = {*keys[::each]}
    scanned = [row for row in expected if row[0] in read]
    assert await by_scan(log, each=each) == scanned
    assert await by_scan(log, reverse=True, each=each) == scanned
    assert await by_export(cluster.address, log.name) == expected
    assert await by_follow(log, len(expected), None) == expected
    some = keys[:300]
    wanted = {*some}
    own = [row for row in expected if row[0] in wanted]
    assert await by_follow(log, len(own), some) == own
    last = {key: seq for key, seq, _ in expected}
    for key, seq, _ in await by_latest(log):
        assert seq == last[key]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_every_way_to_read_has_all_entries_whatever_their_size(tmp_path: Path, shape) -> None:  # type: ignore[no-untyped-def]
    async def run() -> None:
        async with live(tmp_path) as cluster, client_of(cluster) as client:
            log = await client.create_log("large")
            appended = shape()
            await log.append_many(appended)
            await check(cluster, log, appended)
            (node,) = cluster.nodes
            for replica in node.host.ranges():
                await node.node._flusher.flush(replica)
                assert replica.state.manifest
            await check(cluster, log, appended)
            more = appended[:6]
            await log.append_many(more)
            await check(cluster, log, [*appended, *more])

    asyncio.run(run())


def test_a_follow_of_more_keys_than_a_request_may_have_has_all_of_them(tmp_path: Path) -> None:
    """A frame has maps of 131,072 elements at most: a request with more ended the connection, and
    was sent again for ever."""

    async def run() -> None:
        async with live(tmp_path) as cluster, client_of(cluster) as client:
            log = await client.create_log("wide")
            keys = [b"%d" % at for at in range(140_000)]
            await log.append_many([(key, b"") for key in keys])
            found = await asyncio.wait_for(by_follow(log, len(keys), keys), 120)
            assert [key for key, _, _ in found] == sorted(keys)

    asyncio.run(run())


@contextlib.asynccontextmanager
async def client_of(cluster: LiveCluster) -> AsyncIterator[lognode.AsyncClient]:
    """With room for a slow machine."""
    async with lognode.AsyncClient(cluster.address, timeout=30.0) as client:
        yield client
