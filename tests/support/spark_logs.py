"""Logs for the tests with real Spark, and what Spark and the SDK see of them."""

from collections.abc import Iterator
from typing import Any, Protocol

from pyspark.sql import DataFrame, SparkSession

import lognode

Row = tuple[bytes, int, bytes | None]


class Served(Protocol):
    """A cluster, or a process that serves a tier."""

    @property
    def servers(self) -> str: ...


def filled(client: lognode.Client, name: str, count: int, **options: Any) -> lognode.Log:
    """A log with so many entries, of 50 keys from `k00` on."""
    log = client.create_log(name, **{"split_at": [b"k25"], **options})
    append(log, 0, count)
    return log


def append(log: lognode.Log, first: int, end: int) -> None:
    """The entries first to end."""
    log.append_many([(b"k%02d" % (at % 50), b"%d" % at) for at in range(first, end)])


def entries(log: lognode.Log) -> list[Row]:
    """All of a log, by key and seq, as the SDK reads them."""
    found = [
        (entry.key, entry.seq, entry.value) for key in list(log.keys()) for entry in log.scan(key)
    ]
    return sorted(found)


def values(log: lognode.Log) -> list[bytes | None]:
    """The values of all entries, sorted."""
    return sorted((value for _, _, value in entries(log)), key=str)


def histories(log: lognode.Log) -> dict[bytes, list[bytes | None]]:
    """The values of each key, in the order in which they are in the log."""
    return {key: [entry.value for entry in log.scan(key)] for key in list(log.keys())}


def reader(spark: SparkSession, cluster: Served, log: str, /, **options: str) -> Any:
    """`spark.read` of a log."""
    made = spark.read.format("lognode").option("servers", cluster.servers).option("log", log)
    return made.options(**options)


def stream(spark: SparkSession, cluster: Served, log: str, /, **options: str) -> DataFrame:
    """`spark.readStream` of a log, loaded."""
    made = spark.readStream.format("lognode").option("servers", cluster.servers)
    return made.option("log", log).options(**options).load()


def rows(frame: DataFrame) -> list[Row]:
    """Key, seq and value of each row, by key and seq."""
    found = frame.select("key", "seq", "value").collect()
    return sorted((bytes(key), seq, value and bytes(value)) for key, seq, value in found)


def causes(error: BaseException) -> Iterator[str]:
    """What an error of Spark says: Python's errors are in its text."""
    yield str(error)
    if error.__cause__ is not None:
        yield from causes(error.__cause__)
