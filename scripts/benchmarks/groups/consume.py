"""Consumers of `scripts/bench groups`: python -m benchmarks.groups.consume PROCESS PLAN.

Each process has its share of the plan's consumers. A consumer works until standard input ends; with
a life, it leaves after about that time, and another joins in its place. Prints a report as JSON,
after what was done is in the plan's file.
"""

import asyncio
import json
import random
import sys
from typing import Any

from lognode.client.bench.garbage import few_collections

from .plan import Plan
from .systems import SYSTEMS
from .work import Work


class Consumers:
    """The consumers of one process."""

    def __init__(self, plan: Plan, process: int) -> None:
        self.joined = 0
        self._plan = plan
        self._process = process
        self._work = Work(plan, process)
        self._system = SYSTEMS[plan.system]
        self._over = asyncio.Event()

    async def run(self) -> dict[str, Any]:
        """Work until standard input ends. Raises the error of a consumer."""
        reading = asyncio.create_task(asyncio.to_thread(sys.stdin.readline))
        reading.add_done_callback(lambda _: self._over.set())
        plan = self._plan
        try:
            with few_collections():
                async with asyncio.TaskGroup() as group:
                    for number in range(self._process, plan.consumers, plan.processes):
                        group.create_task(self._lives(number))
        finally:
            self._work.write(plan.done(self._process))
        return {"joined": self.joined, **self._work.report()}

    async def _lives(self, number: int) -> None:
        """Be one consumer after the other, until all is over."""
        life_s, rng = self._plan.life_s, random.Random(number)
        if not life_s:
            await self._life(number, self._over)
            return
        while not self._over.is_set():
            left = asyncio.Event()
            wait_s = life_s * (0.5 + rng.random())
            over = asyncio.create_task(self._leave_after(wait_s, left))
            await self._life(number + self._plan.consumers * self.joined, left)
            await over

    async def _life(self, number: int, left: asyncio.Event) -> None:
        self.joined += 1
        await self._system.consume(self._plan, number, self._work, left)

    async def _leave_after(self, seconds: float, left: asyncio.Event) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._over.wait()
        except TimeoutError:
            pass
        left.set()


async def run(process: int, plan: Plan) -> dict[str, Any]:
    """Consume; return the report."""
    return await Consumers(plan, process).run()


if __name__ == "__main__":
    print(json.dumps(asyncio.run(run(int(sys.argv[1]), Plan.from_text(sys.argv[2])))))
