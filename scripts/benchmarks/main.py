"""The command line of scripts/bench."""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from . import figures, handover, idle, lognode_system, nats_system, reads, slow, wal_files
from .workload import Shape


def main(arguments: Sequence[str]) -> int:
    """The benchmark that is named first. Exit code 0 when every value read back was right."""
    own = {
        "handover": handover.main,
        "idle": idle.main,
        "reads": reads.main,
        "slow": slow.main,
        "wal": wal_files.main,
    }
    if arguments and arguments[0] in own:
        return own[arguments[0]](arguments[1:])
    return _peers(arguments)


def _peers(arguments: Sequence[str]) -> int:
    """Run, print the table, write the JSON. Exit code 0 when every value read back was right."""
    parser = argparse.ArgumentParser(prog="scripts/bench", allow_abbrev=False)
    parser.add_argument("workload", choices=("append", "poll", "all"))
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--value-bytes", type=int, default=128)
    parser.add_argument("--batch", type=int, default=1_000, help="records of one append_many")
    parser.add_argument("--rate", type=float, default=100.0, help="appends/s of the latency run")
    parser.add_argument("--peers", default="nats", help="comma-separated; empty for none")
    parser.add_argument("--data", type=Path, default=Path())
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    shape = Shape(options.keys, options.value_bytes, options.seconds, options.batch, options.rate)
    workloads = {"append", "poll"} if options.workload == "all" else {options.workload}
    environment = figures.environment()
    results = lognode_system.run(shape, workloads, options.data)
    for peer in filter(None, options.peers.split(",")):
        if peer != nats_system.NAME:
            parser.error(f"unknown peer {peer!r}; known: {nats_system.NAME}")
        reason = nats_system.missing()
        if reason is not None:
            print(f"skipped {peer}: {reason}")
            continue
        environment[peer] = nats_system.version()
        results += nats_system.run(shape, workloads, options.data)
    print("  ".join(f"{name}={value}" for name, value in environment.items()))
    print(figures.table(results))
    if options.json:
        body = {"environment": environment, "results": [asdict(r) for r in results]}
        options.json.write_text(json.dumps(body, indent=2) + "\n")
    return 0
