"""`scripts/bench seal`: the cost of building segments for the appends beside it.

Three nodes get single appends in an open loop, and a steady load into the same range that fills its
memtable repeatedly. Afterwards the nodes' logs say when one of them was building. An append counts
as beside a build when any build was under way between its due time and its answer.
"""

import argparse
import asyncio
import json
import random
import time
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path

import lognode
from lognode.node.local.dev import LocalCluster

from . import harness, nodes
from .figures import environment, quantile

_BATCH = 50
_KEYS = 100_000
_PROBE = b"probe"
QUANTITIES = (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("slowest", 1.0))
Span = tuple[float, float]
"""Begin and end, in seconds of the wall clock."""


def main(arguments: Sequence[str]) -> int:
    """Start three nodes, load them, print the figures of appends with and without a build."""
    parser = harness.parser("seal", __doc__)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--rate", type=float, default=200.0, help="single appends/s, timed")
    parser.add_argument("--load", type=float, help="MB/s of other appends")
    parser.add_argument("--value-bytes", type=int, default=1_000, help="bytes of the load, random")
    options = parser.parse_args(arguments)
    options.seconds = options.seconds or (2.0 if options.quick else 25.0)
    options.load = options.load or (0.5 if options.quick else 6.0)
    around = environment()
    with harness.cluster(options.data) as cluster:
        run = _Run(cluster, options)
        asyncio.run(run.run())
        builds = [span for node in cluster.nodes for span in _builds(node.log_path)]
        used = nodes.counters(cluster)
    took = [end - begin for begin, end in builds]
    rounds, seconds = (used[f"lognode_wal_round_seconds_{name}"] for name in ("count", "sum"))
    around["segments"] = len(builds)
    around["build_p50_s"] = round(quantile(took, 0.5), 2)
    around["wal_round_mean_ms"] = round(seconds / rounds * 1e3, 2)
    harness.show(options, around, run.results(builds))
    return 0


class _Run:
    """The load, and the timed appends beside the load."""

    def __init__(self, cluster: LocalCluster, options: argparse.Namespace) -> None:
        self._servers = cluster.servers
        self._seconds: float = options.seconds
        self._rate: float = options.rate
        self._value_bytes: int = options.value_bytes
        self._bulks_per_s: float = options.load * 1e6 / (_BATCH * (16 + options.value_bytes))
        self._probes: list[Span] = []

    async def run(self) -> None:
        """Fill `_probes`. Raises CorruptData when some are missing afterwards."""
        async with lognode.AsyncClient(self._servers, timeout=60) as client:
            await nodes.healthy(client)
            log = await client.create_log("seal")
            await nodes.healthy(client)
            until = time.perf_counter() + self._seconds
            async with asyncio.TaskGroup() as group:
                group.create_task(self._probe(log, until))
                group.create_task(self._load(log, until))
            found = await log.count(_PROBE)
        if found != len(self._probes):
            raise lognode.CorruptData(f"{found} of {len(self._probes)} timed appends are there")

    async def _probe(self, log: lognode.AsyncLog, until: float) -> None:
        started, number = time.perf_counter(), 0
        async with asyncio.TaskGroup() as group:
            while (due := started + number / self._rate) < until:
                number += 1
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
                group.create_task(self._one(log, due))

    async def _one(self, log: lognode.AsyncLog, due: float) -> None:
        await log.append(_PROBE, b"x" * 100)
        now = time.time()
        self._probes.append((now - (time.perf_counter() - due), now))

    async def _load(self, log: lognode.AsyncLog, until: float) -> None:
        rng, started, number = random.Random(1), time.perf_counter(), 0
        async with asyncio.TaskGroup() as group:
            while (due := started + number / self._bulks_per_s) < until:
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
                records = [(b"%016d" % rng.randrange(_KEYS), rng.randbytes(self._value_bytes))
                           for _ in range(_BATCH)]  # fmt: skip
                group.create_task(log.append_many(records))
                number += 1

    def split(self, builds: Sequence[Span]) -> tuple[list[float], list[float]]:
        """Return the latencies of the appends with no build beside them, and with one."""
        without: list[float] = []
        beside: list[float] = []
        for begin, end in self._probes:
            met = any(begin < built and began < end for began, built in builds)
            (beside if met else without).append(end - begin)
        return without, beside

    def results(self, builds: Sequence[Span]) -> list[harness.Row]:
        """Return the rows of the table."""
        beside = _covered(builds, self._probes[0][0], self._probes[-1][1])
        return [
            {
                "appends": name,
                "seconds": round(seconds, 2),
                "verified": len(latencies),
                **{
                    f"{quantity}_ms": round(quantile(latencies, fraction) * 1e3, 2)
                    for quantity, fraction in QUANTITIES
                },
            }
            for latencies, name, seconds in zip(
                self.split(builds),
                ("beside no build", "beside a build"),
                (self._seconds - beside, beside),
                strict=True,
            )
            if latencies  # a short run may have built nothing
        ]


def _covered(spans: Iterable[Span], begin: float, end: float) -> float:
    """Return the seconds of [begin, end) that lie in some span."""
    total, at = 0.0, begin
    for began, built in sorted(spans):
        began, built = max(began, at), min(built, end)
        if built > began:
            total, at = total + built - began, built
    return total


def _builds(log: Path) -> list[Span]:
    """Return when a node built segments, from the lines of its log."""
    spans = []
    for line in log.read_text("utf-8").splitlines():
        if '"segment built"' in line:
            body = json.loads(line)
            end = datetime.fromisoformat(body["time"]).timestamp()
            spans.append((end - body["seconds"], end))
    return spans
