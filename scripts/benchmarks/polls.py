"""`scripts/bench poll`: pages of single keys while 20 MB/s are ingested, by number of keys (P3).

The workload is that of OpenData's `keyscale` (docs/performance.md#polls-beside-20-mbs): writers and
readers draw keys from one Zipf distribution; a reader reads a key from its beginning to its end, a
page of 32 a poll. Each number of keys has nodes of its own, and at first one entry a key. Polls go
to any member for a while (prefix), like keyscale's to a replica that lags, and then linearizably
for as long. Both loads are open loops, each in a process of its own.
"""

from collections.abc import Sequence
from typing import Any

from . import harness
from .load import Load, age, bench, fill, flat

_APPENDS = ("records_per_second", "latency_ms.p50", "latency_ms.p99")
_POLLS = ("calls", "latency_ms.p50", "latency_ms.p90", "latency_ms.p99", "latency_ms.max",
          "service_ms.p50", "service_ms.p99", "entries", "verified")  # fmt: skip
CONSISTENCIES = ("prefix", "linearizable")
_KEY_BYTES = 16
_LONGER_S = 5.0
"""How long the appends go on after the polls: both start when their processes are there."""


def main(arguments: Sequence[str]) -> int:
    """Run the benchmark, print the table, write the JSON."""
    parser = harness.parser("poll", __doc__)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--keys", help="comma-separated")
    parser.add_argument("--per-key", type=int, default=1, help="entries a key has at first")
    parser.add_argument("--value-bytes", type=int, default=128)
    parser.add_argument("--zipf", type=float, default=1.1, help="0: uniform")
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
                shape = ("--keys", keys, "--zipf", options.zipf, "--value-bytes",
                         options.value_bytes)  # fmt: skip
                warmup = min(2.0, seconds / 4)
                appends = Load(
                    cluster, "append", "poll", *shape, "--rate", rate, "--batch", 1_000,
                    "--warmup", age(warmup), "--seconds", age(seconds + _LONGER_S),
                )  # fmt: skip
                try:
                    polls = bench(
                        cluster, "poll", "poll", *shape, "--rate", options.polls,
                        "--warmup", age(warmup), "--seconds", age(seconds),
                        "--consistency", consistency,
                    )  # fmt: skip
                    if not appends.running:
                        raise RuntimeError("the appends came to their end before the polls")
                    appended = appends.report()
                finally:
                    appends.end()
                p50 = polls["latency_ms"]["p50"]
                first = firsts.setdefault(consistency, p50)
                rows.append(
                    {
                        "poll keys": keys, "poll consistency": consistency,
                        "zipf": options.zipf, "value bytes": options.value_bytes,
                        **_named("append", flat(appended, _APPENDS)),
                        **_named("poll", flat(polls, _POLLS)), "p50 / first": round(p50 / first, 3),
                    }
                )  # fmt: skip
    harness.show(options, around, rows)
    return 0


def _named(what: str, figures: dict[str, Any]) -> dict[str, Any]:
    return {f"{what} {name}": value for name, value in figures.items()}
