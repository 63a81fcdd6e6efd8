"""`scripts/bench contention`: conditional appends on key pools from one to a million (P12).

`append`: each caller appends on the condition that no other entry came in between, by the last
entry that its client knows, and reads the key again after a refusal. `append_many`: each of 64
callers appends to 500 keys in one call, with a condition for each record; only for the largest
pools. `update`: each caller calls `AsyncLog.update`. No update may be lost: the entries and
acknowledgements of the keys are compared.

`never_served` counts callers without one success, and `longest_wait_s` is the longest time of one
call, also of a call that has not ended. `out_of_order` is the share of successes that were
overtaken by an append to the same key that was begun later, at most `overtaken_s` seconds later.
`node_us` and `load_us` are microseconds of processor time for each success: of all nodes together,
and of the process with the callers.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from lognode.node.local.dev import LocalCluster

from . import harness
from .load import age, bench, flat

COLUMNS = ("clients", "window", "batch", "records", "records_per_second", "refused",
           "service_ms.p50", "service_ms.p99", "longest_wait_s", "never_served", "out_of_order",
           "overtaken_s", "load_us", "verified")  # fmt: skip
_MANY_FROM = 10_000
"""The least keys of a pool for calls with many keys: few of them compete."""
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def main(arguments: Sequence[str]) -> int:
    """Run the benchmark, print the table, write the JSON."""
    parser = harness.parser("contention", __doc__)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--pools", help="comma-separated (default 1,64,128,1000000)")
    parser.add_argument("--window", type=int, default=256, help="callers")
    parser.add_argument("--clients", default="1,8", help="clients that share the callers of "
                        "one key (default 1,8); other pools have one client")  # fmt: skip
    parser.add_argument("--calls", default="append,append_many,update",
                        help="(default append,append_many,update)")  # fmt: skip
    parser.add_argument("--ranges", type=int, default=4)
    options = parser.parse_args(arguments)
    seconds = options.seconds or (1.0 if options.quick else 30.0)
    pools = options.pools or ("1,10000" if options.quick else "1,64,128,1000000")
    around = harness.environment()
    rows = []
    with harness.cluster(options.data) as cluster:
        for number in range(options.rounds):
            for keys in map(int, pools.split(",")):
                for call in options.calls.split(","):
                    if call == "append_many" and keys < _MANY_FROM:
                        continue
                    for clients in map(int, options.clients.split(",") if keys == 1 else "1"):
                        before = _processor_s(cluster)
                        report = bench(
                            cluster, "append", f"pool-{keys}-{call}-{clients}-{number}",
                            "--ranges", min(options.ranges, keys), "--keys", keys,
                            *_flags(call, options.window), "--clients", clients,
                            "--seconds", age(seconds),
                        )  # fmt: skip
                        spent = _processor_s(cluster) - before
                        rows.append({
                            "round": number + 1, "keys": keys, "call": call,
                            **flat(report, COLUMNS),
                            "node_us": round(spent * 1e6 / max(1, report["records"]), 1),
                        })  # fmt: skip
    harness.show(options, around, rows)
    return 0


def _flags(call: str, window: int) -> list[str | float]:
    if call == "append_many":
        return ["--conditional", "--batch", 500, "--window", 64]
    return ["--update" if call == "update" else "--conditional", "--window", window]


def _processor_s(cluster: LocalCluster) -> float:
    """Return the processor time of the nodes so far, without their builders, in seconds."""
    total = 0
    for node in cluster.nodes:
        stat = Path(f"/proc/{node.pid}/stat").read_text("utf-8").rpartition(")")[2].split()
        total += int(stat[11]) + int(stat[12])  # utime and stime, man 5 proc
    return total * _TICK_S
