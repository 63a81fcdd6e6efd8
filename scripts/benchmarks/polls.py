"""`scripts/bench poll`: a page of one key while 20 MB/s are ingested, by number of keys (P3).

Each number of keys has nodes of its own, filled first so that most polls read several entries; then
it is polled for so long linearizably, and for as long at any member (prefix). The polls and the
appends, in calls of 1,000 records, are open loops in one process, which is not one of the nodes'.
"""

from collections.abc import Sequence
from typing import Any

from . import harness
from .load import age, bench, fill, flat

COLUMNS = ("poll.keys", "poll.consistency", "append.records_per_second", "poll.calls",
           "poll.latency_ms.p50", "poll.latency_ms.p99", "poll.latency_ms.max",
           "poll.service_ms.p50", "poll.service_ms.p99", "poll.entries",
           "poll.verified")  # fmt: skip
CONSISTENCIES = ("linearizable", "prefix")
_KEY_BYTES = 16


def main(arguments: Sequence[str]) -> int:
    """Run, print, write the JSON."""
    parser = harness.parser("poll", __doc__)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--keys", help="comma-separated")
    parser.add_argument("--per-key", type=int, default=8, help="entries a key has at first")
    parser.add_argument("--value-bytes", type=int, default=128)
    parser.add_argument("--ingest", type=float, help="MB/s (default 20)")
    parser.add_argument("--polls", type=float, default=100.0, help="a second")
    parser.add_argument("--ranges", type=int, default=1)
    options = parser.parse_args(arguments)
    seconds = options.seconds or (1.0 if options.quick else 60.0)
    sizes = options.keys or ("1000" if options.quick else "100000,250000,500000,1000000")
    ingest = (options.ingest or (0.5 if options.quick else 20.0)) * 1e6
    rate = ingest / (_KEY_BYTES + options.value_bytes)
    around = harness.environment()
    rows: list[dict[str, Any]] = []
    firsts: dict[str, float] = {}
    for keys in map(int, sizes.split(",")):
        with harness.cluster(options.data) as cluster:
            fill(cluster, "poll", keys, value_bytes=options.value_bytes, ranges=options.ranges,
                 records=keys * options.per_key)  # fmt: skip
            for consistency in CONSISTENCIES:
                report = bench(
                    cluster, "mixed", "poll", "--keys", keys, "--seconds", age(seconds),
                    "--warmup", age(min(2.0, seconds / 4)), "--rate", rate,
                    "--value-bytes", options.value_bytes, "--polls", options.polls,
                    "--consistency", consistency,
                )  # fmt: skip
                row = flat(report, COLUMNS)
                p50 = row["poll latency_ms p50"]
                first = firsts.setdefault(consistency, p50)
                rows.append({**row, "p50 / first": round(p50 / first, 3)})
    harness.show(options, around, rows)
    return 0
