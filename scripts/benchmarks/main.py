"""The command line of scripts/bench: it runs the benchmark of the first argument."""

import importlib
import signal
import sys
from collections.abc import Sequence

NAMES = {
    "abuse": "abuse",
    "amplification": "amplification",
    "backup": "backup",
    "build": "build_phases",
    "coldreads": "cold_reads",
    "contention": "contention",
    "door": "door.run",
    "fetch": "peers.fetch",
    "follow": "follow.run",
    "groups": "groups.run",
    "growth": "growth",
    "handover": "handover",
    "history": "history",
    "idle": "idle",
    "latency": "latency",
    "memory": "memory",
    "peers": "peers.run",
    "plot": "plot",
    "poll": "polls",
    "ranges": "ranges",
    "readback": "readback",
    "reads": "reads",
    "restart": "restart",
    "scan": "scan",
    "seal": "seal",
    "segments": "segments",
    "slow": "slow",
    "spark": "spark_read",
    "steady": "steady",
    "sustained": "sustained",
    "tls": "tls_cost",
    "wal": "wal_files",
    "writeback": "write_back",
}
"""The module of each benchmark, with its `main`."""


def main(arguments: Sequence[str]) -> int:
    """Run the benchmark. Return 0 when every value read back was right."""
    if not arguments or arguments[0] not in NAMES:
        print(f"scripts/bench {'|'.join(NAMES)} [--help]", file=sys.stderr)
        return 2
    # All started processes end on the way out, also when this process is asked to end.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    module = importlib.import_module(f"benchmarks.{NAMES[arguments[0]]}")
    code: int = module.main(arguments[1:])
    return code
