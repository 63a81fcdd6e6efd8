"""What retention has removed: said on the driver before a task starts, or left out."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from spark_logs import Row, append, entries, reader, rows, stream

import lognode
from lognode import testing

pytestmark = [pytest.mark.slow, pytest.mark.cluster]
Cluster = testing.LocalCluster
_LOOKS_S = 5.0
_PATIENCE_S = 120.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One node, which builds files of some hundred KiB."""
    flags = ("--wal-file-bytes", "65536")
    with testing.cluster(tmp_path_factory.mktemp("one"), 1, flags=flags) as made:
        testing.wait_healthy(made)
        yield made


def fill(log: lognode.Log, batches: int) -> None:
    """Entries of 8,000 bytes that do not compress, eight a batch."""
    for _ in range(batches):
        log.append_many([(b"k%02d" % at, os.urandom(8_000)) for at in range(8)])


def earliest(log: lognode.Log) -> int:
    return min(next(iter(log.scan(key, limit=1))).seq for key in list(log.keys()))


def aged(client: lognode.Client, log: lognode.Log, beyond: int) -> list[Row]:
    """All that is left, once retention has removed what lies below that seq, and has ended."""
    client.alter_log(log.name, retention_bytes=4_000_000)

    def is_gone() -> bool:
        if earliest(log) > beyond:
            return True
        fill(log, 1)  # what is in memory becomes files only as more comes
        time.sleep(1.0)
        return False

    testing.eventually(is_gone, what="retention removes files", timeout_s=_PATIENCE_S)
    client.alter_log(log.name, retention_bytes=None)
    first, since = None, time.monotonic()
    while time.monotonic() - since < _LOOKS_S:
        if (now := earliest(log)) != first:
            first, since = now, time.monotonic()
        time.sleep(0.2)
    return entries(log)


def jobs(spark: SparkSession) -> list[int]:
    return sorted(spark.sparkContext.statusTracker().getJobIdsForGroup())


def test_a_snapshot_whose_lease_ran_out_fails_on_the_driver_or_reads_what_is_left(
    spark: SparkSession, cluster: Cluster, client: lognode.Client
) -> None:
    log = client.create_log("leased", replicas=1)
    fill(log, 80)
    held, saved = log.snapshot(lease_s=3600), log.snapshot(lease_s=1)
    whole = entries(log)
    time.sleep(1.1)
    left = aged(client, log, 8)
    asked = reader(spark, cluster, "leased", asOf=held.to_json()).load()
    assert rows(asked) == whole, "what a lease holds is there"
    before = jobs(spark)
    with pytest.raises(PySparkException, match="the lease of that snapshot has ended, and what it"):
        reader(spark, cluster, "leased", asOf=saved.to_json()).load().count()
    assert jobs(spark) == before
    lax = reader(spark, cluster, "leased", asOf=saved.to_json(), failOnDataLoss="false").load()
    found = rows(lax)
    assert found == [row for row in left if row in whole]
    assert 0 < len(found) < len(whole)


def test_a_stream_fails_where_retention_has_removed_what_it_has_not_read_or_goes_on(
    spark: SparkSession, cluster: Cluster, client: lognode.Client, tmp_path: Path
) -> None:
    log = client.create_log("behind", replicas=1)
    append(log, 0, 50)
    found: list[tuple[bytes, int]] = []

    def run(**options: str) -> None:
        frame = stream(spark, cluster, "behind", **options)
        writer = frame.writeStream.option("checkpointLocation", str(tmp_path))
        writer.foreachBatch(lambda some, number: found.extend(
            (bytes(row.key), row.seq) for row in some.select("key", "seq").collect()
        )).trigger(availableNow=True).start().awaitTermination()  # fmt: skip

    run()
    assert sorted(found) == [(key, seq) for key, seq, _ in entries(log)]
    found.clear()
    fill(log, 80)
    left = aged(client, log, 58)
    with pytest.raises(PySparkException, match="retention has removed entries of log 'behind'"):
        run()
    assert found == []
    run(failOnDataLoss="false")
    assert sorted(found) == [(key, seq) for key, seq, _ in left]
    assert min(seq for _, seq in found) > 58
