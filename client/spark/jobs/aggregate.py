"""Per key of a committed snapshot: entries, bytes, first and last, gaps; and the top keys.

The gaps are between the timestamps of consecutive entries of a key.
"""

import argparse
import sys
from collections.abc import Sequence
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from lognode.client.protocol.errors import InvalidArgument
from lognode.client.spark.jobs import cli
from lognode.client.spark.jobs.place import Place
from lognode.client.spark.options import read_options
from lognode.client.spark.session import Session
from lognode.client.vector import Vector

ORDERS: Final = ("entries", "bytes", "longest_gap_s", "mean_gap_s")
_HEADS: Final = (
    "key", "entries", "bytes", "first_seq", "last_seq", "first_time", "last_time",
    "longest_gap_s", "mean_gap_s",
)  # fmt: skip


def main(arguments: Sequence[str]) -> int:
    """Parse the arguments and run; return the exit code."""
    parser = cli.parser(
        "aggregate", "Counts, bytes, first and last entry and gaps of each key; prints the top "
                     "keys.",
        ["flights --server h1:4600 --top 10",
         "flights --server h1:4600 --by longest_gap_s --out lake/flights-keys"],
    )  # fmt: skip
    parser.add_argument("--out", help="new directory for the Parquet of all keys")
    parser.add_argument("--top", type=int, default=20, help="number of keys that are printed (20)")
    parser.add_argument(
        "--by", choices=ORDERS, default="entries", help="measure that orders the keys (entries)"
    )
    return cli.run(parser.parse_args(arguments), _job, _check)


def aggregated(frame: DataFrame) -> DataFrame:
    """Return one row per key of the entries."""
    in_order = Window.partitionBy("key").orderBy("seq")
    seconds = f.col("timestamp").cast("double")
    gaps = frame.withColumn("gap", seconds - f.lag(seconds).over(in_order))
    return gaps.groupBy("key").agg(
        f.count("*").alias("entries"),
        f.sum(f.coalesce(f.length("value"), f.lit(0))).alias("bytes"),
        f.min("seq").alias("first_seq"),
        f.max("seq").alias("last_seq"),
        f.min_by("timestamp", "seq").alias("first_time"),
        f.max_by("timestamp", "seq").alias("last_time"),
        f.max("gap").alias("longest_gap_s"),
        f.avg("gap").alias("mean_gap_s"),
    )


def _check(options: argparse.Namespace) -> None:
    if options.top < 1:
        raise InvalidArgument(f"--top is {options.top}; give 1 or more", what="top")


def _job(spark: SparkSession, options: argparse.Namespace) -> None:
    out = ""
    if options.out:
        place = Place(spark, options.out)
        if place.names(""):
            raise InvalidArgument(
                f"--out {options.out} contains files; give a new directory", what="out"
            )
        place.check()
        out = place.root
    checked = read_options(cli.source_options(options), streaming=False)
    with Session(checked.servers, checked.log, timeout=checked.timeout_s) as session:
        vector = session.snapshot(checked.lease_s)
        try:
            _aggregate(spark, options, out, vector)
        finally:
            session.release(vector)


def _aggregate(spark: SparkSession, options: argparse.Namespace, out: str, vector: Vector) -> None:
    more = {"asOf": vector.to_json(), "columns": "key,value,seq,timestamp"}
    frame = aggregated(cli.load(spark, options, more))
    if out:
        frame.write.mode("append").parquet(out)
        frame = spark.read.parquet(out)
    whole = frame.agg(f.count("*"), f.sum("entries"), f.sum("bytes")).first()
    top = frame.orderBy(f.col(options.by).desc_nulls_last(), "key").limit(options.top)
    # As text: a timestamp would be shown in the time zone of the machine that runs the job.
    times = {
        name: f.date_format(name, "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'")
        for name in ("first_time", "last_time")
    }
    sys.stdout.write(_table([_HEADS, *map(_cells, top.withColumns(times).collect())]))
    keys, entries, size = whole or (0, 0, 0)
    sys.stdout.write(f"{keys} keys, {entries or 0} entries, {size or 0} bytes\n")


def _cells(row: Any) -> list[str]:
    return [_cell(row[head]) for head in _HEADS]


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "backslashreplace")
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def _table(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
