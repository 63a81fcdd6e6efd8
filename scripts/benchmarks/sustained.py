"""`scripts/bench sustained`: durable appends at full speed for five minutes (P1 alone).

Appends are uniform over a million keys, with three replicas, with sealing and merging. A sample of
the acknowledged records is read back.
"""

from collections.abc import Sequence

from . import harness
from .load import age, bench, flat

COLUMNS = ("records", "seconds", "records_per_second", "service_ms.p50", "service_ms.p99",
           "verified", "series")  # fmt: skip


def main(arguments: Sequence[str]) -> int:
    """Run the benchmark, print the table, write the JSON."""
    parser = harness.parser("sustained", __doc__)
    parser.add_argument("--seconds", type=float)
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
        report = bench(
            cluster, "append", "sustained", "--ranges", options.ranges, "--keys", keys,
            "--value-bytes", options.value_bytes, "--zipf", options.zipf, "--window",
            options.window, "--seconds", age(seconds), "--every", age(max(seconds / 60, 0.5)),
        )  # fmt: skip
    shape = {"keys": keys, "value_bytes": options.value_bytes, "zipf": options.zipf,
             "ranges": options.ranges}  # fmt: skip
    harness.show(options, around, [{**shape, **flat(report, COLUMNS)}])
    return 0
