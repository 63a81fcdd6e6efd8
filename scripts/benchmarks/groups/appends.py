"""The appends of `scripts/bench groups`: python -m benchmarks.groups.appends PLAN.

A backlog as fast as the system takes it, or an open loop at the plan's rate. Prints a report as
JSON, after the numbers of records of the keys are in the plan's file.
"""

import asyncio
import json
import random
import sys
from array import array
from typing import Any, Final

from lognode.client.bench import pace
from lognode.client.bench.garbage import few_collections
from lognode.client.bench.report import Recorder

from .plan import POISON, Plan
from .systems import SYSTEMS

_WINDOW: Final = 8
"""Calls of a backlog in flight."""


class Records:
    """Draws records, and counts those of each key."""

    def __init__(self, plan: Plan) -> None:
        self.counts = array("I", bytes(4 * plan.keys))
        self._plan = plan
        self._stamps = plan.stamps
        self._rng = random.Random(1)
        self._made = 0
        self._last, self._left = 0, 0
        """The key of the present burst, and how many records of the burst are left."""

    def draw(self, count: int, due: float) -> list[tuple[bytes, bytes]]:
        """Return new records that are due then."""
        found = []
        for _ in range(count):
            number = self._number()
            key, nth = self._stamps.key(number), self.counts[number]
            self.counts[number] = nth + 1
            found.append((key, self._stamps.value(key, nth, due)))
        return found

    def _number(self) -> int:
        plan = self._plan
        self._made += 1
        if plan.poison_every and self._made % plan.poison_every == 0:
            return POISON
        if plan.in_order:
            return (self._made - 1) % plan.keys
        if not self._left:
            self._last, self._left = int(self._rng.random() * plan.keys), plan.burst
        self._left -= 1
        return self._last


async def run(plan: Plan) -> dict[str, Any]:
    """Append; return the report."""
    to = SYSTEMS[plan.system].Appends(plan)
    await to.open()
    records = Records(plan)
    recorder = Recorder(warmup_s=plan.warmup_s)

    async def call(_: int, due: float) -> int:
        drawn = records.draw(plan.batch, due)
        await to.append(drawn)
        return len(drawn)

    try:
        with few_collections():
            if plan.rate:
                seconds = plan.warmup_s + plan.seconds
                await pace.at_rate(plan.rate / plan.batch, seconds, call, recorder)
            else:
                calls = -(-plan.records // plan.batch)
                await pace.in_window(_WINDOW, 1e9, call, recorder, calls_max=calls)
    finally:
        await to.close()
    with plan.appended.open("wb") as file:
        records.counts.tofile(file)
    if max(records.counts) > plan.stamps.fills:
        raise ValueError("a key has more records than values can tell apart; take more keys")
    return recorder.report("append", {"appended": sum(records.counts)})


if __name__ == "__main__":
    print(json.dumps(asyncio.run(run(Plan.from_text(sys.argv[1])))))
