"""Patterns and kept cursors of Spark's readers, against scripted nodes, without a JVM."""

import json
import pickle
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from fake_cluster import FakeCluster, FakeNode, Stored
from fake_thread import fake_cluster_thread
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable

import lognode
from lognode.client.accepting.request import Request
from lognode.client.protocol.cursors import CURSOR_COMMIT
from lognode.client.protocol.errors import (
    Fenced,
    InvalidArgument,
    LimitExceeded,
    NotFound,
    Unavailable,
)
from lognode.client.protocol.patterns import patterns_of
from lognode.client.spark.cursors import everywhere, from_earliest
from lognode.client.spark.source import LognodeSource
from lognode.client.spark.stream import StreamReader

Row = tuple[bytes, int]
KEYS = [b"ap/1/orders", b"eu/1/orders", b"eu/1/seen", b"eu/7/orders", b"us/1/orders", b"us/12/seen"]


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with fake_cluster_thread() as made:
        made.hierarchy = b"/"
        made.create("log", (b"m",))
        yield made


def source(cluster: FakeCluster, **options: str) -> LognodeSource:
    return LognodeSource({"servers": cluster.address, "log": "log", "timeout": "5s",
                          "columns": "key,seq", **options})  # fmt: skip


def stream(cluster: FakeCluster, **options: str) -> StreamReader:
    made = source(cluster, **options)
    reader = made.streamReader(schema=made.schema())
    assert isinstance(reader, StreamReader)
    return reader


def fill(cluster: FakeCluster, count: int, keys: Iterable[bytes] = KEYS) -> None:
    for _ in range(count):
        for key in keys:
            known = cluster.range_of(key)
            known.entries.append(Stored(key, known.next_seq, 1_000, None, b"v"))
            known.next_seq += 1


def rows(reader: Any, partitions: Iterable[InputPartition]) -> list[Row]:
    """As workers read them: from a copy, by columns."""
    copy = pickle.loads(pickle.dumps(reader))
    found: list[Row] = []
    for partition in partitions:
        for batch in copy.read(pickle.loads(pickle.dumps(partition))):
            found += zip(batch["key"].to_pylist(), batch["seq"].to_pylist(), strict=True)
    return found


def read(cluster: FakeCluster, **options: str) -> list[Row]:
    made = source(cluster, **options)
    reader = made.reader(made.schema())
    return sorted(rows(reader, reader.partitions()))


def step(reader: StreamReader, start: Any) -> tuple[list[Row], Any]:
    """One micro-batch, with offsets that went through JSON: what it had, and its end."""
    begin = json.loads(json.dumps(start))
    end = json.loads(json.dumps(reader.latestOffset(begin, reader.getDefaultReadLimit())))
    return sorted(rows(reader, reader.partitions(begin, end))), end


def all_rows(cluster: FakeCluster, *given: str) -> list[Row]:
    patterns = patterns_of(b"/", given or ("!-",))
    return sorted((e.key, e.seq) for e in cluster.entries() if patterns.matches(e.key))


def position(cluster: FakeCluster, name: str, key: bytes) -> int:
    return cluster.range_of(key).cursors.found[name].position(key)


@pytest.mark.parametrize("given", [["eu/*/orders"], ["*/1*/>", "!us/>"], ["!eu/>"], ["absent/*"]])
def test_batches_and_streams_have_the_keys_that_match(
    cluster: FakeCluster, given: list[str]
) -> None:
    fill(cluster, 5)
    due, option = all_rows(cluster, *given), json.dumps(given)
    assert read(cluster, pattern=option) == due
    if len(given) == 1:
        assert read(cluster, pattern=given[0]) == due
    reader = stream(cluster, pattern=option, maxEntriesPerTrigger="4")
    found, at = [], reader.initialOffset()
    while True:
        before = at
        some, at = step(reader, at)
        found += some
        cluster.split(b"eu/5") if len(cluster.ranges) == 2 else None
        if at == before:
            break
    assert sorted(found) == due


def test_a_micro_batch_is_cut_into_more_tasks_which_stay_the_same(cluster: FakeCluster) -> None:
    keys = [b"k%02d" % number for number in range(40)]
    fill(cluster, 5, keys)
    reader = stream(cluster, minPartitions="8")
    start = reader.initialOffset()
    due, end = step(reader, start)
    assert due == sorted((entry.key, entry.seq) for entry in cluster.entries())
    parts = [rows(reader, [task]) for task in reader.partitions(start, end)]
    assert len(parts) >= 8
    assert max(map(len, parts)) <= 200 / 4
    # The query starts again with other options, after a split and more entries.
    cluster.split(b"k11")
    fill(cluster, 3, keys)
    again = stream(cluster)
    assert [rows(again, [task]) for task in again.partitions(start, end)] == parts
    more, last = step(again, end)
    assert len(more) == 120
    assert len(again.partitions(end, last)) == 2
    assert reader.latestOffset(last, ReadAllAvailable()) == last


def test_a_pattern_that_the_log_has_not_is_refused_on_the_driver(cluster: FakeCluster) -> None:
    fill(cluster, 1)
    for options, error, said in (
        ({"pattern": "a*b"}, InvalidArgument, "option pattern: .*a `\\*` within a level"),
        ({"pattern": json.dumps(["a"] * 17)}, InvalidArgument, "option pattern: 17 patterns"),
        ({"pattern": "[1]"}, InvalidArgument, "option pattern: a pattern is 1"),
    ):
        with pytest.raises(error, match=said):
            read(cluster, **options)
        reader = stream(cluster, **options)
        with pytest.raises(error, match=said):
            reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert not any(known.leases for known in cluster.ranges)


def test_trap_2_a_stream_from_the_latest_entry_begins_there_after_a_failed_first_batch(
    cluster: FakeCluster,
) -> None:
    fill(cluster, 5)
    options = {"cursor": "tail", "startingSeq": "latest"}
    reader = stream(cluster, **options)
    start = reader.initialOffset()
    assert reader.latestOffset(start, ReadAllAvailable()) == start
    fill(cluster, 2)
    due = [row for row in all_rows(cluster) if row[1] > (20 if row[0] < b"m" else 10)]
    found, end = step(reader, start)
    assert found == due
    # The sink fails, a range splits, more comes, and the query starts again.
    cluster.split(b"eu/5")
    fill(cluster, 3)
    again = stream(cluster, **options)
    assert again.initialOffset() == start
    before = [rows(reader, [task]) for task in reader.partitions(start, end)]
    assert [rows(again, [task]) for task in again.partitions(start, end)] == before


def test_G3_a_stream_keeps_its_progress_and_a_new_query_goes_on_there(cluster: FakeCluster) -> None:
    fill(cluster, 5)
    reader = stream(cluster, cursor="c", pattern="eu/>", maxEntriesPerTrigger="8")
    _, first = step(reader, reader.initialOffset())
    assert position(cluster, "c", b"eu/1/seen") == 1, "Spark has not stored the end yet"
    reader.commit(first)
    assert position(cluster, "c", b"eu/1/seen") == 9
    cluster.split(b"eu/5")
    more, end = step(reader, first)
    reader.commit(end)
    with_new_checkpoint = stream(cluster, cursor="c", pattern="eu/>")
    found, _ = step(with_new_checkpoint, with_new_checkpoint.initialOffset())
    assert found == [row for row in all_rows(cluster, "eu/>") if row[1] >= 13]
    assert more == [row for row in all_rows(cluster, "eu/>") if 9 <= row[1] < 13]
    # An operator and a follow know the same cursor.
    with lognode.Client(cluster.address) as client:
        log = client.log("log")
        (info,) = log.cursors()
        assert (info.name, info.next) == ("c", 13)
        kept = log.cursor("c", pattern="eu/>").position()
        assert {next_ for _, _, next_ in kept.spans} == {13}
    assert b"ap/1" not in cluster.range_of(b"ap/1").cursors.found["c"].keys
    assert position(cluster, "c", b"ap/1") == 0


@pytest.mark.parametrize(
    "options", [{"keys": '["eu/1/seen", "us/12/seen"]'}, {"keyPrefix": "eu/"}, {}]
)
def test_cursors_of_keys_of_a_prefix_and_of_everything(
    cluster: FakeCluster, options: dict[str, str]
) -> None:
    fill(cluster, 4)
    reader = stream(cluster, cursor="c", **options)
    found, end = step(reader, reader.initialOffset())
    assert found
    reader.commit(end)
    assert read(cluster, cursor="c", **options) == []
    fill(cluster, 1)
    fresh = stream(cluster, cursor="c", **options)
    new, end = step(fresh, fresh.initialOffset())
    assert new == read(cluster, cursor="c", **options)
    assert sorted(found + new) == read(cluster, **options)
    assert len(new) == len({key for key, _ in found})


def test_another_query_with_the_cursor_ends_the_older_query(cluster: FakeCluster) -> None:
    fill(cluster, 4)
    older = stream(cluster, cursor="c")
    _, end = step(older, older.initialOffset())
    stream(cluster, cursor="c").initialOffset()
    with pytest.raises(Fenced, match="another reader has opened cursor 'c'"):
        older.commit(end)
    assert position(cluster, "c", b"eu/1/seen") == 1


def test_a_cursor_that_comes_later_never_begins_beyond_what_is_done(cluster: FakeCluster) -> None:
    """The checkpoint has the start: the cursor begins with the first commit."""
    fill(cluster, 4)
    plain = stream(cluster, maxEntriesPerTrigger="6")
    _, at = step(plain, plain.initialOffset())
    reader = stream(cluster, cursor="c", startingSeq="latest", maxEntriesPerTrigger="6")
    _, at = step(reader, at)
    reader.commit(at)
    assert position(cluster, "c", b"eu/1/seen") == 7


def test_a_commit_without_an_answer_is_made_up_for_by_the_next(cluster: FakeCluster) -> None:
    fill(cluster, 4)
    reader = stream(cluster, cursor="c", maxEntriesPerTrigger="6", timeout="1s")
    _, first = step(reader, reader.initialOffset())
    _, second = step(reader, first)

    def away(node: FakeNode, request: Request, when: str) -> None:
        if when == "cursor" and request.operation == CURSOR_COMMIT:
            raise Unavailable("later", reason="later")

    cluster.faults.append(away)
    reader.commit(first)
    assert position(cluster, "c", b"eu/1/seen") == 1
    cluster.faults.clear()
    reader.commit(second)
    assert position(cluster, "c", b"eu/1/seen") == 7


def test_retention_below_the_position_of_a_cursor_is_a_loss(cluster: FakeCluster) -> None:
    fill(cluster, 6)
    reader = stream(cluster, cursor="c", keyPrefix="eu/", maxEntriesPerTrigger="8")
    _, end = step(reader, reader.initialOffset())
    known = cluster.range_of(b"eu/")
    known.entries, known.earliest = [e for e in known.entries if e.seq >= 5], 5
    new = stream(cluster, cursor="new", keyPrefix="eu/")
    assert step(new, new.initialOffset())[0], "a cursor at the first seq counts nothing as lost"
    assert read(cluster, cursor="new", keyPrefix="eu/")
    reader.commit(end)
    known.entries, known.earliest = [e for e in known.entries if e.seq >= 13], 13
    said = "below seq 13 are gone, and {}.*failOnDataLoss=false"
    with pytest.raises(NotFound, match=said.format("cursor 'c' is at seq 9")):
        stream(cluster, cursor="c", keyPrefix="eu/").initialOffset()
    with pytest.raises(NotFound, match=said.format("this batch begins with 9")):
        read(cluster, cursor="c", keyPrefix="eu/")
    lax = stream(cluster, cursor="c", keyPrefix="eu/", failOnDataLoss="false")
    due = [row for row in all_rows(cluster) if row[0].startswith(b"eu/")]
    assert step(lax, lax.initialOffset())[0] == due
    assert read(cluster, cursor="c", keyPrefix="eu/", failOnDataLoss="false") == due


def test_a_batch_begins_at_the_cursor_and_leaves_it(cluster: FakeCluster) -> None:
    fill(cluster, 4)
    with pytest.raises(NotFound, match=r"lognode cursor set log nightly --to earliest"):
        read(cluster, cursor="nightly")
    with lognode.Client(cluster.address) as client:
        cursor = client.log("log").cursor("nightly", start=5)
        cursor.open()
        assert read(cluster, cursor="nightly") == [row for row in all_rows(cluster) if row[1] >= 5]
        saved = client.log("log").snapshot()
        assert read(cluster, cursor="nightly", asOf=saved.to_json())
        cursor.commit(lognode.Cursor(spans=tuple(
            (part.start, part.end, part.through_seq + 1) for part in saved.vector.parts
        )))  # fmt: skip
        assert read(cluster, cursor="nightly") == []


def test_a_cursor_has_fewer_keys_than_a_query_may_have(cluster: FakeCluster) -> None:
    keys = json.dumps([f"k{at}" for at in range(1_025)])
    with pytest.raises(LimitExceeded, match="the cursor has 1,025 keys; 1 to 1,024 are allowed"):
        stream(cluster, cursor="c", keys=keys).initialOffset()


def test_positions_of_a_cursor_cover_all_keys() -> None:
    assert everywhere([(b"a", b"b", 4), (b"c", b"d", 7)]) == [
        (b"", b"a", 1), (b"a", b"b", 4), (b"b", b"c", 1), (b"c", b"d", 7), (b"d", None, 1),
    ]  # fmt: skip
    assert everywhere([(b"", None, 4)]) == [(b"", None, 4)]
    assert everywhere([(b"", b"b", 4), (b"b", None, 7)]) == [(b"", b"b", 4), (b"b", None, 7)]
    assert from_earliest([(b"a", b"c", 1), (b"c", b"d", 2)], [(b"", b"b", 5), (b"b", None, 9)]) == [
        (b"a", b"b", 5), (b"b", b"c", 9), (b"c", b"d", 2),
    ]  # fmt: skip
