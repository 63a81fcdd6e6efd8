"""The batch source with real Spark and real nodes: columns, selections, partitions, refusals."""

import re
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceReader, InputPartition
from spark_logs import append, entries, filled, reader, rows

import lognode
from lognode import testing
from lognode.client.spark.source import LognodeSource

pytestmark = [pytest.mark.slow, pytest.mark.cluster]
Cluster = testing.LocalCluster


def test_spark_finds_the_source_and_reads_what_the_sdk_reads(
    spark: SparkSession, cluster: Cluster, client: lognode.Client
) -> None:
    log = filled(client, "flights", 3_000)
    log.append(b"k00", None, headers={b"h": b"1"})
    frame = reader(spark, cluster, "flights").load()
    assert frame.columns == ["key", "value", "log", "seq", "timestamp"]
    assert frame.count() == 3_001
    assert rows(frame) == entries(log)
    one = frame.where("seq = 1").orderBy("key").first()
    assert one is not None
    first = next(iter(log.scan(bytes(one.key))))
    assert one.log == "flights"
    assert round(one.timestamp.timestamp() * 1000) == first.timestamp_ms
    headers = reader(spark, cluster, "flights", includeHeaders="true").load()
    (found,) = headers.where("value is null").collect()
    assert [(bytes(h.key), bytes(h.value)) for h in found.headers] == [(b"h", b"1")]


def test_columns_keys_prefixes_and_times_are_selected(
    spark: SparkSession, cluster: Cluster, client: lognode.Client
) -> None:
    log = filled(client, "selected", 1_000)
    every = entries(log)
    frame = reader(spark, cluster, "selected", columns="seq,rangeStart", keys='["k03", "k30"]')
    assert frame.load().columns == ["seq", "rangeStart"]
    assert {bytes(row.rangeStart) for row in frame.load().collect()} == {b"", b"k25"}
    for options, expected in (
        ({"keys": "k07"}, [row for row in every if row[0] == b"k07"]),
        ({"keyPrefix": "k2"}, [row for row in every if row[0].startswith(b"k2")]),
        ({"startingSeq": "100", "endingSeq": "200"}, [row for row in every if 100 <= row[1] < 200]),
        ({"keys": "nobody"}, []),
    ):
        assert rows(reader(spark, cluster, "selected", **options).load()) == expected, options
    at = log.append(b"k00", b"late")
    append(log, 1_000, 1_100)
    assert at.timestamp_ms is not None
    late = reader(spark, cluster, "selected", startingTimestamp=str(at.timestamp_ms)).load()
    early = reader(spark, cluster, "selected", endingTimestamp=str(at.timestamp_ms)).load()
    assert rows(early) + rows(late) != []
    assert sorted(rows(early) + rows(late)) == entries(log)
    as_of = reader(spark, cluster, "selected", asOf=str(at.timestamp_ms - 1)).load()
    assert rows(as_of) == rows(early)


def test_the_latest_value_of_each_key(
    spark: SparkSession, cluster: Cluster, client: lognode.Client
) -> None:
    log = filled(client, "latest", 2_000)
    log.append(b"k11", None)
    log.append(b"k12", b"new")
    expected = [
        (entry.key, entry.seq, entry.value) for key in {key for key, _, _ in entries(log)}
        if (entry := log.latest(key)) is not None and entry.value is not None
    ]  # fmt: skip
    frame = reader(spark, cluster, "latest", mode="snapshot", minPartitions="4").load()
    assert rows(frame) == sorted(expected)
    assert len(expected) == 49


def test_a_task_of_spark_imports_no_pandas(
    spark: SparkSession, cluster: Cluster, client: lognode.Client, tmp_path: Path
) -> None:
    """A worker that ran another task before may have pandas already."""
    folder = str(tmp_path)

    class Told(DataSourceReader):
        def __init__(self, inner: DataSourceReader) -> None:
            self.inner = inner

        def partitions(self) -> Any:
            return self.inner.partitions()

        def read(self, partition: InputPartition) -> Iterator[Any]:
            before = "pandas" in sys.modules
            yield from self.inner.read(partition)
            after = "pandas" in sys.modules
            (Path(folder) / f"{uuid.uuid4().hex}.txt").write_text(f"{before} {after}")

    class Source(LognodeSource):
        @classmethod
        def name(cls) -> str:
            return "lognode-told"

        def reader(self, schema: Any) -> DataSourceReader:
            return Told(super().reader(schema))

    filled(client, "modules", 1_000)
    spark.dataSource.register(Source)
    frame = spark.read.format("lognode-told").option("servers", cluster.servers)
    assert frame.option("log", "modules").load().count() == 1_000
    found = {file.read_text() for file in tmp_path.iterdir()}
    assert found
    assert found <= {"False False", "True True"}


@pytest.mark.by_hand
def test_partitions_are_cut_by_bytes_and_have_the_same_rows(
    spark: SparkSession, cluster: Cluster, client: lognode.Client
) -> None:
    log = filled(client, "cut", 100)
    log.append_many([(b"k%04d" % at, b"x" * 2_000) for at in range(3_000)])
    frame = reader(spark, cluster, "cut", minPartitions="8").load()
    assert frame.rdd.getNumPartitions() >= 8
    sizes = [len(part) for part in frame.select("seq").rdd.glom().collect()]
    assert sum(sizes) == 3_100
    assert max(sizes) < 3_100 / 3, sizes
    assert rows(frame) == entries(log)
    assert reader(spark, cluster, "cut").load().rdd.getNumPartitions() == 2


def test_trap_3_an_empty_log_is_an_empty_frame(
    spark: SparkSession, cluster: Cluster, client: lognode.Client
) -> None:
    client.create_log("empty")
    frame = reader(spark, cluster, "empty").load()
    assert frame.count() == 0
    assert frame.collect() == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"lg": "x"},
            r"option lg: is not an option of lognode; the options are servers, log, logs",
        ),
        ({"pushdown": "true"}, "option pushdown: .*all others of the same DataFrame"),
        ({"pattern": "a*b"}, "option pattern: the pattern `a.b` has a `.` within a level"),
        (
            {"credentialsFile": "x"},
            "option credentialsFile: does not exist: give the file of a token",
        ),
        ({"log": "nope"}, "log .nope. does not exist"),
        ({"maxEntriesPerTrigger": "5"}, "maxEntriesPerTrigger: is an option of a stream"),
        ({"servers": "127.0.0.1:1", "timeout": "2s"}, "127.0.0.1:1"),
    ],
)
def test_bad_options_are_refused_before_a_task_starts(
    spark: SparkSession, cluster: Cluster, client: lognode.Client,
    options: dict[str, str], said: str,
) -> None:  # fmt: skip
    client.create_log("refused", exist_ok=True)
    before = spark.sparkContext.statusTracker().getJobIdsForGroup()
    with pytest.raises(PySparkException, match=said):
        reader(spark, cluster, "refused", **options).load().count()
    assert spark.sparkContext.statusTracker().getJobIdsForGroup() == before


def test_a_vector_of_another_log_and_a_lease_that_ended_are_refused(
    spark: SparkSession, cluster: Cluster, client: lognode.Client
) -> None:
    log, other = filled(client, "mine", 100), filled(client, "other", 100)
    with pytest.raises(
        PySparkException, match=re.escape("the snapshot is of log 'other'; this log is")
    ):
        reader(spark, cluster, "mine", asOf=other.snapshot().to_json()).load().count()
    snapshot = log.snapshot()
    saved: Any = snapshot.to_json()
    append(log, 100, 200)
    assert reader(spark, cluster, "mine", asOf=saved).load().count() == 100
    snapshot.release()
    with pytest.raises(PySparkException, match="the lease of the snapshot has ended"):
        reader(spark, cluster, "mine", asOf=saved).load().count()
    lax = reader(spark, cluster, "mine", asOf=saved, failOnDataLoss="false").load()
    assert lax.count() == 100
    with pytest.raises(PySparkException, match=r"leave \.schema"):
        reader(spark, cluster, "mine").schema("key binary").load().count()
