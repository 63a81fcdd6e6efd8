"""The sinks with real Spark and real nodes: what is written is there once, however often tried."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from spark_logs import append, entries, filled, stream, values
from spark_query import killed_in_a_batch, newest, started

import lognode
from lognode import testing

pytestmark = [pytest.mark.slow, pytest.mark.cluster]
Cluster = testing.LocalCluster


def save(frame: DataFrame, cluster: Cluster, log: str, /, **options: str) -> None:
    writer = frame.write.format("lognode").option("servers", cluster.servers).option("log", log)
    writer.options(**options).mode("append").save()


def numbers(spark: SparkSession, count: int, partitions: int = 3) -> DataFrame:
    """So many rows, of 40 keys."""
    made = spark.range(0, count, 1, partitions)
    return made.selectExpr("concat('k', id % 40) as key", "cast(id as string) as value")


def test_rows_become_entries(spark: SparkSession, cluster: Cluster, client: lognode.Client) -> None:
    log = client.create_log("written", split_at=[b"k2"])
    save(numbers(spark, 2_000), cluster, "written")
    assert values(log) == sorted(b"%d" % at for at in range(2_000))
    for key in (b"k0", b"k39"):
        history = [int(entry.value or b"") for entry in log.scan(key)]
        assert len(history) == 50
        assert {at % 40 for at in history} == {int(key[1:])}
    odd = spark.sql(
        "select binary('ä') as key, cast(null as binary) as value, "
        "array(named_struct('key', 'h', 'value', binary('1'))) as headers"
    )
    save(odd, cluster, "written")
    found = log.latest("ä")
    assert found is not None
    assert (found.value, found.headers) == (None, {b"h": b"1"})


def test_S8_a_task_that_is_tried_again_adds_nothing_twice(
    spark: SparkSession, cluster: Cluster, client: lognode.Client, tmp_path: Path
) -> None:
    log = client.create_log("tried", split_at=[b"k2"])
    marks = str(tmp_path)

    def fails_half_way(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for at in range(0, batch.num_rows, 100):
                yield batch.slice(at, 100)
            mark = Path(marks) / batch["value"][0].as_py()
            if not mark.exists():
                mark.touch()
                raise OSError("half-way")

    frame = numbers(spark, 3_000)
    save(frame.mapInArrow(fails_half_way, frame.schema), cluster, "tried")
    assert len(list(tmp_path.iterdir())) >= 3
    assert values(log) == sorted(b"%d" % at for at in range(3_000))
    save(frame, cluster, "tried")
    assert len(entries(log)) == 6_000, "another save adds its rows once more"


def copy(
    spark: SparkSession, cluster: Cluster, name: str, to: str, place: Path, **options: str
) -> None:
    """A stream from one log to another, of what is available now."""
    frame = stream(spark, cluster, name, **options).select("key", "value")
    writer = frame.writeStream.format("lognode").option("servers", cluster.servers)
    writer = writer.option("log", to).option("checkpointLocation", str(place))
    writer.trigger(availableNow=True).start().awaitTermination()


def test_S8_a_micro_batch_that_runs_again_adds_nothing_twice(
    spark: SparkSession, cluster: Cluster, client: lognode.Client, tmp_path: Path
) -> None:
    """Its end was planned and its rows were written, and Spark was lost before it noted that."""
    log, other = filled(client, "from", 2_000), client.create_log("to", split_at=[b"k30"])
    copy(spark, cluster, "from", "to", tmp_path, maxEntriesPerTrigger="700")
    assert values(other) == values(log)
    for again in range(2):
        newest = max((file for file in (tmp_path / "commits").iterdir() if file.name.isdigit()),
                     key=lambda file: int(file.name))  # fmt: skip
        newest.unlink()
        (newest.parent / f".{newest.name}.crc").unlink(missing_ok=True)
        client.admin.split("from", at=b"k1%d" % again)
        client.admin.split("to", at=b"k4%d" % again)
        append(log, 2_000 + 300 * again, 2_300 + 300 * again)
        copy(spark, cluster, "from", "to", tmp_path, maxEntriesPerTrigger="700")
        assert values(other) == values(log)
    for key in {key for key, _, _ in entries(log)}:
        assert [e.value for e in other.scan(key)] == [e.value for e in log.scan(key)]


def test_S8_a_query_that_is_killed_behind_its_append_adds_nothing_twice(
    spark: SparkSession, cluster: Cluster, client: lognode.Client, tmp_path: Path
) -> None:
    """kill -9 where the sink has written some of a micro-batch, or all, and Spark has not noted it;
    what was planned then is done by the next run, with the same numbers."""
    log, other = filled(client, "source", 6_000), client.create_log("sunk", split_at=[b"k30"])
    query = (cluster.servers, "source", tmp_path, "lognode", "sunk", 1_000)

    def appended() -> int:
        return sum(part.through_seq for part in other.snapshot(lease_s=1).vector.parts)

    def has_appended() -> bool:
        planned: int = newest(tmp_path, "offsets")
        return appended() > 1_000 * planned

    killed = []
    for at in range(2):
        killed.append(killed_in_a_batch(started(*query), tmp_path, has_appended))
        assert newest(tmp_path, "commits") < killed[-1], "Spark has not noted it"
        assert appended() > 1_000 * killed[-1], "and some of it is written"
        client.admin.split("source", at=b"k1%d" % at)
        append(log, 6_000 + 500 * at, 6_500 + 500 * at)
    running = started(*query)
    assert running.wait(180) == 0
    assert killed[0] < killed[1] < newest(tmp_path, "commits")
    assert values(other) == values(log)
    for key in {key for key, _, _ in entries(log)}:
        assert [e.value for e in other.scan(key)] == [e.value for e in log.scan(key)]


def test_what_cannot_be_written_is_refused(
    spark: SparkSession, cluster: Cluster, client: lognode.Client
) -> None:
    client.create_log("refuses", exist_ok=True)
    frame = numbers(spark, 10)
    for made, options, said in (
        (frame.select("key"), {}, "no column 'value' to be written"),
        (frame.selectExpr("*", "1 as seq"), {}, "a column 'seq' to be written"),
        (frame.selectExpr("1 as key", "value"), {}, "column key is int; cast it"),
        (frame, {"log": "nope"}, "no log.*nope"),
        (frame, {"mode": "changes"}, "mode: is one of a batch or a stream, and this is a sink"),
        (frame.selectExpr("cast(null as string) as key", "value"), {}, "key of row 0 .* is null"),
    ):
        with pytest.raises(PySparkException, match=said):
            save(made, cluster, "refuses", **options)
    with pytest.raises(PySparkException, match="nothing in it is overwritten"):
        frame.write.format("lognode").option("servers", cluster.servers).option(
            "log", "refuses"
        ).mode("overwrite").save()
    assert entries(client.log("refuses")) == []
