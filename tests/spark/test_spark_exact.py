"""What Spark reads is exact: a committed snapshot counted twice, a stream through everything."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from spark_logs import append, entries, filled, reader, rows, stream, values

import lognode
from lognode import testing

pytestmark = [pytest.mark.slow, pytest.mark.cluster]
Cluster = testing.LocalCluster


@contextmanager
def writing(log: lognode.Log, first: int) -> Iterator[list[int]]:
    """Somebody appends all the while; how far they came."""
    done, end = threading.Event(), [first]

    def write() -> None:
        while not done.is_set():
            append(log, end[0], end[0] + 200)
            end[0] += 200

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield end
    finally:
        done.set()
        thread.join()


def test_S5_a_snapshot_counted_twice_gives_the_same_while_everything_changes(
    spark: SparkSession, cluster: Cluster, client: lognode.Client
) -> None:
    log = filled(client, "twice", 5_000)
    with writing(log, 5_000):
        frame = reader(spark, cluster, "twice", minPartitions="4").load()
        once = frame.count()
        assert once >= 5_000
        seen = [rows(frame)]
        client.admin.split("twice", at=b"k10")
        seen.append(rows(frame))
        client.admin.split("twice", at=b"k40")
        client.admin.merge("twice", at=b"k25")
        seen.append(rows(frame))
        assert frame.count() == once == len(seen[0])
        assert seen[0] == seen[1] == seen[2]
    found = entries(log)
    assert set(seen[0]) <= set(found)
    after = reader(spark, cluster, "twice").load()
    assert rows(after) == found


def test_a_saved_vector_reads_the_same_in_another_query(
    spark: SparkSession, cluster: Cluster, client: lognode.Client
) -> None:
    log = filled(client, "saved", 2_000)
    expected = entries(log)
    saved = log.snapshot().to_json()
    append(log, 2_000, 3_000)
    client.admin.split("saved", at=b"k30")
    assert rows(reader(spark, cluster, "saved", asOf=saved).load()) == expected
    rest = rows(reader(spark, cluster, "saved", startingSeq=saved).load())
    assert sorted([*expected, *rest]) == entries(log)


def test_a_task_that_is_tried_again_gives_the_same_rows(
    spark: SparkSession, cluster: Cluster, client: lognode.Client, tmp_path: Path
) -> None:
    log = filled(client, "again", 3_000)
    marks = str(tmp_path)

    def fails_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch
            mark = Path(marks) / batch["key"][0].as_py().hex()
            if not mark.exists():
                mark.touch()
                raise OSError("the first time")

    frame = reader(spark, cluster, "again").load()
    assert rows(frame.mapInArrow(fails_once, frame.schema)) == entries(log)
    assert list(tmp_path.iterdir())


def run(frame: DataFrame, place: Path, each: Any) -> None:
    """What is available now goes to `each(batch, number)`, with a checkpoint in that place."""
    writer = frame.writeStream.foreachBatch(each).option("checkpointLocation", str(place))
    writer.trigger(availableNow=True).start().awaitTermination()


def test_a_stream_reads_each_entry_once_through_restarts_splits_and_merges(
    spark: SparkSession, cluster: Cluster, client: lognode.Client, tmp_path: Path
) -> None:
    log = filled(client, "stream", 3_000)
    found: Counter[tuple[bytes, int]] = Counter()
    sizes: list[int] = []

    def each(frame: DataFrame, number: int) -> None:
        some = frame.select("key", "seq").collect()
        found.update((bytes(row.key), row.seq) for row in some)
        sizes.append(len(some))

    changes = [(client.admin.split, b"k10"), (client.admin.merge, b"k25"),
               (client.admin.split, b"k44")]  # fmt: skip
    for at, (change, key) in enumerate(changes):
        append(log, 3_000 + 500 * at, 3_300 + 500 * at)
        change("stream", at=key)
        append(log, 3_300 + 500 * at, 3_500 + 500 * at)
        run(stream(spark, cluster, "stream", maxEntriesPerTrigger="800"), tmp_path, each)
        assert found == Counter((key, seq) for key, seq, _ in entries(log))
    assert max(sizes) <= 800
    assert len(sizes) > 5


def test_trap_2_a_stream_whose_first_micro_batch_fails_loses_nothing(
    spark: SparkSession, cluster: Cluster, client: lognode.Client, tmp_path: Path
) -> None:
    """Of the first micro-batch the checkpoint has only the end: its start is found out again."""
    log = filled(client, "fails", 500)
    frame = stream(spark, cluster, "fails", maxEntriesPerTrigger="200")

    def fails(some: DataFrame, number: int) -> None:
        raise OSError("the sink is away")

    with pytest.raises(PySparkException, match="the sink is away"):
        run(frame, tmp_path, fails)
    append(log, 500, 700)
    found: list[bytes] = []
    run(frame, tmp_path, lambda some, number: found.extend(
        bytes(row.value) for row in some.select("value").collect()))  # fmt: skip
    assert sorted(found) == values(log)


def test_what_a_stream_cannot_do_is_refused_with_the_reason(
    spark: SparkSession, cluster: Cluster, client: lognode.Client, tmp_path: Path
) -> None:
    filled(client, "refusing", 100)
    with pytest.raises(PySparkException, match="no start of its own to remember"):
        stream(spark, cluster, "refusing", startingSeq="latest")
    with pytest.raises(PySparkException, match="asOf: is one of a batch"):
        run(stream(spark, cluster, "refusing", asOf="5"), tmp_path, lambda some, number: None)
    run(stream(spark, cluster, "refusing"), tmp_path, lambda some, number: None)
    filled(client, "refusing-2", 100)
    with pytest.raises(PySparkException, match="a snapshot of log 'refusing', not of"):
        run(stream(spark, cluster, "refusing-2"), tmp_path, lambda some, number: None)
