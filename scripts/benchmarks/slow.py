"""`scripts/bench slow`: the cost of a follower that stands still (promise L3).

Three nodes are under a steady load in an open loop. One follower is stopped with SIGSTOP, while its
sockets stay open, and goes on a while later. Appends must cost the same meanwhile. The leader's
memory must stay within the window for the peer and the log cache, and the follower must catch up.
"""

import argparse
import asyncio
import random
import signal
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import lognode
from lognode import testing

from . import nodes
from .figures import data_directory, environment, quantile

_BULK_RECORDS = 100
_SAMPLE_S = 0.25
_KEY = b"probe"
_MIB = 1 << 20


@dataclass
class _Phase:
    """Latencies of the appends that fell due in a phase, and the leader's memory."""

    name: str
    latencies_s: list[float] = field(default_factory=list)
    resident: list[int] = field(default_factory=list)

    def line(self) -> str:
        spread = f"{min(self.resident) / _MIB:.0f} to {max(self.resident) / _MIB:.0f} MiB"
        p50, p99 = (quantile(self.latencies_s, at) * 1e3 for at in (0.5, 0.99))
        return (
            f"{self.name:<7} {len(self.latencies_s)} appends, p50 {p50:.2f} ms, p99 {p99:.2f} ms, "
            f"slowest {max(self.latencies_s) * 1e3:.0f} ms; leader holds {spread}"
        )


def main(arguments: Sequence[str]) -> int:
    """Start three nodes, stop one for a while under load, print the figures."""
    parser = argparse.ArgumentParser(prog="scripts/bench slow", allow_abbrev=False)
    parser.add_argument("--seconds", type=float, default=20.0, help="seconds of each phase")
    parser.add_argument("--rate", type=float, default=100.0, help="single appends/s, timed")
    parser.add_argument("--load", type=float, default=4.0, help="MB/s of other appends")
    parser.add_argument("--data", type=data_directory, default=Path())
    options = parser.parse_args(arguments)
    with (
        tempfile.TemporaryDirectory(dir=options.data) as directory,
        testing.cluster(Path(directory), 3) as cluster,
    ):
        print("  ".join(f"{name}={value}" for name, value in environment().items()))
        for line in asyncio.run(_Run(cluster, options).run()):
            print(line)
    return 0


class _Run:
    """One run: the load, the stopped follower, the figures."""

    def __init__(self, cluster: testing.LocalCluster, options: argparse.Namespace) -> None:
        self._cluster = cluster
        self._seconds: float = options.seconds
        self._rate: float = options.rate
        self._bulks_per_s: float = options.load * 1e6 / (_BULK_RECORDS * 1_000)
        self._phase = _Phase("warm up")
        self._last_seq = 0
        self._over = False

    async def run(self) -> list[str]:
        """Return the lines to print."""
        async with lognode.AsyncClient(self._cluster.servers, timeout=60) as client:
            await nodes.healthy(client)
            log = await client.create_log("slow")
            await nodes.healthy(client)
            leader, follower = await self._roles(client)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._probe(log))
                group.create_task(self._bulk(log))
                group.create_task(self._sample(leader))
                await asyncio.sleep(self._seconds)
                before = await self._during("before")
                follower.signal(signal.SIGSTOP)
                try:
                    stopped = await self._during("stopped")
                finally:
                    follower.signal(signal.SIGCONT)
                catching_up = asyncio.create_task(self._caught_up(log, follower))
                after = await self._during("after")
                took = await catching_up
                self._over = True
        return [
            *(phase.line() for phase in (before, stopped, after)),
            f"caught up {took:.2f} s after it went on",
        ]

    async def _roles(
        self, client: lognode.AsyncClient
    ) -> tuple[testing.LocalNode, testing.LocalNode]:
        """Return the leader, and a node that leads neither the log nor the controller."""
        status = await client.status()
        (range_,) = (each for each in status["ranges"] if each["log"] == "slow")
        leads = {range_["leader"], status["cluster"]["controller_leader"]}
        follower = next(node for node in self._cluster.nodes if node.number not in leads)
        return self._cluster.nodes[range_["leader"] - 1], follower

    async def _during(self, name: str) -> _Phase:
        self._phase = phase = _Phase(name)
        await asyncio.sleep(self._seconds)
        return phase

    async def _probe(self, log: lognode.AsyncLog) -> None:
        started, number = time.perf_counter(), 0
        async with asyncio.TaskGroup() as group:
            while not self._over:
                due = started + number / self._rate
                number += 1
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
                group.create_task(self._one(log, due, self._phase))

    async def _one(self, log: lognode.AsyncLog, due: float, phase: _Phase) -> None:
        ack = await log.append(_KEY, b"x" * 100)
        phase.latencies_s.append(time.perf_counter() - due)
        self._last_seq = max(self._last_seq, ack.seq or 0)

    async def _bulk(self, log: lognode.AsyncLog) -> None:
        rng, started, number = random.Random(1), time.perf_counter(), 0
        async with asyncio.TaskGroup() as group:
            while not self._over:
                number += 1
                records = [(b"bulk%d" % (at % 8), rng.randbytes(1_000))
                           for at in range(_BULK_RECORDS)]  # fmt: skip
                group.create_task(log.append_many(records))
                due = started + number / self._bulks_per_s
                await asyncio.sleep(max(0.0, due - time.perf_counter()))

    async def _sample(self, leader: testing.LocalNode) -> None:
        while not self._over:
            self._phase.resident.append(nodes.resident_bytes(leader))
            await asyncio.sleep(_SAMPLE_S)

    async def _caught_up(self, log: lognode.AsyncLog, follower: testing.LocalNode) -> float:
        """Return the seconds until the follower has what was acknowledged when it went on."""
        began, seq = time.perf_counter(), self._last_seq
        await log.latest(_KEY, node=follower.number, through=seq, consistency="prefix")
        return time.perf_counter() - began
