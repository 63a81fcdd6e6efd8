"""`scripts/bench sustained`: durable appends at full speed for five minutes (P1 alone).

Appends are uniform over a million keys, with three replicas, with sealing and merging. A sample of
the acknowledged records is read back. Beside the rate stands what a record costs of the processor:
in the client, in the three nodes together, and in their builders, merges included.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from lognode.node.local.dev import LocalCluster

from . import harness
from .load import Load, age, flat
from .processor import ProcessorWatch, children_seconds, own_seconds

COLUMNS = ("records", "seconds", "records_per_second", "service_ms.p50", "service_ms.p99",
           "verified", "series")  # fmt: skip


def main(arguments: Sequence[str]) -> int:
    """Run the benchmark, print the table, write the JSON."""
    parser = harness.parser("sustained", __doc__)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--warmup", type=float, default=0.0, help="seconds before (default 0)")
    parser.add_argument("--keys", type=int)
    parser.add_argument("--value-bytes", type=int, default=128)
    parser.add_argument("--zipf", type=float, default=0.0)
    parser.add_argument("--ranges", type=int, default=4)
    parser.add_argument("--window", type=int, default=64, help="calls of 1,000 in flight")
    options = parser.parse_args(arguments)
    seconds = options.seconds or (1.0 if options.quick else 300.0)
    keys = options.keys or (10_000 if options.quick else 1_000_000)
    around = harness.environment()
    with harness.cluster(options.data) as cluster:
        report, budget = watched(
            cluster, "append", "sustained", "--ranges", options.ranges, "--keys", keys,
            "--value-bytes", options.value_bytes, "--zipf", options.zipf, "--window",
            options.window, "--seconds", age(seconds), "--warmup", age(options.warmup),
            "--every", age(max(seconds / 60, 0.5)),
        )  # fmt: skip
    shape = {"keys": keys, "value_bytes": options.value_bytes, "zipf": options.zipf,
             "ranges": options.ranges}  # fmt: skip
    harness.show(options, around, [{**shape, **flat(report, COLUMNS), **budget}])
    return 0


def watched(
    cluster: LocalCluster, *arguments: str | float
) -> tuple[dict[str, Any], dict[str, float]]:
    """Run `lognode bench` to its end; return its report, and the processor time of a record."""
    load = Load(cluster, *arguments)
    pids = [node.pid for node in cluster.nodes]
    watch = ProcessorWatch({
        "client": partial(own_seconds, [load.pid]),
        "nodes": partial(own_seconds, pids),
        "builders": partial(children_seconds, pids),
    })  # fmt: skip
    with watch:
        report = load.report()
    begin, end = report["measured_s"]
    return report, watch.budget((begin, end), report["records"])
