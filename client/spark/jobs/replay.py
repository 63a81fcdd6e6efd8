"""Replay an export into a log. A repeated replay adds nothing twice.

Manifests are appended in order, by producers whose names follow from the export, the manifest and
the partition. A partition always has the rows of the same keys in the order of key and seq, so each
row has the same number in every run. A range remembers the numbers of a producer for 24 hours. So
the place of the export records when the replay of a manifest began and that it ended. A manifest
whose replay ended is skipped. A replay that began longer ago than ranges remember is refused, as
is a replay that began before a removal changed the manifest: its rows have other numbers now.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession

from lognode.client.protocol.errors import Conflict, InvalidArgument
from lognode.client.spark.jobs import cli
from lognode.client.spark.jobs.contents import Contents
from lognode.client.spark.jobs.export import exported
from lognode.client.spark.jobs.manifest import Manifest
from lognode.client.spark.jobs.place import Place
from lognode.client.spark.options import WriteOptions, write_options
from lognode.client.spark.session import Session
from lognode.client.spark.sink import deliver, first_number

rows_of_partition: Final = 500_000
partitions_max: Final = 64
remembered_s: Final = 23 * 3_600
"""Less than the 24 hours for which a range remembers the numbers of a producer."""


def main(arguments: Sequence[str]) -> int:
    """Parse the arguments and run; return the exit code."""
    parser = cli.parser(
        "replay", "Append the entries of an export to a log that exists. Entries get new seqs and "
                  "timestamps; values, headers, logical snapshots and the order of each key stay.",
        ["flights-copy --server h1:4600 --source lake/flights"],
    )  # fmt: skip
    parser.add_argument("--source", required=True, help="directory that the export job wrote")
    return cli.run(parser.parse_args(arguments), _job)


def producer(made: Manifest, partition: int) -> str:
    """Return the producer name of a manifest's partition, the same in every run."""
    return f"spark/replay/{made.export}/{made.number}/{partition}"


def _job(spark: SparkSession, options: argparse.Namespace) -> None:
    place = Place(spark, options.source)
    contents = Contents(place)
    found = contents.manifests
    if not found:
        raise InvalidArgument(
            f"--source {options.source} has no manifest; give a directory that the export "
            "job wrote",
            what="source",
        )
    place.check()
    target = write_options(
        {"servers": options.server, "log": options.log, "timeout": options.timeout}
    )
    with Session(target.servers, options.log, timeout=target.timeout_s) as session:
        log = session.log()
    folder = f"replays/{log.cluster}-{log.log_id}"
    receipts = set(place.names(folder))
    for made in found:
        if f"{made.number:08}.ended" in receipts:
            cli.note(f"log {options.log!r} has manifest {made.number} already")
            continue
        _begin(contents, f"{folder}/{made.number:08}.begun", receipts, made)
        count = _replay(spark, target, place, made)
        place.create(f"{folder}/{made.number:08}.ended", json.dumps({"entries": count}) + "\n")
        sys.stdout.write(f"manifest {made.number}: {count} entries\n")


def _begin(contents: Contents, name: str, receipts: set[str], made: Manifest) -> None:
    """Record the start of the replay. Raises Conflict when an earlier run began too long ago to
    continue, or a removal has changed the manifest since: its rows have other numbers then."""
    place, removal = contents.place, contents.changed(made)
    if name.rpartition("/")[2] not in receipts:
        place.create(name, json.dumps({"unix_s": int(time.time()), "removal": removal}) + "\n")
        return
    begun = json.loads(place.read(name))
    ago = time.time() - begun["unix_s"]
    why = None
    if ago > remembered_s:
        why = "ranges no longer know its appends"
    elif begun.get("removal", 0) != removal:
        why = f"removal {removal} of the export has changed the manifest since"
    if why is not None:
        raise Conflict(
            f"a replay of manifest {made.number} began {ago / 3600:.0f} hours ago and did "
            f"not end; {why}, and a second run could append entries "
            f"twice. Replay into a new log, or remove {place.path(name)} if the replay "
            "appended nothing"
        )


def _replay(spark: SparkSession, target: WriteOptions, place: Place, made: Manifest) -> int:
    count = min(partitions_max, max(1, -(-made.entries // rows_of_partition)))

    def append(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        if context is None:
            raise Conflict("the replay job appends in tasks only")
        name = producer(made, context.partitionId())
        done = deliver(target, name, first_number(0), batches)
        yield pa.RecordBatch.from_pydict({"entries": [done.records]})

    rows = exported(spark, place, [made]).repartition(count, "key")
    rows = rows.sortWithinPartitions("key", "seq").select("key", "value", "headers", "snapshot")
    done = rows.mapInArrow(append, "entries long").collect()
    return sum(row.entries for row in done)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
