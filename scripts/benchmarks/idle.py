"""`scripts/bench idle`: the cost of unused ranges, and the cost of a node's death then.

CPU is the processor time of a node's process over a while. Memory is the growth of its resident set
over that before the log was created. The nodes themselves count the groups that cease to rest
(`lognode_group_wakes_total`).
"""

import argparse
import asyncio
import json
import random
import tempfile
import time
import urllib.request
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import lognode
from lognode.node.local.dev import LocalCluster, LocalNode
from lognode.partitions.model import CONTROLLER_RANGE

from . import nodes
from .figures import data_directory, environment, quantile

_NODES = 3
_LIMIT_S = 120.0


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table."""

    what: str
    value: float
    unit: str = ""
    goal: str = ""


def main(arguments: Sequence[str]) -> int:
    """Start three nodes, let their ranges rest, kill one; print the figures, write the JSON."""
    parser = argparse.ArgumentParser(prog="scripts/bench idle", allow_abbrev=False)
    parser.add_argument("--ranges", type=int, default=1_000)
    parser.add_argument(
        "--seconds", type=float, default=30.0, help="seconds of measuring CPU at rest"
    )
    parser.add_argument("--appends", type=int, default=20, help="each to a range at rest")
    parser.add_argument("--data", type=data_directory, default=Path())
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    around = environment()
    with (
        tempfile.TemporaryDirectory(dir=options.data) as directory,
        LocalCluster(Path(directory), _NODES) as cluster,
    ):
        figures = asyncio.run(_Run(cluster, options.ranges).all(options.seconds, options.appends))
    print("  ".join(f"{name}={value}" for name, value in around.items()))
    width = max(len(figure.what) for figure in figures)
    for each in figures:
        print(f"{each.what:<{width}}  {each.value:>9g} {each.unit:<7} {each.goal}".rstrip())
    if options.json:
        body = {"environment": around, "results": [asdict(figure) for figure in figures]}
        options.json.write_text(json.dumps(body, indent=2) + "\n")
    return 0


class _Run:
    """One cluster with one log of `ranges` ranges."""

    def __init__(self, cluster: LocalCluster, ranges: int) -> None:
        self._cluster = cluster
        self._alive = list(cluster.nodes)
        self._ranges = ranges

    async def all(self, seconds: float, appends: int) -> list[Figure]:
        async with lognode.AsyncClient(self._cluster.servers, timeout=60) as client:
            await nodes.healthy(client)
            empty = [nodes.resident_bytes(node) for node in self._alive]
            began = time.perf_counter()
            log = await client.create_log("idle", ranges=self._ranges)
            await self._until("all ranges have leaders", self._all_led)
            created = _since(began)
            await self._until("all ranges rest", self._all_rest)
            figures = [
                Figure("create the log, all ranges led", created, "s", "seconds"),
                Figure("until all ranges rest", _since(began), "s"),
            ]
            figures += await self._cost(empty, seconds)
            figures += await self._appends(log, appends)
        return figures + await self._death()

    async def _cost(self, empty: list[int], seconds: float) -> list[Figure]:
        await asyncio.sleep(2.0)  # the creation's last work takes a moment
        before = [nodes.cpu_seconds(node) for node in self._alive]
        began = time.perf_counter()
        await asyncio.sleep(seconds)
        took = time.perf_counter() - began
        figures = []
        for node, bytes_before, cpu_before in zip(self._alive, empty, before, strict=True):
            cpu = (nodes.cpu_seconds(node) - cpu_before) / took
            memory = (nodes.resident_bytes(node) - bytes_before) / self._ranges
            name = f"node {node.number}: "
            figures += [
                Figure(name + "CPU at rest", round(100 * cpu, 2), "% core", "< 5"),
                Figure(name + "memory a range", round(memory / 1000, 1), "KB", "< 100"),
            ]
        return figures

    async def _appends(self, log: lognode.AsyncLog, appends: int) -> list[Figure]:
        rng = random.Random(self._ranges)
        await log.append(rng.randbytes(8), b"warm")  # opens connections, and finds the ranges
        resting: list[float] = []
        awake: list[float] = []
        for _ in range(appends):
            await self._until("all ranges rest", self._all_rest)
            before, key = self._wakes(), rng.randbytes(8)
            for latencies in (resting, awake):
                sent = time.perf_counter()
                await log.append(key, b"value")
                latencies.append(time.perf_counter() - sent)
            # Two members acknowledge an append; the third wakes a moment later.
            awake_since = partial(self._awake_since, before)
            await self._until("all members of the range are awake", awake_since)
            woken = self._wakes() - before
            if woken != _NODES:
                raise lognode.CorruptData(f"one append woke {woken} members, not {_NODES}")
        return [
            Figure("append to a range at rest, p50", _ms(resting, 0.5), "ms"),
            Figure("append to a range at rest, max", _ms(resting, 1.0), "ms"),
            Figure("append to it again, p50", _ms(awake, 0.5), "ms"),
            Figure("members that an append wakes", _NODES, goal="its own"),
        ]

    async def _death(self) -> list[Figure]:
        await self._until("all ranges rest", self._all_rest)
        dead = self._alive.pop()
        led = sum(
            range_["leader"] == dead.number and range_["id"] != CONTROLLER_RANGE
            for range_ in dead.status()["ranges"]
        )
        before, leaders_before = self._wakes(), self._wakes("leader")
        dead.kill()
        began = time.perf_counter()
        await self._until("all ranges have leaders again", self._all_led)
        took = _since(began)
        woken, leaders = self._wakes() - before, self._wakes("leader") - leaders_before
        await self._until("all ranges rest", self._all_rest)
        lost = [
            range_["id"]
            for range_ in self._alive[0].status()["ranges"]
            if range_["leader"] in (None, dead.number)
        ]
        if lost:
            raise lognode.CorruptData(f"ranges {lost} have no leader")
        return [
            Figure("ranges led by the node that is killed", led),
            Figure("kill -9 until all have leaders again", took, "s", "< 5"),
            Figure("members woken by it", woken, goal=f"{len(self._alive) * led}"),
            Figure("of these leaders of other ranges", leaders, goal="0"),
        ]

    # Waiting and looking.

    async def _until(self, what: str, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _LIMIT_S
        while not await _aside(done):
            if time.monotonic() > deadline:
                raise lognode.Timeout(f"not within {_LIMIT_S} s: {what}")
            await asyncio.sleep(0.05)

    def _all_led(self) -> bool:
        """Whether all groups have a leader, the controller's included."""
        led = sum(_metric(node, 'replicas{role="leader"}') for node in self._alive)
        return led >= self._ranges + 1

    def _all_rest(self) -> bool:
        return all(_metric(node, "idle_replicas") >= self._ranges for node in self._alive)

    def _awake_since(self, before: int) -> bool:
        return self._wakes() - before >= _NODES

    def _wakes(self, *roles: str) -> int:
        return int(
            sum(
                _metric(node, f'group_wakes_total{{role="{role}"}}')
                for node in self._alive
                for role in roles or ("leader", "follower")
            )
        )


def _aside(look: Callable[[], bool]) -> Awaitable[bool]:
    return asyncio.to_thread(look)


def _metric(node: LocalNode, name: str) -> float:
    with urllib.request.urlopen(f"http://{node.http}/metrics", timeout=10) as answer:
        for line in answer.read().decode("ascii").splitlines():
            if line.startswith(f"lognode_{name} "):
                return float(line.rpartition(" ")[2])
    return 0.0


def _since(began: float) -> float:
    return round(time.perf_counter() - began, 2)


def _ms(latencies_s: list[float], fraction: float) -> float:
    return round(quantile(latencies_s, fraction) * 1e3, 2)
