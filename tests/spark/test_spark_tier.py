"""Spark reads a log from `lognode serve-tier`: batches, SQL's snapshot mode, and a stream."""

from pathlib import Path

import pytest
from cluster_wal import SMALL_WAL
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from served_tier import served
from spark_logs import causes, entries, filled, reader, rows, stream
from tier_contents import Tier

import lognode
from lognode import testing

pytestmark = [pytest.mark.slow, pytest.mark.cluster]


def test_spark_reads_a_tier_whose_cluster_has_ended(spark: SparkSession, tmp_path: Path) -> None:
    place = str(tmp_path / "tier")
    flags = ("--tier", place, "--balance", "off", *SMALL_WAL)
    with testing.cluster(tmp_path / "source", 1, flags=flags) as source:
        with lognode.Client(source.servers, timeout=60) as client:
            log = filled(client, "flights", 3_000, split_bytes=None, split_rate=None)
            for at in ("k10", "k40"):  # a split seals what is in memory
                client.admin.split("flights", at=at)
            expected = entries(log)
            every = list(log.snapshot().read())
        testing.eventually(
            lambda: Tier.at(place).has("flights", every), what="all is in the tier", timeout_s=60
        )
        with served(place, tmp_path, "--period", "100ms") as tier:
            with lognode.Client(tier.servers, timeout=20) as other:
                testing.eventually(
                    lambda: "flights" in [each["name"] for each in other.logs()]
                    and entries(other.log("flights")) == expected,
                    what="the tier has all entries",
                )  # fmt: skip
            source.stop()
            frame = reader(spark, tier, "flights", minPartitions="6").load()
            assert rows(frame) == expected
            assert frame.count() == len(expected), "the same snapshot again"
            newest = reader(spark, tier, "flights", mode="snapshot").load()
            assert newest.count() == len({key for key, _, _ in expected})
            found = tmp_path / "found"
            query = (
                stream(spark, tier, "flights", maxEntriesPerTrigger="1000")
                .select("key", "seq", "value")
                .writeStream.format("parquet")
                .option("checkpointLocation", str(tmp_path / "checkpoint"))
                .trigger(availableNow=True)
                .start(str(found))
            )
            query.awaitTermination()
            assert rows(spark.read.parquet(str(found))) == expected
            frame = spark.createDataFrame([(b"k", b"v")], "key binary, value binary")
            with pytest.raises(PySparkException) as error:
                frame.write.format("lognode").option("servers", tier.servers).option(
                    "log", "flights"
                ).mode("append").save()
            assert any("serve-tier" in cause for cause in causes(error.value))
