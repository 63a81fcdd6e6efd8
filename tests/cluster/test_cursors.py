"""Cursors that the ranges keep: readers and leaders are killed, ranges split and merge."""

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from feature_level import raise_level

import lognode
from lognode import testing
from lognode.client.protocol.errors import Fenced, NotFound
from lognode.testing import LocalCluster

pytestmark = pytest.mark.cluster

ENTRIES = 300
KEYS = [b"a", b"m-1", b"z"]


@pytest.fixture
def client(three: LocalCluster) -> Iterator[lognode.Client]:
    with lognode.Client(three.servers, timeout=60) as found:
        for name in ("orders", "moves"):
            found.create_log(name, exist_ok=True, split_at=[b"m"])
        testing.wait_healthy(three)
        yield found


def append(client: lognode.Client, log: str, first: int) -> None:
    """Append numbers, each to one of the keys."""
    records = [(KEYS[n % len(KEYS)], b"%d" % n) for n in range(first, first + ENTRIES)]
    client.log(log).append_many(records)


def follower(cluster: LocalCluster, out: Path) -> subprocess.Popen[bytes]:
    """A process that prints the log from the cursor on, and commits what it has printed."""
    arguments = ["follow", "orders", "--cursor", "billing", "--from", "earliest"]
    command = [sys.executable, "-m", "lognode.node.main", *arguments, "--format", "jsonl"]
    with out.open("wb") as file:
        return subprocess.Popen([*command, "--server", cluster.servers], stdout=file)


def printed(path: Path) -> list[tuple[bytes, int, int]]:
    """The key, seq and number of each whole line."""
    lines = path.read_bytes().split(b"\n")[:-1]
    rows = map(json.loads, lines)
    return [(row["key"].encode(), row["seq"], int(row["value"])) for row in rows]


def test_G3_a_killed_reader_goes_on_at_its_cursor_also_without_the_leader(
    three: LocalCluster, client: lognode.Client, tmp_path: Path
) -> None:
    raise_level(client)
    outs = [tmp_path / "first", tmp_path / "second"]
    append(client, "orders", 0)
    reader = follower(three, outs[0])
    testing.eventually(lambda: bool(printed(outs[0])), timeout_s=60, what="entries are printed")
    append(client, "orders", ENTRIES)
    reader.kill()
    reader.wait()
    cursor = client.log("orders").cursor("billing")
    kept = cursor.position()
    leader = testing.leader_of(client, "orders")
    three.nodes[leader - 1].kill()
    append(client, "orders", 2 * ENTRIES)
    reader = follower(three, outs[1])
    try:
        last = 3 * ENTRIES

        def complete() -> bool:
            found = {number for out in outs for _, _, number in printed(out)}
            return found == set(range(last))

        testing.eventually(complete, timeout_s=120, what="no entry is skipped")
        for key, seq, _ in printed(outs[1]):  # nothing that was committed comes again
            (next_,) = (n for start, end, n in kept.spans
                        if start <= key and (end is None or key < end))  # fmt: skip
            assert seq >= next_
    finally:
        reader.kill()
        reader.wait()
        three.nodes[leader - 1].start()
        three.nodes[leader - 1].wait_ready()


def test_G3_a_cursor_follows_its_keys_and_an_older_reader_is_fenced(
    three: LocalCluster, client: lognode.Client
) -> None:
    raise_level(client)
    append(client, "moves", 0)

    async def run() -> None:
        async with lognode.AsyncClient(three.servers, timeout=60) as own:
            log = own.log("moves")
            async with log.follow(cursor="moved", start="earliest") as older:
                got = 0
                async for batch in older:
                    got += len(batch)
                    if got >= ENTRIES:
                        break
                await older.commit()
                kept = await log.cursor("moved").position()
                await own.admin.split("moves", at=b"f")
                await own.admin.merge("moves", at=b"m")
                assert positions(await log.cursor("moved").position()) == positions(kept)
                async with log.follow(cursor="moved", start="earliest") as newer:
                    await log.append(b"a", b"new")
                    batch = await anext(newer)
                    while not batch.entries:
                        batch = await anext(newer)
                    assert [entry.value for entry in batch] == [b"new"]
                    with pytest.raises(Fenced, match="another reader has opened"):
                        await commit_more(older, log)
                    await newer.commit(batch)
            names = {info.name for info in await log.cursors()}
            assert "moved" in names
            await log.cursor("moved").set("earliest")
            assert set(positions(await log.cursor("moved").position()).values()) == {1}
            await log.cursor("moved").delete()
            with pytest.raises(NotFound):
                await log.cursor("moved").position()

    asyncio.run(run())


def test_G3_a_follow_of_patterns_goes_on_at_its_cursor(
    three: LocalCluster, client: lognode.Client
) -> None:
    raise_level(client)
    log = client.create_log("shop", hierarchy="/", split_at=[b"m"])
    given = ["eu/*/orders", "us/1*/>", "!us/12/>"]
    match = [b"eu/1/orders", b"eu/2/orders", b"us/1/x", b"us/13/x"]
    others = [b"eu/1/seen", b"us/12/x", b"ap/1/orders", b"us/2/x"]

    def appended(name: bytes, keys: list[bytes]) -> set[tuple[bytes, bytes | None]]:
        log.append_many([(key, name) for key in keys])
        return {(key, name) for key in keys}

    def read(due: set[tuple[bytes, bytes | None]]) -> None:
        """Read the due entries, each once, and nothing else."""
        found: list[tuple[bytes, bytes | None]] = []
        with log.follow(pattern=given, cursor="eu", start="earliest") as feed:
            for batch in feed:
                found += [(entry.key, entry.value) for entry in batch]
                if len(found) >= len(due):
                    feed.commit(batch)
                    break
        assert sorted(found) == sorted(due)

    due = appended(b"1", match)
    appended(b"1", others)
    read(due)
    appended(b"2", others)
    due = appended(b"2", match)
    client.admin.split("shop", at=b"eu/2")
    read(due)
    # The position also passes entries that do not match, while no entry matches.
    with log.follow(pattern=given, cursor="eu", commit_every_ms=20) as feed:
        reader = threading.Thread(target=lambda: list(feed))
        reader.start()
        first = log.append_many([(others[0], b"3")] * 3_000)[0]

        def has_passed() -> bool:
            spans = log.cursor("eu", pattern=given).position().spans
            (next_,) = (n for start, end, n in spans
                        if start <= others[0] and (end is None or others[0] < end))  # fmt: skip
            return next_ > (first.seq or 0)

        testing.eventually(has_passed, timeout_s=30, what="the cursor passes what does not match")
        feed.close()
        reader.join()
    read(appended(b"4", match))


async def commit_more(older: lognode.AsyncFeed, log: lognode.AsyncLog) -> None:
    """Commit by the older reader, which has got another entry."""
    await log.append(b"z", b"more")
    batch = await anext(older)
    while not batch.entries:
        batch = await anext(older)
    await older.commit(batch)


def positions(found: lognode.Cursor) -> dict[bytes, int]:
    """The position of each key."""
    return {
        key: next_
        for key in KEYS
        for start, end, next_ in found.spans
        if start <= key and (end is None or key < end)
    }
