"""Real Spark and a node with TLS and tokens: the address of the servers names the files."""

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from spark_logs import entries, filled, reader, rows

import lognode
from lognode import testing

pytestmark = [pytest.mark.slow, pytest.mark.cluster]


def test_a_log_is_read_and_written_with_tls_and_a_token(
    spark: SparkSession, tmp_path: Path
) -> None:
    with testing.cluster(tmp_path, 1, tls=True, auth=True) as cluster:
        assert cluster.servers.startswith("lognodes://")
        assert "token=" in cluster.servers
        with lognode.Client(cluster.servers) as client:
            log = filled(client, "flights", 200)
            copies = client.create_log("copies")
            assert rows(reader(spark, cluster, "flights").load()) == entries(log)
            frame = reader(spark, cluster, "flights", columns="key,value").load()
            frame.write.format("lognode").option("servers", cluster.servers).option(
                "log", "copies"
            ).mode("append").save()
            assert len(entries(copies)) == 200
        anonymous, _, _ = cluster.servers.partition("&token=")
        secured = spark.read.format("lognode").option("servers", anonymous).option("log", "flights")
        with pytest.raises(PySparkException, match="token"):
            secured.load().count()
