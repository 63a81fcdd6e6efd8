"""Export a committed snapshot of a log to Parquet, partitioned by day; later runs export the new
entries.

Each run takes a snapshot, writes the entries that the previous snapshot does not have to a new
directory, and finally writes a manifest that names both. A killed run has no manifest, and the next
run begins where the last manifest ends: each entry is in exactly one directory that a manifest
names. With `--iceberg` a table gets the files of the manifests that it does not have.
"""

import argparse
import sys
from collections.abc import Sequence
from typing import Final
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import DateType, StructType

from lognode.client.spark import offsets
from lognode.client.spark.jobs import cli, iceberg, manifest
from lognode.client.spark.jobs.manifest import Manifest
from lognode.client.spark.jobs.place import Place
from lognode.client.spark.loss import check_loss
from lognode.client.spark.options import read_options
from lognode.client.spark.schema import source_schema
from lognode.client.spark.session import Session
from lognode.client.vector import Part, Vector

COLUMNS: Final = ("key", "value", "seq", "timestamp", "headers", "snapshot")
_EVERYTHING: Final = ((b"", None),)


def main(arguments: Sequence[str]) -> int:
    """Parse the arguments and run; return the exit code."""
    parser = cli.parser(
        "export", "Export a committed snapshot of a log to Parquet, by day; the next run "
                  "exports the newer entries.",
        ["flights --server h1:4600 --out lake/flights",
         "flights --server h1:4600 --out hdfs:///lake/flights --master spark://h9:7077",
         "flights --server h1:4600 --out lake/flights --iceberg lake.flights --catalog prod"],
    )  # fmt: skip
    parser.add_argument("--out", required=True, help="directory on any file system of Spark")
    parser.add_argument(
        "--allow-loss", action="store_true",
        help="continue although retention has removed entries since the last run",
    )  # fmt: skip
    iceberg.add_arguments(parser)
    return cli.run(parser.parse_args(arguments), _job, _check)


def exported(spark: SparkSession, place: Place, made: Sequence[Manifest]) -> DataFrame:
    """Return the entries of these exports, with the column `day`.

    Exports of earlier versions have no column `snapshot`: none of their entries is marked.
    """
    schema = StructType([*source_schema(COLUMNS)]).add("day", DateType())
    frames = [spark.read.schema(schema).parquet(place.path(each.data)) for each in made]
    whole = frames[0]
    for frame in frames[1:]:
        whole = whole.unionByName(frame)
    return whole.withColumn("snapshot", f.coalesce("snapshot", f.lit(False)))


def _check(options: argparse.Namespace) -> None:
    if options.iceberg:
        iceberg.opened(options).close()


def _job(spark: SparkSession, options: argparse.Namespace) -> None:
    place = Place(spark, options.out)
    _export(spark, options, place)
    if options.iceberg:
        with iceberg.opened(options) as catalog:
            added = iceberg.add(
                catalog, options.iceberg, manifest.all_of(place),
                lambda made: place.files(made.data, ".parquet"),
            )  # fmt: skip
        sys.stdout.write(f"table {options.iceberg}: {added} new manifests\n")


def _export(spark: SparkSession, options: argparse.Namespace, place: Place) -> None:
    before = manifest.all_of(place)
    checked = read_options(cli.source_options(options), streaming=False)
    with Session(checked.servers, checked.log, timeout=checked.timeout_s) as session:
        if before:
            session.check(before[-1].snapshot)
        vector = session.snapshot(checked.lease_s)
        try:
            begin = before[-1].snapshot if before else _nothing(vector)
            tasks = offsets.tasks(begin, vector, _EVERYTHING)
            if before and not tasks:
                cli.note(
                    f"log {options.log!r} has no new entries since manifest {before[-1].number}"
                )
                return
            if before and not options.allow_loss:
                why = "this export begins with {first}"
                check_loss(session, tasks, checked.log, why, "--allow-loss")
            made = _write(spark, options, place, before, vector)
        finally:
            session.release(vector)
    removed = manifest.tidy(place, [*before, made])
    sys.stdout.write(f"manifest {made.number}: {made.entries} entries in {made.data}\n")
    if removed:
        cli.note(f"removed {removed} directories of incomplete exports")


def _write(
    spark: SparkSession, options: argparse.Namespace, place: Place, before: Sequence[Manifest],
    vector: Vector,
) -> Manifest:  # fmt: skip
    more = {"asOf": vector.to_json(), "columns": ",".join(COLUMNS)}
    if before:
        more["startingSeq"] = before[-1].snapshot.to_json()
        more["failOnDataLoss"] = str(not options.allow_loss).lower()
    number = len(before) + 1
    data = manifest.attempt(number, uuid4().hex[:12])
    frame = cli.load(spark, options, more).withColumn("day", f.to_date("timestamp"))
    frame.write.partitionBy("day").parquet(place.path(data))
    export = before[0].export if before else uuid4().hex
    made = Manifest(export, number, data, 0, vector)
    entries = exported(spark, place, [made]).count()
    made = Manifest(export, number, data, entries, vector)
    manifest.commit(place, made)
    return made


def _nothing(vector: Vector) -> Vector:
    """Return the vector of the same log before its first entry."""
    return Vector(
        vector.cluster, vector.log, vector.log_id, "", 0,
        tuple(Part(part.start, part.end, 0) for part in vector.parts),
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
