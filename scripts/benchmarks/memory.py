"""`scripts/bench memory`: the memory of a node under steady half load, and what holds it.

Every second it samples the resident memory of each node, apart from the memory of its builder and
its merges; the bytes that the node's parts say they hold; and the files that the kernel keeps for
the node, which it may drop. `rest` is what the parts do not account for: the interpreter, the
libraries, what the allocator keeps. A memtable of the same records is also filled in a process of
its own, whose growth is compared with the memtable's own account.
"""

import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lognode.node.local.dev import LocalCluster, LocalNode

from . import harness, nodes
from .load import Load, age, bench

_FULL_S = 60.0
"""How long the load runs at full speed first, to find half of it."""
_MIB = 1 << 20
PARTS = {
    "memtables": ("lognode_memtable_bytes",),
    "log cache": ('lognode_cached_bytes{cache="log"}',),
    "blocks": ('lognode_cached_bytes{cache="blocks"}',),
    "columns": ('lognode_cached_bytes{cache="columns"}',),
    "requests and answers": (
        'lognode_request_bytes{level="node"}', 'lognode_request_bytes{level="peers"}',
        'lognode_answer_bytes{level="node"}', 'lognode_answer_bytes{level="peers"}',
    ),
}  # fmt: skip
"""The parts of a node, and the metrics whose sum each is."""


def main(arguments: Sequence[str]) -> int:
    """Run, print the largest of each quarter, write all samples to the JSON."""
    parser = harness.parser("memory", __doc__)
    parser.add_argument("--seconds", type=float, help="default 300")
    parser.add_argument("--keys", type=int)
    parser.add_argument("--value-bytes", type=int, default=128)
    parser.add_argument("--ranges", type=int, default=4)
    parser.add_argument("--batch", type=int, default=500, help="records of a call")
    parser.add_argument("--rate", type=float, help="records/s; default half of a minute's run")
    parser.add_argument("--filled", type=int, help="records of the memtable that is filled alone")
    options = parser.parse_args(arguments)
    seconds = options.seconds or (2.0 if options.quick else 300.0)
    keys = options.keys or (1_000 if options.quick else 1_000_000)
    around = harness.environment()
    alone = filled(options.filled or (100_000 if options.quick else 400_000), keys,
                   options.value_bytes)  # fmt: skip
    with harness.cluster(options.data) as cluster:
        common = ("append", "memory", "--keys", keys, "--value-bytes", options.value_bytes,
                  "--ranges", options.ranges)  # fmt: skip
        rate = options.rate
        if rate is None:
            full = bench(cluster, *common, "--seconds", age(min(_FULL_S, seconds)))
            rate = full["records_per_second"] / 2
        load = Load(cluster, *common, "--rate", rate, "--batch", options.batch, "--seconds",
                    age(seconds))  # fmt: skip
        samples, report = _watch(cluster, load, min(1.0, seconds / 4))
    quarters = [
        samples[len(samples) * n // 4 : len(samples) * (n + 1) // 4] or samples[-1:]
        for n in range(4)
    ]
    table = [
        {"MiB": name, **{f"quarter {n}": largest(part, name) for n, part in enumerate(quarters, 1)}}
        for name in samples[0]["nodes"][0]
    ]
    around = {**around, "rate": round(rate), "verified": report["verified"],
              "append p50 ms": report["latency_ms"]["p50"],
              "append p99 ms": report["latency_ms"]["p99"],
              "held / accounted of a memtable": alone}  # fmt: skip
    harness.show(options, around, table, memory=samples)
    return 0


def filled(records: int, keys: int, value_bytes: int) -> float:
    """Return what a memtable of this many records really holds, over its own account."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.filled_memtable", str(records), str(keys),
         str(value_bytes)],
        cwd=Path(__file__).parents[1], capture_output=True, text=True, check=True,
    )  # fmt: skip
    return float(done.stdout)


def largest(samples: Sequence[Mapping[str, Any]], name: str) -> float:
    """Return the largest figure of any node, in MiB."""
    return round(max(node[name] for sample in samples for node in sample["nodes"]) / _MIB, 1)


def own_and_files(pid: int | str = "self") -> dict[str, int]:
    """Return the bytes of memory that are the process's own, and those of files that it maps."""
    found = {}
    for line in Path(f"/proc/{pid}/status").read_text("ascii").splitlines():
        for field, name in (("RssAnon:", "own"), ("RssFile:", "files")):
            if line.startswith(field):
                found[name] = int(line.split()[1]) << 10
    return found


def parts(exposition: str) -> dict[str, int]:
    """Return the bytes of each part by the text of a node's metrics."""
    values = {}
    for line in exposition.splitlines():
        name, _, value = line.rpartition(" ")
        if not line.startswith("#"):
            values[name] = float(value)
    return {part: round(sum(values[name] for name in names)) for part, names in PARTS.items()}


def _sample(node: LocalNode) -> dict[str, int]:
    with urllib.request.urlopen(f"http://{node.http}/metrics", timeout=10) as answer:
        held = parts(answer.read().decode("ascii"))
    memory = own_and_files(node.pid)
    return {
        "node": memory["own"], **held, "rest": memory["own"] - sum(held.values()),
        "files of the node": memory["files"],
        "builder and merges": nodes.resident_bytes(node, children=True)
        - nodes.resident_bytes(node),
    }  # fmt: skip


def _watch(
    cluster: LocalCluster, load: Load, every: float
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return samples until the load ends, and its report."""
    samples: list[dict[str, Any]] = []
    began = time.monotonic()
    try:
        while load.running:
            samples.append({
                "at_s": round(time.monotonic() - began, 1),
                "nodes": [_sample(node) for node in cluster.nodes],
            })  # fmt: skip
            time.sleep(every)
        return samples, load.report()
    finally:
        load.end()
