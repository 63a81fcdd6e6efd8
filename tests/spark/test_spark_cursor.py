"""Patterns and kept cursors of batches and streams, in a real Spark."""

from pathlib import Path

import pytest
from feature_level import raise_level
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from spark_logs import causes, reader, rows, stream

import lognode
from lognode import testing

pytestmark = [pytest.mark.slow, pytest.mark.cluster]
Cluster = testing.LocalCluster
KEYS = [b"eu/1/orders", b"eu/1/seen", b"eu/7/orders", b"us/1/orders", b"us/12/orders"]


@pytest.fixture
def log(client: lognode.Client, request: pytest.FixtureRequest) -> lognode.Log:
    """A log with a hierarchy, at the feature level that this and cursors need."""
    raise_level(client)
    return client.create_log(f"shop-{request.node.name[:20]}", hierarchy="/", split_at=[b"m"])


def append(log: lognode.Log, first: int, end: int) -> None:
    log.append_many([(key, b"%d" % at) for at in range(first, end) for key in KEYS])


def run(frame: DataFrame, checkpoint: Path, *, fails: bool = False) -> list[int]:
    """Run a query until all is read that there is now; the values of each row, in order."""
    found: list[int] = []

    def take(batch: DataFrame, number: int) -> None:
        some = [int(bytes(row["value"])) for row in batch.select("value").collect()]
        if fails and some:
            raise RuntimeError("the sink is broken")
        found.extend(some)

    query = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(checkpoint))
    query.trigger(availableNow=True).start().awaitTermination(120)
    return sorted(found)


def test_patterns_choose_the_rows_of_batches_and_streams(
    spark: SparkSession, cluster: Cluster, log: lognode.Log, tmp_path: Path
) -> None:
    append(log, 0, 100)
    given = '["eu/*/orders", "us/1*/>", "!us/12/>"]'
    due = sorted((entry.key, entry.seq, entry.value)
                 for key in (KEYS[0], KEYS[2], KEYS[3]) for entry in log.scan(key))  # fmt: skip
    frame = reader(spark, cluster, log.name, pattern=given, minPartitions="4").load()
    assert rows(frame) == due
    latest = reader(spark, cluster, log.name, pattern="eu/>", mode="snapshot").load()
    assert [key for key, _, _ in rows(latest)] == KEYS[:3]
    frame = stream(spark, cluster, log.name, pattern=given, maxEntriesPerTrigger="150")
    assert run(frame, tmp_path / "check") == sorted([*range(100)] * 3)


def test_a_micro_batch_has_as_many_tasks_as_asked_for(
    spark: SparkSession, cluster: Cluster, log: lognode.Log, tmp_path: Path
) -> None:
    found: list[int] = []
    tasks: list[int] = []

    def take(batch: DataFrame, number: int) -> None:
        tasks.append(batch.rdd.getNumPartitions())
        found.extend(row["seq"] for row in batch.select("seq").collect())

    checkpoint = str(tmp_path / "check")
    for end, least in ((1, 6), (2, 1)):
        log.append_many([(b"%04d" % at, b"x" * 500) for at in range(2_000)])
        frame = stream(spark, cluster, log.name, minPartitions=str(least))
        query = frame.writeStream.foreachBatch(take).option("checkpointLocation", checkpoint)
        query.trigger(availableNow=True).start().awaitTermination(120)
        assert len(found) == len(set(found)) == 2_000 * end
    assert tasks[0] >= 6
    assert tasks[1:] == [1], "only the keys below b'm' have entries"


def test_trap_2_S5_a_stream_from_the_latest_entry_loses_nothing_when_its_first_batch_fails(
    spark: SparkSession, cluster: Cluster, client: lognode.Client, log: lognode.Log, tmp_path: Path
) -> None:
    append(log, 0, 50)
    options = {"cursor": "tail", "pattern": "eu/*/orders", "startingSeq": "latest"}
    assert run(stream(spark, cluster, log.name, **options), tmp_path / "check") == []
    append(log, 50, 60)
    with pytest.raises(PySparkException) as raised:
        run(stream(spark, cluster, log.name, **options), tmp_path / "check", fails=True)
    assert any("the sink is broken" in text for text in causes(raised.value))
    append(log, 60, 90)
    client.admin.split(log.name, at=b"eu/5")
    frame = stream(spark, cluster, log.name, **options)
    assert run(frame, tmp_path / "check") == sorted([*range(50, 90)] * 2)
    # Two micro-batches are done: the cursor is behind the first.
    spans = log.cursor("tail", pattern="eu/*/orders").position().spans
    assert min(next_ for _, _, next_ in spans) > 1
    # A query with a new checkpoint begins there, and the older query cannot move the cursor.
    append(log, 90, 95)
    again = run(stream(spark, cluster, log.name, **options), tmp_path / "new")
    assert again == sorted([*range(60, 95)] * 2)
    rest = reader(spark, cluster, log.name, cursor="tail", pattern="eu/*/orders").load()
    assert sorted(int(value or 0) for _, _, value in rows(rest)) == again
