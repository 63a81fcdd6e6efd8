"""Logs in SQL: views, and the tables that Spark cannot make."""

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession, datasource
from spark_logs import append, filled

import lognode
from lognode import testing

pytestmark = [pytest.mark.slow, pytest.mark.cluster]


def test_a_view_shows_one_snapshot_until_it_is_replaced(
    spark: SparkSession, cluster: testing.LocalCluster, client: lognode.Client
) -> None:
    log = filled(client, "viewed", 100)

    def count(query: str = "SELECT count(*) FROM v") -> int:
        found: int = spark.sql(query).collect()[0][0]
        return found

    view = f"TEMPORARY VIEW v USING lognode OPTIONS (servers '{cluster.servers}', log 'viewed')"
    spark.sql(f"CREATE {view}")
    assert count() == 100
    assert count("SELECT count(*) FROM v WHERE cast(key AS string) = 'k07'") == 2
    append(log, 100, 150)
    spark.sql("REFRESH TABLE v")
    assert count() == 100, "Spark tells a source written in Python of no refresh"
    spark.sql(f"CREATE OR REPLACE {view}")
    assert count() == 150


def test_a_table_is_refused_in_one_line(spark: SparkSession, cluster: testing.LocalCluster) -> None:
    options = f"OPTIONS (servers '{cluster.servers}', log 'viewed')"
    with pytest.raises(PySparkException, match=r"CREATE TABLE.*Use CREATE TEMPORARY VIEW"):
        spark.sql(f"CREATE TABLE t USING lognode {options}")
    spark.sql(f"CREATE TABLE u (key binary, value binary) USING lognode {options}")
    with pytest.raises(PySparkException, match="option servers: is not given"):
        spark.sql("SELECT * FROM u").collect()
    spark.sql("DROP TABLE u")


def test_a_source_in_python_cannot_be_a_catalog(spark: SparkSession) -> None:
    """Spark takes a class of Java that is a CatalogPlugin, and Python's API has no such class."""
    assert [name for name in datasource.__all__ if "catalog" in name.lower()] == []
    for number, name in enumerate(("lognode", "pyspark_lognode.DefaultSource")):
        spark.conf.set(f"spark.sql.catalog.log{number}", name)
        with pytest.raises(Py4JJavaError, match=f"PLUGIN_CLASS_NOT_FOUND.*'{name}'"):
            spark.sql(f"SHOW TABLES IN log{number}.x")
        spark.conf.unset(f"spark.sql.catalog.log{number}")
