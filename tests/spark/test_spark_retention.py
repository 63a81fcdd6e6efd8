"""What retention has removed: said on the driver before a task starts, or left out."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from spark_jobs import attempts, job
from spark_logs import Row, append, entries, reader, rows, stream

import lognode
from lognode import testing
from lognode.client.spark.jobs import manifest
from lognode.client.spark.jobs.export import exported
from lognode.client.spark.jobs.place import Place

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.by_hand]
Cluster = testing.LocalCluster
_LOOKS_S = 5.0
_PATIENCE_S = 120.0


@pytest.fixture(scope="module")
def cluster(module_path: Path) -> Iterator[Cluster]:
    """One node, which builds files of some hundred KiB."""
    flags = ("--wal-file-bytes", "65536")
    with testing.cluster(module_path, 1, flags=flags) as made:
        testing.wait_healthy(made)
        yield made


def fill(log: lognode.Log, batches: int) -> None:
    """Entries of 8,000 bytes that do not compress, eight a batch."""
    for _ in range(batches):
        log.append_many([(b"k%02d" % at, os.urandom(8_000)) for at in range(8)])


def earliest(log: lognode.Log) -> int:
    """The seq of the oldest entry; a key that was listed may have none any more."""
    return min(entry.seq for key in list(log.keys()) for entry in log.scan(key, limit=1))


def aged(client: lognode.Client, log: lognode.Log, beyond: int) -> tuple[str, int, list[Row]]:
    """A snapshot of short lease and its seq, from shortly before retention removed what lies below
    the seq `beyond`; and all that is left, once retention has ended, and that lease."""
    client.alter_log(log.name, retention_bytes=1_000_000)
    taken: list[lognode.Snapshot] = []

    def is_gone() -> bool:
        if earliest(log) > beyond and taken:
            return True
        taken.append(log.snapshot(lease_s=1))
        fill(log, 1)  # what is in memory becomes files only as more comes
        time.sleep(0.2)
        return False

    testing.eventually(is_gone, what="retention removes files", timeout_s=_PATIENCE_S)
    client.alter_log(log.name, retention_bytes=None)
    first, since = None, time.monotonic()
    while time.monotonic() - since < _LOOKS_S:
        if (now := earliest(log)) != first:
            first, since = now, time.monotonic()
        time.sleep(0.2)
    fill(log, 1)  # log time goes on, and the lease ends
    saved = taken[-1]
    return saved.to_json(), saved.vector.parts[0].through_seq, entries(log)


def jobs(spark: SparkSession) -> list[int]:
    found: list[int] = spark.sparkContext.statusTracker().getJobIdsForGroup()
    return sorted(found)


def test_a_snapshot_whose_lease_ran_out_fails_on_the_driver_or_reads_what_is_left(
    spark: SparkSession, cluster: Cluster, client: lognode.Client
) -> None:
    log = client.create_log("leased", replicas=1)
    fill(log, 40)
    saved, through, left = aged(client, log, 8)
    before = jobs(spark)
    with pytest.raises(PySparkException, match="the lease of the snapshot has ended"):
        reader(spark, cluster, "leased", asOf=saved).load().count()
    assert jobs(spark) == before
    lax = reader(spark, cluster, "leased", asOf=saved, failOnDataLoss="false").load()
    found = rows(lax)
    assert found == [row for row in left if row[1] <= through]
    assert 0 < len(found) < through


def test_a_batch_that_begins_below_what_is_left_fails_on_the_driver_or_reads_what_is_left(
    spark: SparkSession, cluster: Cluster, client: lognode.Client
) -> None:
    log = client.create_log("begins", replicas=1)
    append(log, 0, 10)
    begin, since = log.snapshot().to_json(), min(entry.timestamp_ms for entry in log.scan(b"k09"))
    fill(log, 40)
    _, _, left = aged(client, log, 60)
    for start in ({"startingSeq": begin}, {"startingSeq": "11"}, {"startingTimestamp": f"{since}"}):
        before = jobs(spark)
        with pytest.raises(
            PySparkException, match="retention has removed unread entries of log 'begins'"
        ):
            reader(spark, cluster, "begins", **start).load().count()
        assert jobs(spark) == before
        lax = reader(spark, cluster, "begins", failOnDataLoss="false", **start)
        assert rows(lax.load()) == left
    some = {"startingSeq": f"{min(seq for _, seq, _ in left)}"}
    for start in (some, {"startingSeq": "earliest"}, {}):
        assert rows(reader(spark, cluster, "begins", **start).load()) == left


def test_an_export_behind_retention_is_refused_or_goes_on_when_it_is_allowed_to(
    spark: SparkSession, cluster: Cluster, client: lognode.Client, tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    log = client.create_log("late", replicas=1)
    append(log, 0, 10)
    run = ("export", "late", "--server", cluster.servers, "--out", tmp_path)
    assert job(*run) == 0
    first = entries(log)
    fill(log, 40)
    _, _, left = aged(client, log, 60)
    before = jobs(spark)
    capfd.readouterr()
    assert job(*run) == 1
    said = capfd.readouterr().err.splitlines()[-1]
    assert "retention has removed unread entries of log 'late'" in said
    assert "this export begins with 11. Give --allow-loss" in said
    assert jobs(spark) == before
    assert len(attempts(tmp_path)) == 1
    assert job(*run, "--allow-loss") == 0
    place = Place(spark, str(tmp_path))
    assert rows(exported(spark, place, manifest.all_of(place))) == sorted([*first, *left])
    assert job(*run, "--removals") == 0
    assert rows(exported(spark, place, manifest.all_of(place))) == left == entries(log)


def test_a_stream_fails_where_retention_has_removed_what_it_has_not_read_or_goes_on(
    spark: SparkSession, cluster: Cluster, client: lognode.Client, tmp_path: Path
) -> None:
    log = client.create_log("behind", replicas=1)
    append(log, 0, 50)
    out = tmp_path / "out"
    before: list[tuple[bytes, int]] = []

    def run(**options: str) -> list[tuple[bytes, int]]:
        """What one more run of the query has written."""
        frame = stream(spark, cluster, "behind", **options).select("key", "seq")
        writer = frame.writeStream.format("parquet").option("path", str(out))
        writer = writer.option("checkpointLocation", str(tmp_path / "check"))
        writer.trigger(availableNow=True).start().awaitTermination()
        found = spark.read.parquet(str(out)).collect()
        new = sorted({(bytes(row.key), row.seq) for row in found} - {*before})
        before.extend(new)
        assert len(before) == len(found), "nothing twice"
        return new

    assert run() == [(key, seq) for key, seq, _ in entries(log)]
    fill(log, 40)
    _, _, left = aged(client, log, 58)
    with pytest.raises(
        PySparkException, match="retention has removed unread entries of log 'behind'"
    ):
        run()
    found = run(failOnDataLoss="false")
    assert found == [(key, seq) for key, seq, _ in left]
    assert min(seq for _, seq in found) > 58
