"""The load on one system, the same for all, in a process of its own.

    python -m benchmarks.peers.load NAME ADDRESS,... PLAN

PLAN is JSON, see `Plan`. The load first appends at full speed with the system's window, then at a
rate, one record at a time, in an open loop. Some of the records of both are read back. It prints
two reports as JSON.
"""

import asyncio
import json
import os
import random
import sys
from dataclasses import asdict, dataclass
from typing import Any

from lognode import CorruptData
from lognode.client.bench import pace
from lognode.client.bench.report import Recorder
from lognode.client.bench.shape import Shape

from .registry import SYSTEMS
from .system import Client, Expired, Record, System

_SAMPLES_MAX = 300
_WARMUP_MAX_S = 10.0
"""The longest warm-up of the appends at a rate, and of all appends of a short run."""
_POINTS = 60


@dataclass(frozen=True, slots=True)
class Plan:
    """What the load does. `warmup_s`: seconds of appends at full speed before those that count."""

    keys: int
    value_bytes: int
    seconds: float
    warmup_s: float
    latency_s: float
    """Seconds of appends at the rate."""
    rate: float

    @property
    def shape(self) -> Shape:
        """The keys and values."""
        return Shape(self.keys, value_bytes=self.value_bytes)

    def to_text(self) -> str:
        """Return the plan as the argument of this program."""
        return json.dumps(asdict(self))


def short_warmup_s(seconds: float) -> float:
    """Return the warm-up of a workload of this length in a run that does not warm systems up."""
    return min(_WARMUP_MAX_S, seconds / 5)


class _Workload:
    """Appends of `batch` records a call; a sample of the records to read back."""

    def __init__(self, client: Client, shape: Shape, batch: int) -> None:
        self._client = client
        self._shape = shape
        self._batch = batch
        self._rng = random.Random(shape.seed + batch)
        self._number = 0
        self._samples: list[tuple[Record, Any]] = []

    async def call(self, number: int, _: float) -> int:
        first, self._number = self._number, self._number + self._batch
        keys = self._shape.draw(self._batch, self._rng)
        records = list(zip(keys, self._shape.values(keys, first), strict=True))
        found_by = await self._client.append(records)
        at = number if number < _SAMPLES_MAX else self._rng.randrange(number + 1)
        if at < len(self._samples):
            self._samples[at] = (records[0], found_by)
        elif at < _SAMPLES_MAX:
            self._samples.append((records[0], found_by))
        return self._batch

    async def verify(self) -> dict[str, int]:
        """Return how many records of the sample are as appended, and how many were removed."""
        expired = 0
        for record, found_by in self._samples:
            try:
                if await self._client.read(record, found_by) != record[1]:
                    raise CorruptData(f"key {record[0]!r} does not hold what was acknowledged")
            except Expired:
                expired += 1
        return {"verified": len(self._samples) - expired, "expired": expired}


async def run(system: System, addresses: list[str], plan: Plan) -> list[dict[str, Any]]:
    """Return the reports of both workloads."""
    client, shape = system.client(), plan.shape
    await client.open(addresses, shape)
    try:
        workload = _Workload(client, shape, system.batch)
        every_s = max(plan.seconds / _POINTS, 0.5)
        recorder = Recorder(warmup_s=plan.warmup_s, every_s=every_s)
        seconds = plan.warmup_s + plan.seconds
        await pace.in_window(system.window, seconds, workload.call, recorder)
        name = f"append, {system.window} calls of {system.batch} in flight"
        reports = [recorder.report(name, await workload.verify())]
        workload = _Workload(client, shape, 1)
        warmup_s = short_warmup_s(plan.latency_s)
        recorder = Recorder(warmup_s=warmup_s)
        await pace.at_rate(plan.rate, plan.latency_s + warmup_s, workload.call, recorder)
        reports.append(recorder.report(f"append at {plan.rate:g}/s", await workload.verify()))
    finally:
        await client.close()
    return reports


def main(name: str, addresses: str, plan: str) -> None:
    """Run both workloads, print the reports, and end the process.

    The process ends without the clean-up of modules: librdkafka has waited for ever in its own.
    """
    reports = asyncio.run(run(SYSTEMS[name], addresses.split(","), Plan(**json.loads(plan))))
    print(json.dumps(reports), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
