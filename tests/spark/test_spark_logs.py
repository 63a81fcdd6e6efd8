"""Several logs in one frame, with real Spark and real nodes."""

import json
from pathlib import Path

import pytest
from feature_level import raise_level
from pyspark.sql import SparkSession
from spark_logs import filled

import lognode
from lognode import testing

pytestmark = [pytest.mark.slow, pytest.mark.cluster]
Row = tuple[str, bytes, int]


def entries(client: lognode.Client, *names: str) -> list[Row]:
    found = [
        (name, entry.key, entry.seq) for name in names for key in list(client.log(name).keys())
        for entry in client.log(name).scan(key)
    ]  # fmt: skip
    return sorted(found)


def test_a_batch_and_a_stream_read_the_logs_of_a_prefix(
    spark: SparkSession, cluster: testing.LocalCluster, client: lognode.Client, tmp_path: Path
) -> None:
    for name in ("eu-orders", "eu-returns", "us-orders"):
        filled(client, name, 100)
    options = {"servers": cluster.servers, "logPrefix": "eu-", "columns": "log,key,seq"}
    limited, backlogs = {**options, "maxEntriesPerTrigger": "150", "cursor": "tail"}, []
    raise_level(client)
    batch = spark.read.format("lognode").options(**options).load()
    assert sorted((r.log, bytes(r.key), r.seq) for r in batch.collect()) == entries(
        client, "eu-orders", "eu-returns"
    )

    def run() -> list[Row]:
        """All that the query has written, after one more run."""
        frame = spark.readStream.format("lognode").options(**limited).load()
        writer = frame.writeStream.format("parquet").option("path", str(tmp_path / "out"))
        writer = writer.option("checkpointLocation", str(tmp_path / "check"))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        backlogs.append(
            [
                json.loads(each["sources"][0]["latestOffset"])["backlog"]["entries"]
                for each in query.recentProgress
            ]
        )
        found = spark.read.parquet(str(tmp_path / "out")).collect()
        return sorted((row.log, bytes(row.key), row.seq) for row in found)

    assert run() == entries(client, "eu-orders", "eu-returns")
    assert backlogs.pop()[:2] == [50, 0]
    # The first of two micro-batches is in the cursor of each log.
    done = [
        client.log(name).cursor("tail").position().spans for name in ("eu-orders", "eu-returns")
    ]
    assert all(any(next_ > 1 for *_, next_ in spans) for spans in done), done
    filled(client, "eu-visits", 50)
    assert run() == entries(client, "eu-orders", "eu-returns", "eu-visits")
