"""The sinks with real Spark and real nodes: what is written is there once, however often tried."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from spark_logs import append, entries, filled, histories, stream, values
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


@pytest.fixture
def handed_on_early(spark: SparkSession) -> Iterator[None]:
    """Spark hands few rows on at a time. With values of 4 kB these are more than its buffers hold,
    so a sink has rows of a task that is about to fail."""
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(name)
    spark.conf.set(name, "20")
    yield
    spark.conf.set(name, str(before))


def half_way(servers: str, log: str, marks: Path, failures: dict[int, int]) -> Any:
    """Rows pass, and of each task of a micro-batch (of a batch: 0) so many attempts fail, each
    later than that before, and once the log has rows that only this attempt has come to."""
    marks.mkdir()
    where, micro_batch = str(marks), "streaming.sql.batchId"

    def wait_for(batch: pa.RecordBatch) -> None:
        key, value = (batch[name][-1].as_py() for name in ("key", "value"))
        with lognode.Client(servers) as client:
            testing.eventually(
                lambda: any(entry.value == value for entry in client.log(log).scan(key)),
                what="rows of a task that goes on are in the log",
            )

    def passing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = TaskContext.get()
        assert task is not None
        number, attempt = task.getLocalProperty(micro_batch) or "0", task.attemptNumber()
        fails = attempt < failures.get(int(number), 0)
        passed: list[pa.RecordBatch] = []
        for batch in batches:
            yield batch
            passed.append(batch)
            if fails and len(passed) == 3 * (attempt + 1):
                # The sink may not have the last one whole yet, nor that before; this it has.
                wait_for(passed[-3])
                (Path(where) / f"{number}-{task.partitionId()}-{attempt}").touch()
                raise OSError("half-way")

    return passing


def failed(marks: Path) -> set[str]:
    """MICRO-BATCH, TASK and ATTEMPT of those that failed half-way."""
    return {mark.name for mark in marks.iterdir()}


@pytest.mark.by_hand
@pytest.mark.usefixtures("handed_on_early")
def test_S8_a_task_that_is_tried_again_adds_nothing_twice(
    spark: SparkSession, cluster: Cluster, client: lognode.Client, tmp_path: Path
) -> None:
    log, marks = client.create_log("tried", split_at=[b"k2"]), tmp_path / "marks"
    frame = spark.range(0, 600, 1, 3).selectExpr(
        "concat('k', id % 40, '-', id div 200) as key", "binary(rpad(id, 4000, ' ')) as value"
    )  # a key is of one task, so that its order is that of the task
    fails = half_way(cluster.servers, "tried", marks, {0: 2})
    save(frame.mapInArrow(fails, frame.schema), cluster, "tried")
    assert failed(marks) == {f"0-{task}-{attempt}" for task in range(3) for attempt in range(2)}
    expected: dict[bytes, list[int]] = {}
    for at in range(600):
        expected.setdefault(b"k%d-%d" % (at % 40, at // 200), []).append(at)
    found = {key: [int(value or b"") for value in of] for key, of in histories(log).items()}
    assert found == expected
    save(frame, cluster, "tried")
    assert len(entries(log)) == 1_200, "another save adds its rows once more"


def copy(
    spark: SparkSession, cluster: Cluster, name: str, to: str, place: Path, **options: str
) -> None:
    """A stream from one log to another, of what is available now."""
    frame = stream(spark, cluster, name, **options).select("key", "value")
    writer = frame.writeStream.format("lognode").option("servers", cluster.servers)
    writer = writer.option("log", to).option("checkpointLocation", str(place))
    writer.trigger(availableNow=True).start().awaitTermination()


@pytest.mark.by_hand
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
        assert histories(other) == histories(log)


@pytest.mark.usefixtures("handed_on_early")
def test_S8_a_task_of_a_micro_batch_that_is_tried_again_adds_nothing_twice(
    spark: SparkSession, cluster: Cluster, client: lognode.Client, tmp_path: Path
) -> None:
    """First in vain, so that the query ends; started again, it does the micro-batch once more."""
    log = client.create_log("tries", split_at=[b"k25"])
    other = client.create_log("flaky", split_at=[b"k30"])
    log.append_many([(b"k%02d" % (at % 50), b"%4000d" % at) for at in range(1_200)])

    def run(marks: Path, failures: dict[int, int]) -> None:
        frame = stream(spark, cluster, "tries", maxEntriesPerTrigger="400").select("key", "value")
        fails = half_way(cluster.servers, "flaky", marks, failures)
        writer = frame.mapInArrow(fails, frame.schema).writeStream.format("lognode")
        writer = writer.option("servers", cluster.servers).option("log", "flaky")
        writer = writer.option("checkpointLocation", str(tmp_path / "check"))
        writer.trigger(availableNow=True).start().awaitTermination()

    with pytest.raises(PySparkException, match="half-way"):
        run(tmp_path / "first", {0: 1, 1: 3})
    marks = failed(tmp_path / "first")
    assert {"0-0-0", "0-1-0"} < marks
    assert {"1-0-2", "1-1-2"} & marks, "all attempts of a task"
    assert newest(tmp_path / "check", "commits") == 0
    assert len(entries(other)) > 400, "some of what is not noted is written"
    planned, found = histories(log), histories(other)
    assert found == {key: planned[key][: len(found[key])] for key in found}
    run(tmp_path / "second", {1: 1, 2: 1})
    assert failed(tmp_path / "second") == {"1-0-0", "1-1-0", "2-0-0", "2-1-0"}
    assert histories(other) == histories(log)


@pytest.mark.by_hand
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
    assert histories(other) == histories(log)


def test_rows_of_a_wrong_shape_are_refused(
    spark: SparkSession, cluster: Cluster, client: lognode.Client
) -> None:
    client.create_log("refuses", exist_ok=True)
    frame = numbers(spark, 10)
    for made, options, said in (
        (frame.select("key"), {}, "no column 'value'; a write"),
        (frame.selectExpr("*", "1 as seq"), {}, "a column 'seq'; a write"),
        (frame.selectExpr("1 as key", "value"), {}, "column key is int; cast it"),
        (frame.selectExpr("*", "1 as expect"), {}, "column expect is int; cast the column to big"),
        (frame, {"log": "nope"}, "log.*nope.*does not exist"),
        (frame, {"mode": "changes"}, "mode: is an option of a batch or a stream, but"),
        (frame.selectExpr("cast(null as string) as key", "value"), {}, "key of row 0 .* is null"),
    ):
        with pytest.raises(PySparkException, match=said):
            save(made, cluster, "refuses", **options)
    with pytest.raises(PySparkException, match=r"a stream with outputMode\('append'\) or 'update'"):
        frame.write.format("lognode").option("servers", cluster.servers).option(
            "log", "refuses"
        ).mode("overwrite").save()
    assert entries(client.log("refuses")) == []


def test_rows_name_their_log_and_their_condition(
    spark: SparkSession, cluster: Cluster, client: lognode.Client
) -> None:
    first, second = client.create_log("first"), client.create_log("second", split_at=[b"k2"])
    rows = numbers(spark, 90).selectExpr(
        "*", "if(value % 3 = 0, 'first', 'second') as log", "cast(null as long) as expect"
    )
    writer = rows.write.format("lognode").option("servers", cluster.servers).mode("append")
    writer.save()
    assert values(first) == sorted(b"%d" % at for at in range(0, 90, 3))
    assert len(entries(second)) == 60
    last = second.latest(b"k1")
    assert last is not None
    one = spark.sql(f"select 'k1' as key, 'v' as value, {last.seq}L as expect")
    save(one, cluster, "second")
    with pytest.raises(PySparkException) as raised:
        save(one, cluster, "second")
    said = f"a row of key b'k1' expects the last seq {last.seq}, and the last seq of the key in log"
    assert said in str(raised.value)
    assert [entry.value for entry in second.scan(b"k1")][-2:] == [last.value, b"v"]


def test_S8_a_save_that_is_called_again_with_its_id_adds_nothing_twice(
    spark: SparkSession, cluster: Cluster, client: lognode.Client
) -> None:
    log = client.create_log("saved", split_at=[b"k2"])
    for write_id, rows in (("load-1", 60), ("load-1", 60), ("load-2", 120)):
        save(numbers(spark, 60), cluster, "saved", writeId=write_id)
        assert len(entries(log)) == rows
