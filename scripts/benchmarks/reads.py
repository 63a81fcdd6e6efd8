"""`scripts/bench reads`: linearizable reads over many ranges at once, and their cost.

Every range has a leader of its own that must confirm its lead for each read. The benchmark measures
whether this is done for all of them together: reads a second, frames of Raft messages a second, and
the processor time of the nodes.
"""

import argparse
import asyncio
import random
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import lognode
from lognode.node.local.dev import LocalCluster

from . import nodes
from .figures import data_directory, environment, quantile


def main(arguments: Sequence[str]) -> int:
    """Start three nodes, read, print the figures."""
    parser = argparse.ArgumentParser(prog="scripts/bench reads", allow_abbrev=False)
    parser.add_argument("--ranges", type=int, default=200)
    parser.add_argument("--readers", type=int, default=200, help="reads in flight")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--data", type=data_directory, default=Path())
    options = parser.parse_args(arguments)
    with (
        tempfile.TemporaryDirectory(dir=options.data) as directory,
        LocalCluster(Path(directory), 3) as cluster,
    ):
        print("  ".join(f"{name}={value}" for name, value in environment().items()))
        for line in asyncio.run(_run(cluster, options)):
            print(line)
    return 0


async def _run(cluster: LocalCluster, options: argparse.Namespace) -> list[str]:
    async with lognode.AsyncClient(cluster.servers, timeout=60) as client:
        await nodes.healthy(client)
        keys = [b"%06d" % number for number in range(options.ranges)]
        log = await client.create_log("reads", split_at=keys[1:])
        await nodes.healthy(client)
        await log.append_many([(key, key) for key in keys])
        lines = []
        for workload, share in (("read", 1.0), ("read, 10 % appends", 0.9)):
            await _round(cluster, log, keys, options.readers, 2.0, share)  # warms up
            lines.append(
                f"{workload}: "
                + await _round(cluster, log, keys, options.readers, options.seconds, share)
            )
        return lines


async def _round(
    cluster: LocalCluster,
    log: lognode.AsyncLog,
    keys: Sequence[bytes],
    readers: int,
    seconds: float,
    share: float,
) -> str:
    rng = random.Random(1)
    latencies: list[float] = []
    before, cpu = nodes.counters(cluster), sum(map(nodes.cpu_seconds, cluster.nodes))
    started = time.perf_counter()

    async def reader() -> None:
        while time.perf_counter() - started < seconds:
            key = rng.choice(keys)
            if rng.random() >= share:
                await log.append(key, key)
                continue
            sent = time.perf_counter()
            entry = await log.latest(key)
            latencies.append(time.perf_counter() - sent)
            if entry is None or entry.value != key:
                raise lognode.CorruptData(f"key {key!r} does not hold what was acknowledged")

    await asyncio.gather(*(reader() for _ in range(readers)))
    took = time.perf_counter() - started
    after = nodes.counters(cluster)
    cpu = sum(map(nodes.cpu_seconds, cluster.nodes)) - cpu
    sent = {
        name: after[f"lognode_raft_{name}_total"] - before[f"lognode_raft_{name}_total"]
        for name in ("frames", "messages")
    }
    return (
        f"{len(latencies) / took:,.0f} reads/s, p50 {quantile(latencies, 0.5) * 1e3:.2f} ms, "
        f"p99 {quantile(latencies, 0.99) * 1e3:.2f} ms; {sent['frames'] / took:,.0f} frames/s with "
        f"{sent['messages'] / took:,.0f} messages/s; {cpu / took:.2f} cores"
    )
