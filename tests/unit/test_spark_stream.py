"""The stream reader and the writers as Spark calls them, against scripted nodes, without a JVM."""

import json
import pickle
import time
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from fake_cluster import FakeCluster, FakeNode, Stored
from fake_thread import fake_cluster_thread
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
)

from lognode.client.accepting.request import Request
from lognode.client.protocol.cluster import PRODUCER_OPEN
from lognode.client.protocol.errors import (
    Fenced,
    InvalidArgument,
    LimitExceeded,
    LognodeError,
    LogNotFound,
    NotFound,
    RemoteProtocolError,
    SequenceMismatch,
    Unavailable,
)
from lognode.client.protocol.reads import EXPORT, LAYOUT
from lognode.client.span_pages import Span
from lognode.client.spark import delivery, sink
from lognode.client.spark.options import WriteOptions
from lognode.client.spark.reader import BatchReader
from lognode.client.spark.schema import source_schema
from lognode.client.spark.session import Session
from lognode.client.spark.source import LognodeSource
from lognode.client.spark.stream import StreamReader
from lognode.testing import eventually

Row = tuple[bytes, int]


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with fake_cluster_thread() as made:
        made.create("log", (b"m",))
        yield made


def source(cluster: FakeCluster, **options: str) -> LognodeSource:
    return LognodeSource({"servers": cluster.address, "log": "log", "timeout": "5s", **options})


def stream(cluster: FakeCluster, **options: str) -> StreamReader:
    made = source(cluster, columns="key,seq", **options)
    reader = made.streamReader(schema=made.schema())
    assert isinstance(reader, StreamReader)
    return reader


def fill(cluster: FakeCluster, count: int) -> None:
    for at in range(count):
        for key in (b"a%d" % (at % 3), b"z%d" % (at % 4)):
            known = cluster.range_of(key)
            known.entries.append(Stored(key, known.next_seq, 1_000 + at, None, b"v" * 10))
            known.next_seq += 1


def rows(reader: Any, partitions: Iterable[InputPartition]) -> list[Row]:
    """As workers read them: from a copy, by columns."""
    copy = pickle.loads(pickle.dumps(reader))
    found: list[Row] = []
    for partition in partitions:
        for batch in copy.read(pickle.loads(pickle.dumps(partition))):
            found += zip(batch["key"].to_pylist(), batch["seq"].to_pylist(), strict=True)
    return found


def run(reader: StreamReader, start: Any, count: int) -> tuple[list[Row], Any]:
    """So many micro-batches, with offsets that went through JSON; what they had, and the end."""
    found: list[Row] = []
    for _ in range(count):
        begin = json.loads(json.dumps(start))
        end = json.loads(json.dumps(reader.latestOffset(begin, reader.getDefaultReadLimit())))
        if end == begin:
            break
        found += rows(reader, reader.partitions(begin, end))
        start = end
    return found, start


def all_rows(cluster: FakeCluster) -> list[Row]:
    return sorted((entry.key, entry.seq) for entry in cluster.entries())


def test_a_stream_reads_each_entry_once_through_splits_and_restarts(cluster: FakeCluster) -> None:
    fill(cluster, 20)
    reader = stream(cluster, maxEntriesPerTrigger="9")
    found, at = run(reader, reader.initialOffset(), 2)
    assert len(found) == 18
    cluster.split(b"a1")
    fill(cluster, 5)
    more, at = run(stream(cluster, maxEntriesPerTrigger="9"), at, 100)
    assert sorted(found + more) == all_rows(cluster)
    assert run(stream(cluster), at, 5) == ([], at)


def test_a_micro_batch_waits_for_entries_but_not_for_ever(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    reader = stream(cluster, minEntriesPerTrigger="30", maxTriggerDelay="60s")
    assert reader.getDefaultReadLimit() == ReadMinRows(30)
    fill(cluster, 5)
    found, at = run(reader, reader.initialOffset(), 9)
    assert len(found) == 10, "the first micro-batch waits for nothing"
    fill(cluster, 14)
    assert run(reader, at, 9) == ([], at), "28 entries"
    assert rows(reader, reader.partitions(at, reader.latestOffset(at, ReadAllAvailable()))) != []
    now_s[0] += 59.0
    assert run(reader, at, 9) == ([], at)
    fill(cluster, 1)
    found, at = run(reader, at, 9)
    assert len(found) == 30
    fill(cluster, 1)
    now_s[0] += 59.0
    assert run(reader, at, 9) == ([], at)
    now_s[0] += 1.0
    found, at = run(reader, at, 9)
    assert len(found) == 2


def test_a_run_of_what_is_available_now_waits_for_nothing(cluster: FakeCluster) -> None:
    fill(cluster, 5)
    reader = stream(cluster, minEntriesPerTrigger="8", maxEntriesPerTrigger="8")
    reader.prepareForTriggerAvailableNow()
    found, _ = run(reader, reader.initialOffset(), 9)
    assert len(found) == 10


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"maxTriggerDelay": "1m"}, "is given without minEntriesPerTrigger"),
        (
            {"minEntriesPerTrigger": "9", "maxEntriesPerTrigger": "8"},
            "minEntriesPerTrigger: is 9, above maxEntriesPerTrigger, which is 8; give at most 8",
        ),
        ({"minEntriesPerTrigger": "0"}, "give a whole number of 1 or more"),
    ],
)
def test_bounds_of_a_micro_batch_that_contradict_each_other_are_refused(
    cluster: FakeCluster, given: dict[str, str], said: str
) -> None:
    with pytest.raises(InvalidArgument, match=said):
        stream(cluster, **given)


def test_a_micro_batch_that_runs_again_after_a_split_has_the_same_rows_in_the_same_order(
    cluster: FakeCluster,
) -> None:
    fill(cluster, 20)
    reader = stream(cluster)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    before = [rows(reader, [one]) for one in reader.partitions(start, end)]
    cluster.split(b"a1")
    cluster.split(b"z2")
    fill(cluster, 3)
    again = stream(cluster)
    after = [rows(again, [one]) for one in again.partitions(start, end)]
    assert after == before
    assert sum(map(len, before)) == 40


def test_S8_the_first_micro_batch_has_the_same_tasks_after_a_restart_behind_a_split(
    cluster: FakeCluster,
) -> None:
    """Its start is in no checkpoint: a sink that had some of it got it by other tasks, and kept
    both."""
    fill(cluster, 20)
    reader = stream(cluster)
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    before = [rows(reader, [task]) for task in reader.partitions(start, end)]
    cluster.split(b"a1")
    cluster.split(b"z2")
    again = stream(cluster)
    after = [rows(again, [task]) for task in again.partitions(again.initialOffset(), end)]
    assert after == before


def test_trap_1_the_initial_offset_is_asked_for_often_and_stays(cluster: FakeCluster) -> None:
    cluster.ranges[1].earliest = 5
    fill(cluster, 10)
    reader = stream(cluster)
    first = reader.initialOffset()
    cluster.ranges[0].earliest = 7
    assert reader.initialOffset() == first
    assert [part["through_seq"] for part in first["parts"]] == [0, 4]


def test_starts_other_than_the_earliest(cluster: FakeCluster) -> None:
    fill(cluster, 10)
    found, _ = run(reader := stream(cluster, startingSeq="8"), reader.initialOffset(), 1)
    assert sorted({seq for _, seq in found}) == [8, 9, 10]
    found, end = run(reader := stream(cluster, startingTimestamp="1006"), reader.initialOffset(), 1)
    assert sorted({seq for _, seq in found}) == [7, 8, 9, 10]
    fill(cluster, 1)
    found, _ = run(
        reader := stream(cluster, startingSeq=json.dumps(end)), reader.initialOffset(), 1
    )
    assert [seq for _, seq in found] == [11, 11]
    with pytest.raises(InvalidArgument, match=r"startingSeq: .*a stream remembers no start"):
        stream(cluster, startingSeq="latest")


def test_trap_12_limits_are_those_of_the_engine_and_of_the_options(cluster: FakeCluster) -> None:
    fill(cluster, 20)
    assert isinstance(stream(cluster).getDefaultReadLimit(), ReadAllAvailable)
    reader = stream(cluster, maxEntriesPerTrigger="4")
    assert reader.getDefaultReadLimit() == ReadMaxRows(4)
    start = reader.initialOffset()
    for limit, count in ((ReadMaxRows(6), 6), (ReadAllAvailable(), 40), (None, 40)):
        end = reader.latestOffset(start, limit)
        assert len(rows(reader, reader.partitions(start, end))) == count
    reader = stream(cluster, maxBytesPerTrigger="120")
    assert reader.getDefaultReadLimit() == ReadMaxBytes(120)
    end = reader.latestOffset(start, ReadMaxBytes(120))
    assert len(rows(reader, reader.partitions(start, end))) == 12
    assert reader.latestOffset()["parts"], "as Spark 4.1 asks"


def test_trap_11_available_now_ends_with_what_there_was_when_it_began(cluster: FakeCluster) -> None:
    fill(cluster, 10)
    expected = all_rows(cluster)
    reader = stream(cluster, maxEntriesPerTrigger="7")
    reader.prepareForTriggerAvailableNow()
    fill(cluster, 5)
    cluster.split(b"z1")
    found, _ = run(reader, reader.initialOffset(), 100)
    assert sorted(found) == expected


def test_trap_2_a_plan_that_goes_back_and_one_of_another_log_are_refused(
    cluster: FakeCluster,
) -> None:
    fill(cluster, 5)
    reader = stream(cluster)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    with pytest.raises(InvalidArgument, match="micro-batch goes from seq 6 back to 1"):
        reader.partitions(end, start)
    cluster.logs["log"] = 7
    for known in cluster.ranges:
        known.log_id = 7
    with pytest.raises(InvalidArgument, match="of the snapshot was deleted"):
        stream(cluster).partitions(start, end)
    with pytest.raises(InvalidArgument, match="of the snapshot was deleted"):
        stream(cluster).latestOffset(start, ReadAllAvailable())


def test_a_stream_below_retention_fails_unless_data_loss_is_allowed(cluster: FakeCluster) -> None:
    fill(cluster, 10)
    reader, lax = stream(cluster), stream(cluster, failOnDataLoss="false")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    (task, _) = partitions = reader.partitions(start, end)
    known = cluster.range_of(b"a")
    known.entries, known.earliest = known.entries[4:], 5
    said = r"keys from b'' on, the entries below seq 5 are gone, and this micro-batch.*=false"
    with pytest.raises(NotFound, match=said):
        reader.partitions(start, end)
    with pytest.raises(NotFound, match=said):
        rows(reader, [task])
    assert len(rows(lax, lax.partitions(start, end))) == 16
    assert len(partitions) == 2


def test_a_batch_below_retention_fails_unless_data_loss_is_allowed(
    cluster: FakeCluster,
) -> None:
    with Session(cluster.address, "log", timeout=5) as session:
        nothing = session.snapshot(60).to_json()
    fill(cluster, 10)
    known = cluster.range_of(b"a")
    known.entries, known.earliest = known.entries[4:], 5

    def read(**options: str) -> list[Row]:
        made = source(cluster, columns="key,seq", **options)
        reader = made.reader(made.schema())
        return rows(reader, reader.partitions())

    for start, why in (
        ({"startingSeq": "4"}, "this batch begins with 4"),
        ({"startingSeq": nothing}, "this batch begins with 1"),
        ({"startingTimestamp": "1004"}, "no entry before startingTimestamp is left"),
        ({"startingTimestamp": "1"}, "no entry before startingTimestamp is left"),
    ):
        said = rf"below seq 5 are gone, and {why}. Give failOnDataLoss=false"
        held = len(known.leases)
        with pytest.raises(NotFound, match=said):
            read(**start)
        assert len(known.leases) == held, "what is not read is not held"
        assert {seq for key, seq in read(**start, failOnDataLoss="false") if key < b"m"} == {
            *range(5, 11)
        }
        assert read(**start, keyPrefix="z"), "of the other range nothing was removed"
    for start in ({"startingSeq": "5"}, {"startingTimestamp": "1005"}):
        assert [seq for key, seq in read(**start) if key < b"m"]
    for start in ({}, {"startingSeq": "earliest"}):
        assert len(read(**start)) == 16


def test_a_batch_is_what_it_was_whatever_comes_after(cluster: FakeCluster) -> None:
    fill(cluster, 10)
    expected = all_rows(cluster)
    made = source(cluster, columns="key,seq")
    reader = made.reader(made.schema())
    assert isinstance(reader, BatchReader)
    partitions = reader.partitions()
    fill(cluster, 5)
    cluster.split(b"a1")
    once = rows(reader, partitions)
    assert sorted(once) == expected
    cluster.split(b"z2")
    assert rows(reader, partitions) == once
    assert list(reader.read(InputPartition(None))) == []


def test_the_next_page_comes_while_one_is_worked_on(cluster: FakeCluster) -> None:
    fill(cluster, 10)
    cluster.split(b"a1")
    cluster.split(b"a2")
    with Session(cluster.address, "log", timeout=5.0) as session:
        pages = session.pages(Span(b"", b"m", 1, 11), "linearizable", session.log())
        before = cluster.count(EXPORT)
        next(pages)
        eventually(lambda: cluster.count(EXPORT) == before + 2, what="the next is asked for")
        pages.close()


def test_trap_3_an_empty_log_has_no_partitions_and_that_one_has_no_rows(
    cluster: FakeCluster,
) -> None:
    made = source(cluster)
    batch = made.reader(made.schema())
    assert batch.partitions() == []
    assert list(batch.read(InputPartition(None))) == []
    reader = stream(cluster)
    start = reader.initialOffset()
    assert reader.latestOffset(start, ReadAllAvailable()) == start
    assert reader.partitions(start, start) == []


def test_a_lease_that_ended_fails_a_batch_on_the_driver_unless_loss_may_be(
    cluster: FakeCluster,
) -> None:
    fill(cluster, 10)
    options = {"servers": cluster.address, "log": "log"}
    with Session(cluster.address, "log", timeout=5.0) as session:
        saved = session.snapshot(60.0).to_json()
    expected = all_rows(cluster)
    fill(cluster, 5)
    made = LognodeSource({**options, "asOf": saved, "columns": "key,seq"})
    reader = made.reader(made.schema())
    assert sorted(rows(reader, reader.partitions())) == expected
    for known in cluster.ranges:
        known.leases.clear()
    with pytest.raises(NotFound, match="the lease of the snapshot has ended"):
        reader.partitions()
    lax = LognodeSource({**options, "asOf": saved, "columns": "key,seq", "failOnDataLoss": "false"})
    reader = lax.reader(lax.schema())
    assert sorted(rows(reader, reader.partitions())) == expected


def test_a_plan_that_fails_leaves_no_lease(cluster: FakeCluster) -> None:
    fill(cluster, 3)
    made = source(cluster)
    reader = made.reader(made.schema())
    assert reader.partitions()
    assert [len(known.leases) for known in cluster.ranges] == [1, 1]
    for node in cluster.nodes.values():
        read = node.read
        node.read = lambda op, *asked, read=read: (
            {"weights": [1]} if op == LAYOUT else read(op, *asked)
        )
    with pytest.raises(RemoteProtocolError):
        reader.partitions()
    assert [len(known.leases) for known in cluster.ranges] == [1, 1]


def test_a_driver_asks_again_while_no_node_answers(cluster: FakeCluster) -> None:
    failures = [Unavailable("later", reason="later") for _ in range(8)]

    def away(node: FakeNode, request: Request, when: str) -> None:
        if when == "metadata" and failures:
            raise failures.pop()

    cluster.faults.append(away)
    fill(cluster, 3)
    made = source(cluster)
    assert len(made.reader(made.schema()).partitions()) == 2
    assert not failures


def test_bounds_of_a_batch(cluster: FakeCluster) -> None:
    fill(cluster, 10)
    for options, seqs in (
        ({"startingSeq": "4", "endingSeq": "7"}, [4, 5, 6]),
        ({"startingTimestamp": "1003", "endingTimestamp": "1006"}, [4, 5, 6]),
        ({"asOf": "1003"}, [1, 2, 3, 4]),
        ({"keys": "z1"}, [2, 6, 10]),
        ({"keyPrefix": "a2", "endingSeq": "6"}, [3]),
        ({"keyPrefix": "b"}, []),
        ({"startingTimestamp": "9999"}, []),
    ):
        made = source(cluster, columns="key,seq", **options)
        reader = made.reader(made.schema())
        found = rows(reader, reader.partitions())
        assert sorted({seq for _, seq in found}) == seqs, options


def test_a_log_that_does_not_exist_is_said_on_the_driver(cluster: FakeCluster) -> None:
    made = source(cluster, log="nope")
    with pytest.raises(LogNotFound):
        made.reader(made.schema()).partitions()
    reader = stream(cluster, log="nope")
    with pytest.raises(LogNotFound):
        reader.initialOffset()
    with pytest.raises(LogNotFound):
        made.writer(source_schema(("key", "value")), False)
    named = LognodeSource({"servers": cluster.address, "timeout": "5s"})
    assert named.writer(source_schema(("key", "value", "log")), False)
    with pytest.raises(InvalidArgument, match="option log: is not given"):
        named.writer(source_schema(("key", "value")), False)
    away = LognodeSource({"servers": "127.0.0.1:1", "timeout": "0.2s"})
    with pytest.raises(LognodeError, match=r"127\.0\.0\.1:1|metadata"):
        away.writer(source_schema(("key", "value", "log")), False)
    with pytest.raises(InvalidArgument, match=r"mode\('append'\)"):
        source(cluster).writer(source_schema(("key", "value")), True)
    with pytest.raises(InvalidArgument, match="a column 'seq'"):
        source(cluster).streamWriter(source_schema(("key", "value", "seq")), False)


# The sink.


def batch(*keys: bytes, **more: list[Any]) -> pa.RecordBatch:
    columns = {"key": pa.array(keys, pa.binary()), "value": pa.array([b"1"] * len(keys))}
    return pa.record_batch(columns | {name: pa.array(column) for name, column in more.items()})


def deliver(
    cluster: FakeCluster, number: int, *batches: pa.RecordBatch, log: str | None = "log"
) -> int:
    options = WriteOptions(cluster.address, log, timeout_s=5.0)
    return sink.deliver(options, sink.producer_name("q", 3), number, iter(batches)).records


def test_numbers_follow_from_the_micro_batch_and_the_row() -> None:
    assert sink.producer_name("q", 3) == "spark/q/3"
    assert sink.first_number(0) == 1
    assert sink.first_number(7) == 7 * sink.numbers_of_batch + 1
    message = sink.Delivered(5)
    assert pickle.loads(pickle.dumps(message)) == message
    writer = sink.BatchWriter(WriteOptions("h:1", "log"))
    assert pickle.loads(pickle.dumps(writer))._query == writer._query
    assert sink.BatchWriter(WriteOptions("h:1", "log"))._query != writer._query
    named = sink.BatchWriter(WriteOptions("h:1", "log", write_id="load"))
    assert sink.producer_name(named._query, 3) == "spark/id/load/3"


def test_a_task_that_runs_again_adds_nothing_twice(cluster: FakeCluster) -> None:
    once = [batch(b"a", b"z"), batch(), batch(b"a", b"b")]
    assert deliver(cluster, sink.first_number(0), *once) == 4
    assert deliver(cluster, sink.first_number(0), *once) == 4
    assert deliver(cluster, sink.first_number(0), batch(b"a"), batch(b"z", b"a", b"b")) == 4
    assert [entry.key for entry in cluster.entries()] == [b"a", b"a", b"b", b"z"]
    assert deliver(cluster, sink.first_number(1), *once) == 4
    assert len(cluster.entries()) == 8
    assert cluster.producers["spark/q/3"][1] == 4


def test_a_task_that_died_half_way_is_made_whole(cluster: FakeCluster) -> None:
    def dies() -> Iterator[pa.RecordBatch]:
        yield batch(b"a", b"z")
        raise OSError("the executor is lost")

    options = WriteOptions(cluster.address, "log", timeout_s=5.0)
    with pytest.raises(OSError, match="executor"):
        sink.deliver(options, "spark/q/3", 1, dies())
    cluster.split(b"b")
    assert deliver(cluster, 1, batch(b"a", b"z"), batch(b"b")) == 3
    assert sorted(entry.key for entry in cluster.entries()) == [b"a", b"b", b"z"]


def test_a_task_without_rows_opens_no_producer(cluster: FakeCluster) -> None:
    assert deliver(cluster, 1, batch()) == deliver(cluster, 1) == 0
    assert cluster.count(PRODUCER_OPEN) == 0


def test_a_task_whose_successor_has_begun_appends_nothing_more(cluster: FakeCluster) -> None:
    def overtaken() -> Iterator[pa.RecordBatch]:
        yield batch(b"a")
        deliver(cluster, 1, batch(b"a"), batch(b"b"))
        yield batch(b"b", b"c")

    options = WriteOptions(cluster.address, "log", timeout_s=5.0)
    with pytest.raises(LognodeError) as raised:
        sink.deliver(options, "spark/q/3", 1, overtaken())
    assert isinstance(raised.value, Fenced) or "not acknowledged" in str(raised.value)
    assert [entry.key for entry in cluster.entries()] == [b"a", b"b"]


def keys_of(cluster: FakeCluster, log: str) -> list[bytes]:
    return sorted(
        entry.key
        for known in cluster.ranges if known.log_id == cluster.logs[log]
        for entry in known.entries
    )  # fmt: skip


def test_S8_a_task_writes_to_the_logs_that_its_rows_name_and_adds_nothing_twice(
    cluster: FakeCluster,
) -> None:
    cluster.create("other")
    rows = [batch(b"a", b"b", b"c", log=["log", "other", "log"]), batch(b"d", log=["other"])]
    for died in (True, False, False):

        def some(died: bool = died) -> Iterator[pa.RecordBatch]:
            yield rows[0]
            if died:
                raise OSError("the executor is lost")
            yield rows[1]

        options = WriteOptions(cluster.address, timeout_s=5.0)
        if died:
            with pytest.raises(OSError, match="executor"):
                sink.deliver(options, "spark/q/3", 1, some())
        else:
            assert sink.deliver(options, "spark/q/3", 1, some()).records == 4
    assert keys_of(cluster, "log") == [b"a", b"c"]
    assert keys_of(cluster, "other") == [b"b", b"d"]
    assert deliver(cluster, sink.first_number(1), *rows) == 4, "the option decides"
    assert keys_of(cluster, "log") == [b"a", b"a", b"b", b"c", b"c", b"d"]
    with pytest.raises(LogNotFound, match="nope"):
        deliver(cluster, 1, batch(b"a", log=["nope"]), log=None)


def test_a_task_has_a_limited_number_of_logs(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "logs_of_task_max", 1)
    cluster.create("other")
    with pytest.raises(LimitExceeded, match="name 'other' and 1 more logs; the limit is 1"):
        deliver(cluster, 1, batch(b"a", b"b", log=["log", "other"]), log=None)


def test_S9_a_row_whose_condition_does_not_hold_fails_its_task_each_time(
    cluster: FakeCluster,
) -> None:
    assert deliver(cluster, 1, batch(b"a", b"z", expect=[0, None])) == 2
    (seq,) = (entry.seq for entry in cluster.entries() if entry.key == b"a")
    rows = [batch(b"z", b"a", expect=[None, 0]), batch(b"b", expect=[None])]
    for _ in range(2):
        with pytest.raises(SequenceMismatch) as raised:
            deliver(cluster, sink.first_number(1), *rows)
        assert raised.value.message == (
            f"column expect: a row of key b'a' expects the last seq 0, and the last seq of the key "
            f"in log 'log' is {seq}. The row was not appended; read the key again"
        )
    assert cluster.values(b"a") == [b"1"]
    assert cluster.values(b"z") == [b"1", b"1"], "once, however often the task was tried"
    right = [batch(b"z", b"a", expect=[None, seq]), rows[1]]
    for _ in range(2):  # what was appended counts, although the condition no longer holds
        assert deliver(cluster, sink.first_number(1), *right) == 3
    assert [len(cluster.values(key)) for key in (b"a", b"b", b"z")] == [2, 1, 2]


def test_a_row_that_no_log_takes_is_named(cluster: FakeCluster) -> None:
    with pytest.raises(InvalidArgument, match="row 2 of the task: the key is empty; a key has 1"):
        deliver(cluster, 1, batch(b"a", b"b"), batch(b""))
