"""`scripts/bench tls`: the cost of TLS, in throughput (P1) and in the latency of an append (P2).

Clusters without and with TLS, mutual between nodes and with clients, take turns, so that other work
of the machine hits both. The last row has the medians of all turns.
"""

import statistics
from collections.abc import Sequence

from . import harness
from .load import age, bench

_WORDS = ("plain", "TLS")


def main(arguments: Sequence[str]) -> int:
    """Run the benchmark, print the table, write the JSON."""
    parser = harness.parser("tls", __doc__)
    parser.add_argument("--seconds", type=float, help="seconds of each load")
    parser.add_argument("--rounds", type=int, default=4)
    options = parser.parse_args(arguments)
    seconds = options.seconds or (1.0 if options.quick else 25.0)
    keys = 10_000 if options.quick else 1_000_000
    around = harness.environment()
    rows = []
    for number in range(options.rounds):
        for tls in (False, True) if number % 2 == 0 else (True, False):
            with harness.cluster(options.data, tls=tls) as cluster:
                common = ("append", "cost", "--keys", keys)
                full = bench(cluster, *common, "--ranges", 4, "--window", 64,
                             "--seconds", age(seconds))  # fmt: skip
                single = bench(cluster, *common, "--rate", 100.0, "--batch", 1, "--seconds",
                               age(seconds), "--warmup", age(2.0))  # fmt: skip
            rows.append({
                "round": str(number + 1), "cluster": _WORDS[tls],
                "records_per_second": round(full["records_per_second"], 1),
                "p50 ms at 100/s": single["latency_ms"]["p50"],
                "p99 ms at 100/s": single["latency_ms"]["p99"],
            })  # fmt: skip
    medians = [
        {"round": "median", "cluster": word} | {
            name: round(statistics.median(row[name] for row in rows if row["cluster"] == word), 3)
            for name in rows[0] if name not in ("round", "cluster")
        }
        for word in _WORDS
    ]  # fmt: skip
    harness.show(options, around, [*rows, *medians])
    return 0
