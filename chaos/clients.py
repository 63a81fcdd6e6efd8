"""All clients of a test: slots, in each of which one process follows another.

When a process is retired or crashes, a process with a new number follows in the same slot, as in
Jepsen. The workload decides what a slot keeps for the next process (a producer's name, a follower's
position).
"""

import asyncio
import contextlib
import random

from .history import Recorder
from .plan import Plan
from .process import Pace, Process, Retired
from .workloads import Worker, Workload
from .workloads.parts import LOG


class Clients:
    """The clients of a test. They `run` until `stop`; a nemesis may `crash` one of them."""

    def __init__(
        self, plan: Plan, servers: str, workload: Workload, recorder: Recorder, kafka: str = ""
    ) -> None:
        self._plan = plan
        self._servers = servers
        self._kafka = kafka
        self._workload = workload
        self._recorder = recorder
        self._rng = random.Random(f"{plan.seed}/clients")
        self._pace = Pace(plan.rate, self._rng)
        self._lives: dict[int, asyncio.Task[None]] = {}
        self._stopping = False

    async def run(self) -> None:
        """Run all clients; return after `stop`, when the operations under way have ended."""
        async with asyncio.TaskGroup() as group:
            for slot in range(self._plan.clients):
                group.create_task(self._slot(slot))

    def stop(self) -> None:
        """Begin no further operation, except the deliveries that followers still wait for."""
        self._stopping = True

    async def crash(self) -> str:
        """Cut a client off in the middle of an operation; return which."""
        if not self._lives:
            return "no client is running"
        slot = self._rng.choice(sorted(self._lives))
        life = self._lives[slot]
        life.cancel()
        await asyncio.wait([life])
        return f"crash of the client in slot {slot}, {self._workload.role(slot)}"

    async def _slot(self, slot: int) -> None:
        number = slot
        while not self._stopping:
            life = self._lives[slot] = asyncio.create_task(self._live(slot, number))
            try:
                await asyncio.wait([life])
            except asyncio.CancelledError:
                life.cancel()
                raise
            finally:
                del self._lives[slot]
            if not life.cancelled():
                life.result()
            number += self._plan.clients

    async def _live(self, slot: int, number: int) -> None:
        process = Process(
            number, self._servers, LOG, self._recorder,
            random.Random(f"{self._plan.seed}/{number}"), pace=self._pace,
            nodes=self._plan.nodes, timeout_s=self._plan.timeout_s, kafka=self._kafka,
        )  # fmt: skip
        worker: Worker | None = None
        try:
            worker = self._workload.worker(slot, process)
            with contextlib.suppress(Retired):
                while not self._stopping:
                    await worker.step()
                await worker.drain()
        finally:
            if worker is not None:
                await worker.close()
            await process.close()
