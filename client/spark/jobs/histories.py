"""What an incremental fold reads: new entries, and of some keys the entries before them.

A run begins at a cursor of the log, where the last run ended. The log keeps the cursor, so a copy
of the log, or a later log with its name, has no position of this log. The snapshots that the last
run appended are among the new entries. A key without a snapshot there is a new key, a key that got
an entry during the last run, or a key that the last run did not fold: its earlier entries are read
too, back to its newest snapshot.
"""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import to_arrow_schema

from lognode.client.client import AsyncClient
from lognode.client.log import AsyncLog
from lognode.client.spark.options import ReadOptions
from lognode.client.spark.schema import source_schema

COLUMNS: Final = ("key", "value", "seq", "timestamp", "headers", "snapshot")
keys_at_once: Final = 32
"""Histories that a task reads at once and holds in memory."""


def whole(new: DataFrame, target: ReadOptions) -> DataFrame:
    """Return the new entries with the earlier entries of the keys that need them."""
    keys = new.groupBy("key").agg(f.bool_or("snapshot").alias("marked"), f.min("seq").alias("end"))
    needed = keys.where(~f.col("marked")).select("key", "end")

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from earlier(target, batches)

    return new.unionByName(needed.mapInArrow(read, source_schema(COLUMNS)))


def earlier(target: ReadOptions, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the entries of each key with a seq below `end`, from its newest logical snapshot on.

    Raises LogNotFound, Unavailable, Timeout.
    """
    with asyncio.Runner() as runner:
        client = runner.run(_connected(target))
        try:
            log = client.log(target.log)
            for batch in batches:
                rows = batch.to_pylist()
                for at in range(0, len(rows), keys_at_once):
                    yield from runner.run(_some(log, rows[at : at + keys_at_once]))
        finally:
            runner.run(client.close())


async def _connected(target: ReadOptions) -> AsyncClient:
    return AsyncClient(target.servers, timeout=target.timeout_s)


async def _some(log: AsyncLog, rows: Sequence[dict[str, Any]]) -> list[pa.RecordBatch]:
    found = await asyncio.gather(*(_one(log, **row) for row in rows))
    return [batch for batches in found for batch in batches]


async def _one(log: AsyncLog, key: bytes, end: int) -> list[pa.RecordBatch]:
    schema = to_arrow_schema(source_schema(COLUMNS), timezone="UTC")
    found = []
    async for columns in log.scan_columns(key, start="snapshot", end=end):
        batch = columns.to_arrow()
        arrays = [batch.column(field.name).cast(field.type) for field in schema]
        found.append(pa.RecordBatch.from_arrays(arrays, schema=schema))
    return found
