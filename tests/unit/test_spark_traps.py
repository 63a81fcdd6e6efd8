"""What Spark does that costs data or a query where it is missed: the rest of the traps.

Each has a number: 1 offsets that are asked for again, 2 starts that move, 3 no partitions, 4 the
schema of batches, 5 batches, not tuples, 6 filters, 7 arguments by name, 8 messages of writers,
9 names of options, 10 no last commit, 11 the end of AvailableNow, 12 limits, 13 readers travel,
14 versions of `latestOffset`, 15 columns. Those that are not here are beside what they are about.
"""

import inspect
import pickle
import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from fake_cluster import FakeCluster, Stored
from fake_thread import fake_cluster_thread
from pyspark.sql.datasource import (
    CaseInsensitiveDict,
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable

from lognode.client.spark.options import WriteOptions
from lognode.client.spark.reader import BatchReader
from lognode.client.spark.sink import BatchWriter, Delivered, StreamWriter, deliver
from lognode.client.spark.source import LognodeSource
from lognode.client.spark.stream import StreamReader


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with fake_cluster_thread() as made:
        made.create("log", (b"m",))
        for at in range(10):
            known = made.range_of(b"a" if at % 2 else b"z")
            known.entries.append(Stored(b"a" if at % 2 else b"z", known.next_seq, 1, None, b"v"))
            known.next_seq += 1
        yield made


def source(cluster: FakeCluster, **options: str) -> LognodeSource:
    return LognodeSource({"servers": cluster.address, "log": "log", "timeout": "5s", **options})


def read(cluster: FakeCluster) -> list[Any]:
    """What the tasks of a batch and of a micro-batch give to Spark."""
    made = source(cluster)
    batch, stream = made.reader(made.schema()), made.streamReader(schema=made.schema())
    start = stream.initialOffset()
    end = stream.latestOffset(start, ReadAllAvailable())
    found = [each for one in batch.partitions() for each in batch.read(one)]
    return found + [each for one in stream.partitions(start, end) for each in stream.read(one)]


def test_trap_5_tasks_give_record_batches_and_take_them(cluster: FakeCluster) -> None:
    found = read(cluster)
    assert {type(each) for each in found} == {pa.RecordBatch}
    assert sum(each.num_rows for each in found) == 20
    assert issubclass(BatchWriter, DataSourceArrowWriter)
    assert issubclass(StreamWriter, DataSourceStreamArrowWriter)


def test_trap_6_a_reader_takes_no_filters_since_spark_mixes_up_those_of_queries() -> None:
    assert BatchReader.pushFilters is DataSourceReader.pushFilters


@pytest.mark.parametrize("name", ["reader", "streamReader", "writer", "streamWriter"])
def test_trap_7_methods_that_spark_calls_by_name_exist(name: str) -> None:
    own, sparks = (inspect.signature(getattr(of, name)) for of in (LognodeSource, DataSource))
    assert list(own.parameters) == list(sparks.parameters)


def test_trap_8_writers_return_a_message_and_take_none_of_a_task_that_failed(
    cluster: FakeCluster,
) -> None:
    message = deliver(WriteOptions(cluster.address, "log", timeout_s=5.0), "spark/q/0", 1, iter(()))
    assert isinstance(message, WriterCommitMessage)
    options = WriteOptions("h:1", "log")
    BatchWriter(options).commit([message, Delivered(3)])
    BatchWriter(options).abort([None, message])
    StreamWriter(options).commit([message, Delivered(3)], 7)
    StreamWriter(options).abort([None, message], 7)


def test_trap_9_options_come_as_text_in_a_dict_of_lower_case(cluster: FakeCluster) -> None:
    given = {"Servers": cluster.address, "LOG": "log", "startingSeq": "4", "includeHeaders": "TRUE"}
    options: Any = CaseInsensitiveDict(given)
    made = LognodeSource(options)
    assert made.schema().fieldNames()[-1] == "headers"
    reader: Any = made.reader(made.schema())
    batches = [batch for one in reader.partitions() for batch in reader.read(one)]
    assert sorted(seq for batch in batches for seq in batch["seq"].to_pylist()) == [4, 4, 5, 5]


def test_trap_10_a_commit_only_moves_a_cursor_since_the_last_is_never_called(
    cluster: FakeCluster,
) -> None:
    made = LognodeSource({"servers": cluster.address, "log": "log"})
    reader: Any = made.streamReader(made.schema())
    end = reader.latestOffset(reader.initialOffset(), None)
    asked = len(cluster.requests)
    reader.commit(end)
    assert len(cluster.requests) == asked


def threads() -> int:
    return threading.active_count()


def test_trap_13_readers_travel_after_use_and_leave_nothing_open(cluster: FakeCluster) -> None:
    made = source(cluster)
    before = threads()
    readers: list[Any] = [made.reader(made.schema()), made.streamReader(schema=made.schema())]
    for reader in readers:
        if isinstance(reader, StreamReader):
            reader.prepareForTriggerAvailableNow()
            start = reader.initialOffset()
            end = reader.latestOffset(start, ReadAllAvailable())
            first, *_ = reader.partitions(start, end)
        else:
            first, *_ = reader.partitions()
        assert threads() == before
        rows = pickle.loads(pickle.dumps(reader)).read(first)
        next(rows)
        assert threads() > before, "it reads on a thread of its own"
        rows.close()  # as when a query wants no more
        assert threads() == before


def test_trap_14_the_latest_offset_is_asked_for_as_every_spark_asks(cluster: FakeCluster) -> None:
    made = source(cluster)
    reader: Any = made.streamReader(schema=made.schema())
    start = reader.initialOffset()
    end = reader.latestOffset()
    assert end != start
    assert end == reader.latestOffset(start) == reader.latestOffset(start, ReadAllAvailable())
    assert end == reader.latestOffset(start=start, limit=ReadAllAvailable())
