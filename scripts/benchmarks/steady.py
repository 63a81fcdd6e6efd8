"""`scripts/bench steady`: half of P1 for half an hour, with sealing, merging and retention.

Every few seconds it samples resident memory of a node and of its builder, open files, bytes on
disk, and the latency of the appends from their due time. All should stay level once retention has
set in. `scripts/bench plot` draws them.
"""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lognode
from lognode.client.bench.shape import Shape
from lognode.node.local.dev import LocalCluster

from . import harness, nodes
from .load import Load, age, bench

_LOG = "steady"
_FULL_S = 120.0
"""How long the load runs at full speed first; in less time hardly anything is merged."""


def main(arguments: Sequence[str]) -> int:
    """Run, print the ends of the phases, write all samples to the JSON."""
    parser = harness.parser("steady", __doc__)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--keys", type=int)
    parser.add_argument(
        "--rate", type=float, help="records a second; default half of two minutes' run"
    )
    parser.add_argument("--retention", type=float, help="seconds (default a sixth of the run)")
    parser.add_argument("--ranges", type=int, default=4)
    options = parser.parse_args(arguments)
    seconds = options.seconds or (2.0 if options.quick else 1_800.0)
    every = max(seconds / 360, 0.5)
    keys = options.keys or (1_000 if options.quick else 1_000_000)
    retention = options.retention or seconds / 6
    around = harness.environment()
    with harness.cluster(options.data) as cluster:
        asyncio.run(_create(cluster.servers, keys, options.ranges, retention))
        common = ("append", _LOG, "--keys", keys)
        rate = options.rate
        if rate is None:
            full = bench(cluster, *common, "--seconds", age(min(_FULL_S, seconds)))
            rate = full["records_per_second"] / 2
        load = Load(cluster, *common, "--rate", rate, "--batch", 500, "--seconds", age(seconds),
                    "--every", age(every))  # fmt: skip
        samples, report = _watch(cluster, load, every)
    rows = [_phase(samples, report["series"], n, n + 1, 4) for n in range(4)]
    for row in rows:
        row |= {"rate": round(rate)} | {name: report[name] for name in ("verified", "expired")}
    around = {**around, "retention_s": retention}
    harness.show(options, around, rows, samples=samples, series=report["series"])
    return 0


async def _create(servers: str, keys: int, ranges: int, retention: float) -> None:
    async with lognode.AsyncClient(servers, timeout=60) as client:
        await client.create_log(
            _LOG,
            split_at=Shape(keys).splits(ranges),
            split_rate=None,
            retention_ms=int(retention * 1_000),
        )
        await nodes.healthy(client)


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
                "resident_bytes": [nodes.resident_bytes(node, children=True)
                                   for node in cluster.nodes],
                "open_files": [nodes.open_files(node) for node in cluster.nodes],
                "disk_bytes": [_disk(node.data) for node in cluster.nodes],
            })  # fmt: skip
            time.sleep(every)
        return samples, load.report()
    finally:
        load.end()


def _disk(directory: Path) -> int:
    """Return the bytes that the files take; some files may go meanwhile."""
    total = 0
    for path in directory.rglob("*"):
        try:
            total += path.stat().st_blocks * 512
        except FileNotFoundError:
            continue
    return total


def _phase(
    samples: Sequence[dict[str, Any]], series: Sequence[dict[str, Any]], start: int, end: int,
    of: int,
) -> dict[str, Any]:  # fmt: skip
    """Return the largest of each figure in a part of the run."""

    def part(rows: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
        return rows[len(rows) * start // of : max(len(rows) * end // of, 1)] or rows[-1:]

    def largest(name: str) -> int:
        return max(int(value) for sample in part(samples) for value in sample[name])

    return {
        "quarter": f"{end} of {of}",
        "memory MiB": round(largest("resident_bytes") / (1 << 20), 1),
        "open files": largest("open_files"),
        "disk MiB": round(largest("disk_bytes") / (1 << 20), 1),
        "p50 ms": max(row["p50_ms"] for row in part(series)),
        "p99 ms": max(row["p99_ms"] for row in part(series)),
    }
