"""Export a committed snapshot of a log to Parquet, partitioned by day; later runs export the new
entries.

Each run takes a snapshot, writes the entries that the previous snapshot does not have to a new
directory, and finally writes a manifest that names both. A killed run has no manifest, and the next
run begins where the last manifest ends: each entry is in exactly one directory that a manifest
names. With `--removals` the run then takes out the exported entries that the snapshot does not show
any more. With `--iceberg` a table gets the removals and the manifests that it does not have, and at
last the replaced files are deleted.
"""

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import DateType, StructType

from lognode.client.protocol.errors import InvalidArgument
from lognode.client.spark import offsets
from lognode.client.spark.jobs import cli, declared, iceberg, manifest, removal, removing
from lognode.client.spark.jobs.contents import COLUMNS, REASON, Contents
from lognode.client.spark.jobs.declared import Declared
from lognode.client.spark.jobs.manifest import Manifest, rejected_of
from lognode.client.spark.jobs.place import Place
from lognode.client.spark.jobs.removal import Removal
from lognode.client.spark.loss import check_loss
from lognode.client.spark.options import age_s, read_options
from lognode.client.spark.schema import source_schema
from lognode.client.spark.session import Session
from lognode.client.vector import Part, Vector

if TYPE_CHECKING:  # an optional library
    from pyiceberg.catalog import Catalog

_EVERYTHING: Final = ((b"", None),)


def main(arguments: Sequence[str]) -> int:
    """Parse the arguments and run; return the exit code."""
    parser = cli.parser(
        "export", "Export a committed snapshot of a log to Parquet, by day; the next run "
                  "exports the newer entries.",
        ["flights --server h1:4600 --out lake/flights",
         "flights --server h1:4600 --out lake/flights --removals",
         "flights --server h1:4600 --out hdfs:///lake/flights --master spark://h9:7077",
         "flights --server h1:4600 --out /shared/flights --remote sc://h9:15002",
         "flights --server h1:4600 --out lake/flights --iceberg lake.flights --catalog prod"],
    )  # fmt: skip
    parser.add_argument("--out", required=True, help="directory on any file system of Spark")
    parser.add_argument(
        "--allow-loss", action="store_true",
        help="continue although retention has removed entries since the last run",
    )  # fmt: skip
    parser.add_argument(
        "--schema", metavar="FILE",
        help="JSON schema of the values, whose properties become columns beside the value; "
             "entries that do not fit go to a directory, and to a table, of their own (the "
             "schema of the last run)",
    )  # fmt: skip
    parser.add_argument(
        "--removals", action="store_true",
        help="remove what the log no longer shows from the export and from its table: "
             "entries of deleted and trimmed keys, and what retention and compaction removed",
    )  # fmt: skip
    parser.add_argument(
        "--keep-files", metavar="AGE", default="1h",
        help="time after a removal until a run with --removals deletes the replaced files, for "
             "queries that still read them; 0s: at once (1h)",
    )  # fmt: skip
    iceberg.add_arguments(parser)
    return cli.run(parser.parse_args(arguments), _job, _check)


def exported(spark: SparkSession, place: Place, made: Sequence[Manifest]) -> DataFrame:
    """Return the entries of these exports, with the column `day`.

    Exports of earlier versions have no column `snapshot`: none of their entries is marked.
    """
    contents = Contents(place)
    schema = StructType([*source_schema(COLUMNS)]).add("day", DateType())
    frames = []
    for each in made:
        if contents.changed(each):
            frames.append(contents.read(spark, contents.names(each)))
            continue
        folders = [each.data]
        if each.schema and place.files(rejected_of(each.data), ".parquet"):
            folders.append(rejected_of(each.data))
        frames += [spark.read.schema(schema).parquet(place.path(name)) for name in folders]
    whole = frames[0]
    for frame in frames[1:]:
        whole = whole.unionByName(frame)
    return whole.withColumn("snapshot", f.coalesce("snapshot", f.lit(False)))


def _check(options: argparse.Namespace) -> None:
    age_s(options.keep_files, "--keep-files")
    _given(options)
    if options.iceberg:
        iceberg.opened(options).close()


def _given(options: argparse.Namespace) -> Declared | None:
    """Return the schema of `--schema`."""
    if not options.schema:
        return None
    try:
        text = Path(options.schema).read_text("utf-8")
    except (OSError, ValueError) as error:
        raise InvalidArgument(
            f"--schema is {options.schema!r}, which cannot be read: {error}. Give a file with a "
            "JSON schema",
            what="schema",
        ) from None
    return declared.declared(text)


def _schema(options: argparse.Namespace, contents: Contents) -> Declared | None:
    """Return the schema of the new manifest: the given schema, or the schema of the last manifest.

    Raises InvalidArgument when the given schema lacks columns of the last manifest.
    """
    given = _given(options)
    if given is not None and contents.declared is not None:
        declared.check_follows(contents.declared, given)
    return given or contents.declared


def _job(spark: SparkSession, options: argparse.Namespace) -> None:
    place = Place(spark, options.out)
    place.check()
    _export(spark, options, place)
    contents = Contents(place)
    due = []
    if options.removals:
        keep_s = age_s(options.keep_files, "--keep-files")
        due = removal.due(place, contents.removals, time.time(), keep_s)
    if options.iceberg:
        with iceberg.opened(options) as catalog:
            _add(catalog, options, contents)
            if due:
                _leave(catalog, options, contents, due)
    _delete(contents, due)


def _export(spark: SparkSession, options: argparse.Namespace, place: Place) -> None:
    contents = Contents(place)
    before = contents.manifests
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
            else:
                if before and not options.allow_loss:
                    why = "this export begins with {first}"
                    check_loss(session, tasks, checked.log, why, "--allow-loss")
                _new(spark, options, contents, vector)
            if options.removals and before:
                _remove(spark, options, contents, vector)
        finally:
            session.release(vector)


def _new(
    spark: SparkSession, options: argparse.Namespace, contents: Contents, vector: Vector
) -> None:
    """Write the new entries, and remove what killed exports have left."""
    made, rejected = _write(spark, options, contents, vector)
    removed = manifest.tidy(contents.place, [*contents.manifests, made])
    sys.stdout.write(f"manifest {made.number}: {made.entries} entries in {made.data}\n")
    if rejected:
        cli.note(
            f"{rejected} entries do not fit the schema; they and the reasons are in "
            f"{rejected_of(made.data)}"
        )
    if removed:
        cli.note(f"removed {removed} directories of incomplete exports")


def _write(
    spark: SparkSession, options: argparse.Namespace, contents: Contents, vector: Vector
) -> tuple[Manifest, int]:
    """Return the new manifest, and how many of its entries do not fit the schema."""
    place, before, schema = contents.place, contents.manifests, _schema(options, contents)
    more = {"asOf": vector.to_json(), "columns": ",".join(COLUMNS)}
    if before:
        more["startingSeq"] = before[-1].snapshot.to_json()
        more["failOnDataLoss"] = str(not options.allow_loss).lower()
    number, export = len(before) + 1, before[0].export if before else uuid4().hex
    data = manifest.attempt(number, uuid4().hex[:12])
    frame = cli.load(spark, options, more)
    rejected = 0
    if schema is None:
        _save(frame, place.path(data))
    else:
        rejected = _save_typed(frame, schema, place, data)
    made = Manifest(export, number, data, 0, vector, "" if schema is None else schema.text)
    made = replace(made, entries=exported(spark, place, [made]).count())
    manifest.commit(place, made)
    return made, rejected


def _save(frame: DataFrame, path: str) -> None:
    frame.withColumn("day", f.to_date("timestamp")).write.partitionBy("day").parquet(path)


def _save_typed(frame: DataFrame, schema: Declared, place: Place, data: str) -> int:
    """Write the entries with the columns of the schema, and beside them the entries that do not
    fit; return how many do not fit.

    The entries are read a second time if some do not fit: a snapshot gives the same entries.
    """
    text = schema.text

    def typed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return declared.batches(text, batches)

    columns = [*source_schema(COLUMNS), *from_arrow_schema(schema.schema),
               *from_arrow_schema(REASON)]  # fmt: skip
    rows = frame.mapInArrow(typed, StructType(columns))
    seen = Observation()
    fitting = rows.observe(seen, f.count("reason").alias("rejected")).where("reason is null")
    _save(fitting.drop("reason"), place.path(data))
    rejected = int(seen.get["rejected"])
    if rejected:
        unfit = rows.where("reason is not null").select(*COLUMNS, "reason")
        _save(unfit, place.path(rejected_of(data)))
    return rejected


def _remove(
    spark: SparkSession, options: argparse.Namespace, contents: Contents, vector: Vector
) -> None:
    """Take out what the log removed from the exports of earlier runs."""
    made = removing.remove(spark, options, contents, vector)
    if made is None:
        sys.stdout.write("removals: none\n")
        return
    sys.stdout.write(
        f"removal {made.number}: {made.entries} entries; {len(made.gone)} files are replaced\n"
    )


def _tables(options: argparse.Namespace, contents: Contents) -> list[tuple[str, bool]]:
    """Return the names of the tables, and whether a table has the entries that do not fit."""
    found = [(options.iceberg, False)]
    if contents.declared is not None:
        found.append((f"{options.iceberg}_rejected", True))
    return found


def _add(catalog: "Catalog", options: argparse.Namespace, contents: Contents) -> None:
    for name, rejected in _tables(options, contents):
        added = iceberg.add(
            catalog, name, contents.manifests,
            partial(contents.locations, rejected=rejected),
            removals=contents.removals, swap=partial(contents.swap, rejected=rejected),
            columns=contents.columns(rejected=rejected),
            register=partial(removal.register, contents.place, name),
        )  # fmt: skip
        sys.stdout.write(f"table {name}: {added} new manifests\n")


def _leave(
    catalog: "Catalog", options: argparse.Namespace, contents: Contents, due: Sequence[Removal]
) -> None:
    """Make the tables leave the files that are about to be deleted."""
    export = contents.manifests[0].export
    for name, rejected in _tables(options, contents):
        swaps = [contents.swap(made, rejected=rejected) for made in due]
        uuid = iceberg.leave(catalog, name, export, swaps)
        for made in due:
            removal.left(contents.place, uuid, made)


def _delete(contents: Contents, due: Sequence[Removal]) -> None:
    """Delete the replaced files, unless another table may name them."""
    for made in due:
        behind = removal.delete(contents.place, made)
        if behind:
            cli.note(
                f"the files that removal {made.number} replaced stay: table {behind[0]} may name "
                "these files. Run the export with --removals and --iceberg for this table. If the "
                f"table does not exist any more, remove its file in {contents.place.path('tables')}"
            )
            return
        sys.stdout.write(f"removal {made.number}: {len(made.gone)} replaced files are deleted\n")


def _nothing(vector: Vector) -> Vector:
    """Return the vector of the same log before its first entry."""
    return Vector(
        vector.cluster, vector.log, vector.log_id, "", 0,
        tuple(Part(part.start, part.end, 0) for part in vector.parts),
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
