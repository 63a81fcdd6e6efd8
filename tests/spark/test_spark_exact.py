"""What Spark reads is exact: a committed snapshot counted twice, a stream through everything."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from cluster_ranges import ranges_of
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from spark_logs import append, entries, filled, reader, rows, stream
from spark_query import killed_in_a_batch, newest, started
from spark_writer import acknowledged, writing

import lognode
from lognode import testing
from lognode.testing import LocalNode

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.by_hand]
Cluster = testing.LocalCluster


@pytest.fixture(scope="module")
def cluster(module_path: Path) -> Iterator[Cluster]:
    """Four nodes, so that a replica can move."""
    flags = ("--balance", "off")
    with testing.cluster(module_path, 4, flags=flags) as made:
        testing.wait_healthy(made)
        yield made


def move(client: lognode.Client, log: str) -> None:
    """The leader's replica of the first range goes to the node that has none."""
    (range_, *_) = ranges_of(client, log)
    leaves, (comes,) = testing.leader_of(client, log), {1, 2, 3, 4} - {*range_["members"]}
    client.admin.move(range_["id"], from_node=leaves, to_node=comes)
    assert comes in ranges_of(client, log)[0]["members"]


def test_S5_a_snapshot_counted_again_and_again_is_the_same_while_everything_changes(
    spark: SparkSession, cluster: Cluster, client: lognode.Client, tmp_path: Path
) -> None:
    """10,000 records/s are appended; ranges split, merge and move; a node is killed and is away."""
    log = filled(client, "twice", 20_000)

    def change() -> LocalNode:
        client.admin.split("twice", at=b"k10")
        client.admin.split("twice", at=b"k40")
        client.admin.merge("twice", at=b"k25")
        move(client, "twice")
        killed = cluster.nodes[testing.leader_of(client, "twice") - 1]
        killed.kill()
        return killed

    with (
        writing(cluster.servers, "twice", 10_000, tmp_path / "told") as told,
        ThreadPoolExecutor() as pool,
    ):
        testing.eventually(lambda: acknowledged(told) > 10_000, what="it appends")
        snapshot = log.snapshot(lease_s=3_600)
        frame = reader(spark, cluster, "twice", minPartitions="4", asOf=snapshot.to_json()).load()
        own = reader(spark, cluster, "twice", minPartitions="4").load()
        before, since = acknowledged(told), time.monotonic()
        once, counts = own.count(), [frame.count()]
        changing = pool.submit(change)
        while not changing.done():
            counts.append(frame.count())
        killed = changing.result()
        counts.append(frame.count())
        seen, again = rows(frame), own.count()
        appended, took = acknowledged(told) - before, time.monotonic() - since
    read = sorted((e.key, e.seq, e.value) for e in snapshot.read())  # while the node is away
    killed.start()
    killed.wait_ready()
    testing.wait_healthy(cluster)
    print(f"{appended / took:.0f} records/s appended through {len(counts)} counts in {took:.1f} s")
    through = sum(part.through_seq for part in snapshot.vector.parts)
    assert through > 30_000, "what was appended meanwhile too"
    assert set(counts) == {through}
    assert again == once >= through
    assert seen == read
    assert len({(key, seq) for key, seq, _ in seen}) == through
    # A rate is not a promise of a machine with other work; that it went on through all of it is.
    assert appended > 10_000
    found = set(entries(log))
    assert set(seen) <= found
    assert rows(reader(spark, cluster, "twice").load()) == sorted(found)


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


def run(frame: DataFrame, place: Path) -> None:
    """What is available now goes to Parquet in that place, with a checkpoint beside it."""
    writer = frame.writeStream.format("parquet").option("path", str(place / "out"))
    writer = writer.option("checkpointLocation", str(place / "check"))
    writer.trigger(availableNow=True).start().awaitTermination()


def test_a_stream_that_is_killed_in_micro_batches_writes_each_entry_once(
    spark: SparkSession, cluster: Cluster, client: lognode.Client, tmp_path: Path
) -> None:
    """Three times with -9, with what its tasks have written or not; ranges split and merge."""
    log = filled(client, "stream", 8_000)
    check, out = tmp_path / "check", tmp_path / "out"
    query = (cluster.servers, "stream", check, "parquet", out, 1_000)

    def written() -> int:
        return len(list(out.glob("part-*")))

    def run(change: Any, key: bytes, *, first: int, has_written: bool) -> int:
        """One run, killed; meanwhile a range changes, and more is appended."""
        running = started(*query)
        append(log, first, first + 500)
        change("stream", at=key)
        append(log, first + 500, first + 1_000)
        had = written()
        number: int = killed_in_a_batch(running, check, lambda: not has_written or written() > had)
        return number

    changes = [(client.admin.split, b"k10"), (client.admin.merge, b"k25"),
               (client.admin.split, b"k44")]  # fmt: skip
    killed = []
    for at, (how, key) in enumerate(changes):
        number = run(how, key, first=8_000 + 1_000 * at, has_written=at > 0)
        assert newest(check, "commits") < number, "in the middle of it"
        killed.append(number)
    assert len(set(killed)) == 3, "each in another"
    running = started(*query)
    assert running.wait(180) == 0
    assert newest(check, "commits") == newest(check, "offsets") > killed[-1]
    where = "_metadata.file_modification_time", "_metadata.file_name", "_metadata.row_index"
    found = spark.read.parquet(str(out)).select("key", "seq", "value", *where).collect()
    found.sort(key=lambda row: row[3:])
    assert sorted((bytes(row.key), row.seq, bytes(row.value)) for row in found) == entries(log)
    for key in {row.key for row in found}:
        seqs = [row.seq for row in found if row.key == key]
        assert seqs == sorted(seqs), "as they were appended"


def test_trap_2_a_stream_whose_first_micro_batch_fails_loses_nothing(
    spark: SparkSession, cluster: Cluster, client: lognode.Client, tmp_path: Path
) -> None:
    """Of the first micro-batch the checkpoint has only the end: its start is found out again."""
    log = filled(client, "fails", 500)
    frame = stream(spark, cluster, "fails", maxEntriesPerTrigger="200")
    away = "string(raise_error('the sink is away')) as value"
    with pytest.raises(PySparkException, match="the sink is away"):
        run(frame.selectExpr("key", away), tmp_path)
    assert (newest(tmp_path / "check", "offsets"), newest(tmp_path / "check", "commits")) == (0, -1)
    append(log, 500, 700)
    run(frame, tmp_path)
    assert rows(spark.read.parquet(str(tmp_path / "out"))) == entries(log)


def test_an_impossible_stream_is_refused_with_the_reason(
    spark: SparkSession, cluster: Cluster, client: lognode.Client, tmp_path: Path
) -> None:
    filled(client, "refusing", 100)
    with pytest.raises(
        PySparkException, match="a stream remembers no start before its first micro-batch is"
    ):
        stream(spark, cluster, "refusing", startingSeq="latest")
    with pytest.raises(PySparkException, match="asOf: is an option of a batch"):
        run(stream(spark, cluster, "refusing", asOf="5"), tmp_path)
    run(stream(spark, cluster, "refusing"), tmp_path)
    filled(client, "refusing-2", 100)
    with pytest.raises(PySparkException, match="the snapshot is of log 'refusing'; this log is"):
        run(stream(spark, cluster, "refusing-2"), tmp_path)
