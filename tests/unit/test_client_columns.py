"""Reads as columns against scripted nodes. The blocking SDK's test is generated from this one."""

import random
from typing import Any

import pyarrow as pa
import pytest
from fake_cluster import FakeCluster
from sdk_runs import run_async

import lognode
from lognode import AsyncClient, AsyncLog, Entry, EntryColumns, Tail, Timestamp
from lognode.client.protocol.reads import EXPORT, RESOLVE
from lognode.client.protocol.types import Consistency


def entries_of(batches: list[EntryColumns]) -> list[Entry]:
    """The entries of the batches, of which none may be empty."""
    assert all(map(len, batches))
    return [entry for batch in batches for entry in batch.entries()]


def in_order(entries: list[Entry]) -> list[Entry]:
    """The entries by key and seq. Each key's must have come in the order of seq."""
    last: dict[bytes, int] = {}
    for entry in entries:
        assert last.get(entry.key, 0) < entry.seq, entry
        last[entry.key] = entry.seq
    return sorted(entries, key=lambda entry: (entry.key, entry.seq))


async def fill(log: AsyncLog, seed: int, count: int = 40) -> list[Entry]:
    """Append entries of all kinds, and return them by key and seq."""
    rng, made = random.Random(seed), []
    for _ in range(count):
        key, value = (
            rng.choice([b"a", b"ab", b"k", b"x", b"y"]),
            rng.choice([None, b"", b"1", b"22"]),
        )
        headers, mark = rng.choice([None, None, {b"h": value or b"0"}]), rng.random() < 0.1
        ack = await log.append(key, value, headers=headers, snapshot=mark)
        assert ack.seq is not None
        assert ack.timestamp_ms is not None
        made.append(Entry(key, ack.seq, 1_000 + ack.seq, headers, value, mark))
    return sorted(made, key=lambda entry: (entry.key, entry.seq))


@pytest.mark.parametrize("seed", range(4))
def test_a_snapshot_has_the_same_entries_as_columns_and_in_arrow(seed: int) -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        made = await fill(log, seed)
        snapshot = await log.snapshot()
        await log.append("a", b"later")
        asked: list[dict[str, Any]] = [{}, {"prefix": "a"}, {"key": "ab"}, {"key": "absent"}]
        for how in asked:
            due = [
                entry for entry in made
                if entry.key.startswith(how.get("prefix", "").encode())
                and how.get("key", entry.key.decode()) == entry.key.decode()
            ]  # fmt: skip
            read = [entry async for entry in snapshot.read(**how)]
            assert in_order(read) == due
            assert entries_of([c async for c in snapshot.read_columns(**how)]) == read
            batches = [batch async for batch in snapshot.read_arrow(**how)]
            rows = pa.Table.from_batches(batches).to_pylist() if batches else []
            assert [(row["key"], row["seq"], row["value"], row["snapshot"]) for row in rows] == [
                (entry.key, entry.seq, entry.value, entry.snapshot) for entry in read
            ]
            headers = [
                {each["key"]: each["value"] for each in row["headers"] or ()} or None
                for row in rows
            ]
            assert headers == [entry.headers for entry in read]
            times = [round(row["timestamp"].timestamp() * 1_000) for row in rows]
            assert times == [entry.timestamp_ms for entry in read]

    run_async(test)


def test_columns_are_those_of_the_entries() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        await log.append("k", b"1", headers={b"h": b"v"})
        await log.append("k", None, snapshot=True)
        (batch,) = [c async for c in log.scan_columns("k")]
        assert (batch.keys, batch.values) == ([b"k", b"k"], [b"1", None])
        assert (batch.seqs, batch.timestamps_ms) == ([1, 2], [1001, 1002])
        assert (dict(batch.headers), list(batch.snapshots)) == ({0: {b"h": b"v"}}, [1])
        assert repr(batch) == "<EntryColumns of 2 entries>"

    run_async(test)


@pytest.mark.parametrize("seed", range(4))
def test_a_range_that_splits_while_columns_are_read_is_read_on_in_both_parts(seed: int) -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        made, rng = await fill(log, seed, 60), random.Random(seed)
        snapshot = await log.snapshot()
        for source in (snapshot.read_columns(), log.scan_columns()):
            batches: list[EntryColumns] = []
            async for batch in source:
                batches.append(batch)
                if rng.random() < 0.2:
                    cluster.split(b"%c" % rng.randrange(97, 122))
                for known in cluster.ranges:
                    known.file_seqs = rng.choice([5, 8, 16, 100])
            assert in_order(entries_of(batches)) == made

    run_async(test)


@pytest.mark.parametrize("seed", range(4))
def test_a_scan_of_a_key_as_columns_takes_what_a_scan_takes(seed: int) -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        made = await fill(log, seed)
        middle = made[len(made) // 2]
        asked: list[dict[str, Any]] = [
            {}, {"limit": 4}, {"limit": 0}, {"reverse": True}, {"reverse": True, "limit": 4},
            {"start": middle.seq}, {"end": middle.seq}, {"start": Tail(2)}, {"start": "snapshot"},
            {"start": Timestamp(middle.timestamp_ms), "consistency": "prefix"},
        ]  # fmt: skip
        for how in asked:
            read = [entry async for entry in log.scan(middle.key, **how)]
            found = entries_of([c async for c in log.scan_columns(middle.key, **how)])
            assert found == read, how

    run_async(test)


@pytest.mark.parametrize("consistency", ["linearizable", "prefix"])
def test_a_scan_of_a_span_has_the_seqs_and_times_that_were_asked_for(
    consistency: Consistency,
) -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        made = await fill(log, 7, 60)
        spans: list[tuple[dict[str, Any], int, int]] = [
            ({}, 1, 99), ({"start": 9}, 9, 99), ({"end": 20}, 1, 20),
            ({"start": 5, "end": 6}, 5, 6),
            ({"start": Timestamp(1_012), "end": Timestamp(1_020)}, 12, 20), ({"end": 1}, 1, 1),
            ({"start": -3, "end": Timestamp(9_999)}, 1, 99), ({"start": 1 << 40}, 1 << 40, 99),
        ]  # fmt: skip
        for prefix in (None, b"", b"a", b"z"):
            for how, low, high in spans:
                due = [
                    entry for entry in made
                    if entry.key.startswith(prefix or b"") and low <= entry.seq < high
                ]  # fmt: skip
                batches = [
                    c async for c in log.scan_columns(
                        prefix=prefix, consistency=consistency, **how
                    )
                ]  # fmt: skip
                assert in_order(entries_of(batches)) == due, how
        for limit in (0, 1, 5, 99):
            batches = [c async for c in log.scan_columns(limit=limit, consistency=consistency)]
            assert len(entries_of(batches)) == min(limit, len(made))

    run_async(test)


def test_S7_a_scan_of_a_span_has_what_was_acknowledged_before_it_and_ends() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        made = await fill(log, 3)
        batches: list[EntryColumns] = []
        async for batch in log.scan_columns():
            batches.append(batch)
            await log.append_many([(key, b"later") for key in ("a", "k", "x")] * 3)
            assert len(batches) < 99, "the scan follows the appends"
        assert in_order(entries_of(batches)) == made

    run_async(test)


def test_a_scan_of_a_span_waits_for_a_seq_wherever_it_asks() -> None:
    """Also where it asks for the last seq: a replica that lags would end the scan early."""

    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        made = await fill(log, 2)
        seq = max(entry.seq for entry in made if entry.key < b"m")
        found = [c async for c in log.scan_columns(node=2, through=seq, consistency="prefix")]
        assert in_order(entries_of(found)) == made
        reads = [body for _, asked, body in cluster.requests if asked in (RESOLVE, EXPORT)]
        assert {body["node"] for body in reads} == {2}
        assert min(body["through"] for body in reads) >= seq

    run_async(test)


def test_a_scan_of_a_span_asks_for_no_page_beyond_its_limit() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        await fill(log, 5)
        before = cluster.count(EXPORT)
        assert len(entries_of([c async for c in log.scan_columns(limit=6)])) == 6
        assert cluster.count(EXPORT) == before + 2

    run_async(test)


def test_a_log_that_is_created_again_during_a_scan_ends_the_scan() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        await fill(log, 5)
        reads = 0

        async def read() -> None:
            nonlocal reads
            async for _ in log.scan_columns():
                reads += 1
                cluster.logs["log"] = 99
                for known in cluster.ranges:
                    known.log_id, known.generation = 99, known.generation + 1

        with pytest.raises(lognode.LogNotFound, match="was deleted during this scan"):
            await read()
        assert reads

    run_async(test)


def test_a_scan_of_a_span_refuses_what_only_a_scan_of_a_key_has() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        wrong: list[tuple[dict[str, Any], str]] = [
            ({"start": Tail(3)}, "a scan of many keys starts at a seq, 'earliest' or Timestamp"),
            ({"start": "latest"}, "a scan of many keys starts"),
            ({"start": "snapshot"}, "a scan of many keys starts"),
            ({"end": "latest"}, "give a seq or Timestamp"),
            ({"reverse": True}, "only a scan of one key can be reversed"),
            ({"key": "a", "prefix": "a"}, "a key and a prefix are both given"),
            ({"consistency": "eventual"}, "give 'linearizable' or 'prefix'"),
        ]
        for how, why in wrong:
            with pytest.raises(lognode.InvalidArgument, match=why):
                _ = [c async for c in log.scan_columns(**how)]
        with pytest.raises(lognode.InvalidArgument, match="a key and a prefix are both given"):
            _ = [c async for c in (await log.snapshot()).read_columns("a", "a")]

    run_async(test)


def test_a_read_of_columns_that_is_left_early_leaves_the_client_usable() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        made = await fill(log, 1)
        snapshot = await log.snapshot()
        async for batch in snapshot.read_columns():
            assert len(batch)
            break
        async for _ in snapshot.read():
            break
        assert in_order([entry async for entry in snapshot.read()]) == made

    run_async(test)


def test_columns_of_a_lease_that_has_ended_are_refused() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        await log.append("k", b"v")
        snapshot = await log.snapshot()
        await snapshot.release()
        for reading in (snapshot.read_columns(), snapshot.read_arrow("k")):
            with pytest.raises(lognode.NotFound, match="has ended, and its entries may be removed"):
                _ = [c async for c in reading]

    run_async(test)
