"""Reads with patterns: nodes of an earlier version, chunks, pages, and logs with a hierarchy."""

import random
from typing import Final

import pytest
from fake_cluster import FakeCluster
from sdk_runs import run_async

from lognode import AsyncClient, AsyncLog, Entry
from lognode.client.protocol.chunks import Chunk, matching
from lognode.client.protocol.errors import Conflict, InvalidArgument, Unsupported, from_wire
from lognode.client.protocol.levels import HIERARCHIES_FROM, LEVEL_MAX
from lognode.client.protocol.patterns import patterns_of
from lognode.partitions import commands, received_rows
from lognode.partitions.levels import check_hierarchy
from lognode.partitions.metadata import Metadata
from lognode.partitions.model import LogRecord
from lognode.statemachine.block_slices import Portion
from lognode.statemachine.page import Page

KEYS: Final = (
    b"eu/1/orders/7",
    b"eu/1/seen",
    b"eu/2/orders/8",
    b"eu/3",
    b"us/1/orders/9",
    b"x",
    b"zz/1",
)
PATTERN: Final = ("eu/*/orders/>", "us/>", "!*/2/>")
WANTED: Final = [b"eu/1/orders/7", b"us/1/orders/9"]


def test_a_client_chooses_itself_where_a_node_of_an_earlier_version_does_not() -> None:
    """The scripted nodes drop the field, as programs from before patterns do."""

    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        cluster.hierarchy = b"/"
        for key in KEYS:
            await log.append(key, b"value of " + key)
        assert [key async for key in log.keys(pattern=PATTERN)] == WANTED
        assert [key async for key in log.keys(pattern=PATTERN, limit=1)] == WANTED[:1]
        rest = [key async for key in log.keys(pattern=PATTERN, start_after=WANTED[0])]
        assert rest == WANTED[1:]
        snapshot = await log.snapshot()
        assert sorted([e.key async for e in snapshot.read(pattern=PATTERN)]) == WANTED
        batches = [batch async for batch in log.scan_columns(pattern=PATTERN)]
        assert sorted(entry.key for batch in batches for entry in batch.entries()) == WANTED
        found: list[Entry] = []
        async with log.follow(pattern=PATTERN, start="earliest") as feed:
            async for batch_ in feed:
                found += batch_
                if batch_.caught_up:
                    break
        assert sorted(entry.key for entry in found) == WANTED

    run_async(test)


def test_a_read_has_one_choice_of_keys() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        snapshot = await log.snapshot()
        with pytest.raises(InvalidArgument, match="a prefix and a pattern are both given"):
            _ = [key async for key in log.keys(prefix="a", pattern="b*")]
        with pytest.raises(InvalidArgument, match="a key and a pattern are both given"):
            _ = [e async for e in snapshot.read("a", pattern="b*")]
        with pytest.raises(InvalidArgument, match="keys and a pattern are both given"):
            log.follow(keys=["a"], pattern="b*")
        with pytest.raises(InvalidArgument, match="the start has keys, and a pattern is given"):
            log.follow(start={b"a": 1}, pattern="b*")
        with pytest.raises(InvalidArgument, match="the log has no hierarchy"):
            _ = [key async for key in log.keys(pattern="eu/*/x")]

    run_async(test)


def entries(seed: int) -> list[Entry]:
    """Entries of few keys, in the order of keys, with all kinds of values."""
    rng = random.Random(seed)
    keys = sorted(rng.choices(KEYS, k=40))
    return [
        Entry(
            key, seq, 1_000 + seq, rng.choice([None, None, {b"h": b"%d" % seq}]),
            rng.choice([None, b"", b"v" * rng.randrange(9)]), rng.random() < 0.2,
        )
        for seq, key in enumerate(keys, 1)
    ]  # fmt: skip


@pytest.mark.parametrize("seed", range(8))
def test_the_matching_entries_of_chunks_and_pages_are_whole(seed: int) -> None:
    made = entries(seed)
    given = ["eu/>"] if seed % 2 else ["*/1/*", "*", "!eu/>"]
    patterns = patterns_of(b"/", given)
    due = [entry for entry in made if patterns.matches(entry.key)]
    portion = Portion()
    portion.add_all(made)
    kept = portion.matching(patterns, begun=False)
    assert (len(kept), kept.begun) == (len(due), bool(due))
    assert _entries(kept.chunks()) == due
    repeated = [_repeated(chunk) for chunk in portion.chunks()]
    assert _entries(matching(repeated, patterns)) == due
    page = Page(next=99, more=True)
    for entry in made:
        page.add(entry)
    some = page.of_positions(patterns.positions(page.keys))
    assert (some.entries(), some.next, some.more) == (due, 99, True)


def _entries(chunks: list[Chunk]) -> list[Entry]:
    found = []
    for chunk in chunks:
        chunk._check()
        page = Page(
            keys=chunk.unpacked_keys(), seqs=chunk.unpacked_seqs(),
            timestamps=chunk.unpacked_timestamps(), values=chunk.unpacked_values(),
            headers=dict(chunk.headers or {}), snapshots=list(chunk.snapshots or ()),
        )  # fmt: skip
        found += page.entries()
    return found


def _repeated(chunk: Chunk) -> Chunk:
    """Return the same entries, with each key once and the number of its entries."""
    keys = chunk.unpacked_keys()
    distinct = list(dict.fromkeys(keys))
    return chunk._replace(
        key_lengths=b"".join(len(key).to_bytes(2, "little") for key in distinct),
        repeats=b"".join(keys.count(key).to_bytes(4, "little") for key in distinct),
        keys=b"".join(distinct),
    )


def created(level: int, **fields: object) -> tuple[Metadata, dict[str, object]]:
    metadata = Metadata()
    metadata.apply(1, 1, {"op": commands.FOUND, "cluster": "c" * 32, "node": 1})
    metadata.apply(2, 1, {
        "op": commands.REGISTER, "node": 1, "incarnation": 1, "boot": 1, "process": 1,
        "address": "h:1", "peer": "", "http": "", "zone": "", "key": "", "levels": [1, LEVEL_MAX],
    })  # fmt: skip
    metadata.feature_level = level
    return metadata, metadata.apply(3, 1, {"op": commands.CREATE_LOG, "name": "a", **fields})


def test_a_hierarchy_needs_its_feature_level() -> None:
    """A member of an earlier version would create the log without the hierarchy."""
    metadata, answer = created(HIERARCHIES_FROM - 1, hierarchy=b"/")
    with pytest.raises(Unsupported, match="Run `lognode cluster finalize`"):
        raise from_wire(answer["error"])
    assert not metadata.logs
    check_hierarchy(1, b"")
    metadata, answer = created(HIERARCHIES_FROM, hierarchy=b"/")
    assert answer == {"ok": {"log": 1, "created": True, "hierarchy": b"/"}}
    row = metadata.logs[1].to_image()
    assert LogRecord.from_image(row).hierarchy == b"/"
    assert received_rows.is_row("logs", row)
    assert not received_rows.is_row("logs", {**row, "hierarchy": "/"})
    assert not received_rows.is_row("logs", {**row, "hierarchy": b"123456789"})


def test_without_a_hierarchy_the_record_is_that_of_earlier_versions() -> None:
    metadata, answer = created(LEVEL_MAX)
    assert answer == {"ok": {"log": 1, "created": True}}
    assert "hierarchy" not in metadata.logs[1].to_image()


def test_a_log_created_without_the_requested_hierarchy_is_an_error() -> None:
    """A node of an earlier version drops the field and creates the log."""

    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        with pytest.raises(Conflict, match="has the hierarchy None, and b'/' was asked for"):
            await client.create_log("other", hierarchy="/")
        with pytest.raises(InvalidArgument, match="have a meaning in patterns"):
            await client.create_log("other", hierarchy="*")

    run_async(test)
