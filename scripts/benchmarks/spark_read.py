"""`scripts/bench spark`: Spark reads a log as a committed snapshot, local[2].

Entries are written in a known order to a known set of keys. Then Spark counts them and sums up
checksums of all columns, so that no column can be left out; both must match the written entries.
entries_per_second counts from the start of the query, including its planning and its snapshot.

Clocks around the reader's own parts, read a few times a page, measure where the tasks spend their
time: the shares are of the tasks' time, added up over all tasks. `nodes`: a task waits for a page
(network, the nodes, and the client's thread, which decodes it); `columns`: pages become Arrow
columns and are put in order, in Python; `jvm`: Arrow writes batches to the JVM, and waits until the
JVM takes them. `cpu_` is processor time: `cpu_jvm` of writing alone, `cpu_client` of the client's
thread; and `nodes_cpu` that of the three nodes meanwhile. A round on a JVM that has just started is
slower than the next.
"""

import argparse
import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from zlib import crc32

import lognode
from lognode.client.bench.shape import Shape
from lognode.client.spark.java import check_java
from lognode.node.local.dev import LocalCluster

from . import harness, nodes
from .load import fill

_LOG: Final = "spark"
_AT_ONCE: Final = 10_000
_CHECKED: Final = (
    "count(*) as entries", "sum(crc32(key)) as keys", "sum(crc32(value)) as values",
    "sum(crc32(cast(log as binary))) as logs", "sum(seq) as seqs",
    "min(unix_millis(timestamp)) as first_ms", "max(unix_millis(timestamp)) as last_ms",
)  # fmt: skip


def main(arguments: list[str]) -> int:
    """Write, read, print. Raises CorruptData if Spark has not read the written entries."""
    parser = harness.parser("spark", __doc__)
    parser.add_argument("--records", type=int)
    parser.add_argument("--keys", type=int)
    parser.add_argument("--ranges", type=int, default=4)
    parser.add_argument("--cores", type=int, default=2, help="tasks of Spark at once")
    parser.add_argument("--rounds", type=int, help="readings, one after the other")
    options = parser.parse_args(arguments)
    try:
        check_java()
    except lognode.Unsupported as error:
        parser.error(str(error))
    records = options.records or (20_000 if options.quick else 10_000_000)
    shape = Shape(options.keys or (1_000 if options.quick else 1_000_000))
    around = harness.environment()
    with harness.cluster(options.data) as cluster:
        began_ms = int(time.time() * 1000)
        written = fill(cluster, _LOG, shape.keys, ranges=options.ranges, records=records)
        due = _due(cluster, shape, written["records"])
        due["times"] = began_ms, int(time.time() * 1000)
        rows = _rounds(options, cluster, due)
    harness.show(options, around, rows)
    return 0


def _due(cluster: LocalCluster, shape: Shape, records: int) -> dict[str, Any]:
    """Return what Spark must find. No seq of a range is left out."""
    keys = values = 0
    for first in range(0, records, _AT_ONCE):
        some = shape.in_order(first, min(_AT_ONCE, records - first))
        keys += sum(map(crc32, some))
        values += sum(map(crc32, shape.values(some, first)))
    with lognode.Client(cluster.servers, timeout=60) as client:
        snapshot = client.log(_LOG).snapshot(lease_s=60)
        through = [part.through_seq for part in snapshot.vector.parts]
        snapshot.release()
    return {"entries": records, "keys": keys, "values": values,
            "logs": records * crc32(_LOG.encode()),
            "seqs": sum(seq * (seq + 1) // 2 for seq in through)}  # fmt: skip


def _rounds(
    options: argparse.Namespace, cluster: LocalCluster, due: dict[str, Any]
) -> list[dict[str, Any]]:
    rows = []
    with tempfile.TemporaryDirectory(dir=options.data) as place, _spark(place, options) as spark:
        for number in range(1, (options.rounds or (1 if options.quick else 3)) + 1):
            times = Path(place) / f"round-{number}"
            times.mkdir()
            rows.append({"round": number, **_read(spark, cluster, times, due)})
    return rows


@contextlib.contextmanager
def _spark(place: str, options: argparse.Namespace) -> Iterator[Any]:
    """Yield a session whose workers find lognode and this package where this process does."""
    scripts = Path(__file__).resolve().parents[1]
    path = [str(Path(lognode.__file__).resolve().parents[1]), str(scripts)]
    os.environ.update(
        PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1",
        PYTHONPATH=os.pathsep.join([*path, os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep),
    )  # fmt: skip
    from pyspark.sql import SparkSession

    from .spark_times import MeasuredSource

    session = (
        SparkSession.builder.master(f"local[{options.cores}]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", f"{place}/warehouse")
        .config("spark.local.dir", place)
        .getOrCreate()
    )
    try:
        session.sparkContext.setLogLevel("ERROR")
        session.dataSource.register(MeasuredSource)
        yield session
    finally:
        session.stop()


def _read(spark: Any, cluster: LocalCluster, times: Path, due: dict[str, Any]) -> dict[str, Any]:
    from .spark_times import total

    used = sum(map(nodes.cpu_seconds, cluster.nodes))
    began = time.perf_counter()
    frame = spark.read.format("lognode-measured").option("servers", cluster.servers)
    frame = frame.option("log", _LOG).option("times", str(times)).load()
    found = frame.selectExpr(*_CHECKED).first().asDict()
    seconds = time.perf_counter() - began
    used = sum(map(nodes.cpu_seconds, cluster.nodes)) - used
    first, last = found.pop("first_ms"), found.pop("last_ms")
    began_ms, ended_ms = due["times"]
    if {**found, "times": due["times"]} != due or not began_ms <= first <= last <= ended_ms:
        raise lognode.CorruptData(
            f"Spark read {found}, of times from {first} to {last}; {due} were written"
        )
    return {"verified": found["entries"], "seconds": round(seconds, 2),
            "entries_per_second": round(found["entries"] / seconds),
            **total(times), "nodes_cpu s": round(used, 2)}  # fmt: skip
