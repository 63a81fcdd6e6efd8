"""`scripts/bench contention`: conditional appends on key pools from one to a million (P12).

Each caller reads a key's last entry (from the program's own view, or from the log after a refusal)
and appends on the condition that no other entry came in between. No update may be lost: the entries
and acknowledgements of the keys are compared.
"""

from collections.abc import Sequence

from . import harness
from .load import age, bench, flat

COLUMNS = ("keys", "window", "records", "records_per_second", "refused", "service_ms.p50",
           "service_ms.p99", "verified")  # fmt: skip


def main(arguments: Sequence[str]) -> int:
    """Run the benchmark, print the table, write the JSON."""
    parser = harness.parser("contention", __doc__)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--pools", help="comma-separated (default 1,64,128,1000000)")
    parser.add_argument("--window", type=int, default=256, help="callers")
    parser.add_argument("--ranges", type=int, default=4)
    options = parser.parse_args(arguments)
    seconds = options.seconds or (1.0 if options.quick else 30.0)
    pools = options.pools or ("1,10000" if options.quick else "1,64,128,1000000")
    around = harness.environment()
    rows = []
    with harness.cluster(options.data) as cluster:
        for number in range(options.rounds):
            for keys in map(int, pools.split(",")):
                report = bench(
                    cluster, "append", f"pool-{keys}-{number}", "--ranges",
                    min(options.ranges, keys), "--keys", keys, "--conditional", "--window",
                    options.window, "--seconds", age(seconds),
                )  # fmt: skip
                rows.append({"round": number + 1, **flat(report, COLUMNS)})
    harness.show(options, around, rows)
    return 0
