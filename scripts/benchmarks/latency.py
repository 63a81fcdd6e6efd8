"""`scripts/bench latency`: the latency of an append, at 100 a second and at half of P1 (P2).

Appends are an open loop, measured from their due time, with the time of the call itself beside it.
One fdatasync and one round trip over loopback are measured in the same run; the first row is
compared with them. Half of P1 comes from a short run at full speed, unless --half gives it.
"""

from collections.abc import Sequence

from . import harness
from .load import age, bench, flat

COLUMNS = ("rate", "batch", "records", "latency_ms.p50", "latency_ms.p99", "latency_ms.max",
           "service_ms.p50", "service_ms.p99", "verified")  # fmt: skip
_HALF_BATCH = 100


def main(arguments: Sequence[str]) -> int:
    """Run the benchmark, print the table, write the JSON."""
    parser = harness.parser("latency", __doc__)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--keys", type=int)
    parser.add_argument("--ranges", type=int, default=4)
    parser.add_argument("--half", type=float, help="records a second of the second rate")
    options = parser.parse_args(arguments)
    seconds = options.seconds or (1.0 if options.quick else 60.0)
    keys = options.keys or (10_000 if options.quick else 1_000_000)
    around = harness.environment()
    floor_ms = float(around["fdatasync_p50_ms"]) + float(around["loopback_p50_ms"])
    rows = []
    with harness.cluster(options.data) as cluster:
        common = ("append", "latency", "--keys", keys)
        full = bench(cluster, *common, "--ranges", options.ranges, "--seconds", age(seconds / 2))
        half = options.half or full["records_per_second"] / 2
        for number in range(options.rounds):
            for rate, batch in ((100.0, 1), (half, _HALF_BATCH)):
                report = bench(cluster, *common, "--rate", rate, "--batch", batch, "--seconds",
                               age(seconds), "--warmup", age(min(2.0, seconds / 4)))  # fmt: skip
                p50, p99 = report["latency_ms"]["p50"], report["latency_ms"]["p99"]
                rows.append({
                    "round": number + 1, **flat(report, COLUMNS),
                    "p50 / (fdatasync + loopback)": round(p50 / floor_ms, 2),
                    "p99 / p50": round(p99 / p50, 2),
                })  # fmt: skip
    harness.show(options, around, rows)
    return 0
