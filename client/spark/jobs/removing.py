"""Take out of an export what the log removed after it was exported.

The visible entries of a key are a run up to the end of a snapshot, whatever removed the entries
before: the deletion of the key, a trim, retention, compaction, or a logical snapshot. So an
exported entry is gone from the log if its key has no entry in a later snapshot, or only entries
with higher seqs. A key that was deleted and got entries again has higher seqs than before (S6), as
has a key after a split or a merge of its range. An entry that is removed after the snapshot was
taken is left for the next run.

All removed entries leave the export at one moment, when the removal is published: before that, the
files that the run has written do not count. No entry of the snapshot is ever left out, not for a
moment.
"""

import argparse
import time
from collections.abc import Sequence
from typing import Final
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from lognode.client.spark.jobs import cli, removal
from lognode.client.spark.jobs.contents import (
    COLUMNS,
    Contents,
    file_name,
    is_rejected,
    of_manifest,
)
from lognode.client.spark.jobs.manifest import rejected_of
from lognode.client.spark.jobs.removal import Removal
from lognode.client.vector import Vector

_TASKS_MAX: Final = 200
_ADAPTIVE: Final = "spark.sql.adaptive.enabled"


def remove(
    spark: SparkSession, options: argparse.Namespace, contents: Contents, vector: Vector
) -> Removal | None:
    """Replace the files with entries that the log does not show in the snapshot; return the
    removal, or None when there is no such entry.

    `vector`: a snapshot with a lease that is later than the export. Raises Conflict when another
    run removed entries meanwhile.
    """
    # The sizes of these tasks may follow the data, unlike those of the other jobs.
    spark.conf.set(_ADAPTIVE, "true")
    visible = _visible(spark, options, vector).persist()
    try:
        gone = _affected(spark, contents, visible)
        if not gone:
            return None
        made = _rewritten(spark, contents, visible, gone, vector)
    finally:
        visible.unpersist()
        spark.conf.set(_ADAPTIVE, "false")
    removal.commit(contents.place, made)
    removal.tidy(contents.place, [*contents.removals, made])
    return made


def _visible(spark: SparkSession, options: argparse.Namespace, vector: Vector) -> DataFrame:
    """Return the first seq of each key in the snapshot."""
    rows = cli.load(spark, options, {"asOf": vector.to_json(), "columns": "key,seq"})
    found: DataFrame = rows.groupBy("key").agg(f.min("seq").alias("first"))
    return found


def _affected(spark: SparkSession, contents: Contents, visible: DataFrame) -> list[str]:
    """Return the files that have removed entries."""
    names = [name for made in contents.manifests for name in contents.names(made)]
    rows = contents.read(spark, names).withColumn("file", file_name())
    lowest = rows.groupBy("file", "key").agg(f.min("seq").alias("seq"))
    stale = lowest.join(visible, "key", "left").where("first is null or seq < first")
    return sorted(row.file for row in stale.select("file").distinct().collect())


def _rewritten(
    spark: SparkSession, contents: Contents, visible: DataFrame, gone: list[str], vector: Vector
) -> Removal:
    """Write the remaining entries of the files to a new directory."""
    place, number = contents.place, len(contents.removals) + 1
    data = removal.attempt(number, uuid4().hex[:12])
    new = []
    for rejected in (False, True):
        names = [name for name in gone if is_rejected(name) == rejected]
        folder = rejected_of(data) if rejected else data
        if names:
            more = contents.columns(rejected=rejected)
            rows = contents.read(spark, names, more).withColumn("file", file_name())
            _write(rows, visible, [*COLUMNS, *more.names], len(names), place.path(folder))
        new += place.files(folder, ".parquet")
    before, after = (contents.read(spark, names).count() for names in (gone, new))
    return Removal(
        contents.manifests[0].export, number, tuple(gone), data, before - after,
        int(time.time()), vector,
    )  # fmt: skip


def _write(
    rows: DataFrame, visible: DataFrame, columns: Sequence[str], files: int, path: str
) -> None:
    """Write the visible rows, those of each file by one task."""
    kept = rows.withColumn("of", of_manifest(f.col("file"))).join(visible, "key")
    kept = kept.where("seq >= first").repartition(min(files, _TASKS_MAX), "file")
    kept = kept.sortWithinPartitions("of", "day", "key", "seq").select(*columns, "of", "day")
    kept.write.partitionBy("of", "day").parquet(path)
