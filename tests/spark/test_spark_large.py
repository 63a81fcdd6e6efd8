"""Spark reads logs of the largest entries, from memory and from files."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from spark_jobs import job
from spark_logs import entries, reader, rows, stream

import lognode
from lognode import testing
from lognode.client.protocol import limits

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.by_hand]
Cluster = testing.LocalCluster
HEADERS = {b"%02d" % at: bytes(limits.header_bytes_max // 32 - 2) for at in range(32)}


def streamed(spark: SparkSession, cluster: Cluster, log: str, place: Path) -> int:
    """How many entries a stream of all that is there now has."""
    frame = stream(spark, cluster, log).selectExpr("key", "seq", "length(value) as bytes")
    writer = frame.writeStream.format("parquet").option("path", str(place / "out"))
    writer = writer.option("checkpointLocation", str(place / "check"))
    writer.trigger(availableNow=True).start().awaitTermination()
    return spark.read.parquet(str(place / "out")).count()


def test_twelve_values_of_a_mebibyte_in_one_range_are_read(
    spark: SparkSession, cluster: Cluster, client: lognode.Client, tmp_path: Path
) -> None:
    log = client.create_log("mebibytes")
    for at in range(12):
        log.append(b"k%02d" % at, bytes([at]) * limits.value_bytes_max)
    for at in range(3):
        log.append(b"h" * limits.key_bytes_max, bytes([at]) * limits.value_bytes_max,
                   headers=HEADERS)  # fmt: skip
    expected = entries(log)
    assert len(expected) == 15
    assert rows(reader(spark, cluster, "mebibytes").load()) == expected
    assert streamed(spark, cluster, "mebibytes", tmp_path / "memory") == 15
    client.admin.split("mebibytes", at=b"k06")  # brings into files what is in memory
    assert rows(reader(spark, cluster, "mebibytes", consistency="prefix").load()) == expected
    assert streamed(spark, cluster, "mebibytes", tmp_path / "files") == 15
    lake = tmp_path / "lake"
    assert job("export", "mebibytes", "--server", cluster.servers, "--out", lake) == 0
    copy = client.create_log("mebibytes-copy")
    assert job("replay", "mebibytes-copy", "--server", cluster.servers, "--source", lake) == 0
    copied = {(e.key, e.value) for key in list(copy.keys()) for e in copy.scan(key)}
    assert copied == {(key, value) for key, _, value in expected}


def test_entries_of_hardly_anything_but_headers_are_read(
    spark: SparkSession, cluster: Cluster, client: lognode.Client
) -> None:
    log = client.create_log("headers")
    log.append_many([(b"%d" % (at % 7), None, HEADERS) for at in range(5_000)])
    for _ in range(2):
        frame = reader(spark, cluster, "headers", includeHeaders="true").load()
        assert frame.where("size(headers) = 32").count() == 5_000
        if len(list(client.admin.ranges("headers"))) == 1:
            client.admin.split("headers", at=b"3")
