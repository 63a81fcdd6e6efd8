"""The load on one system, the same for all, in a process of its own.

    python -m benchmarks.peers.load NAME ADDRESS,... KEYS VALUE_BYTES SECONDS RATE

It first appends at full speed with the system's window, then RATE a second, one at a time, in an
open loop. Some of the records of both are read back. It prints two reports as JSON.
"""

import asyncio
import json
import random
import sys
from typing import Any

from lognode import CorruptData
from lognode.client.bench import pace
from lognode.client.bench.report import Recorder
from lognode.client.bench.shape import Shape

from .registry import SYSTEMS
from .system import Client, Record, System

_SAMPLES_MAX = 300
_WARMUP_MAX_S = 10.0
"""The longest warm-up of each workload; a JVM compiles meanwhile."""


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

    async def verify(self) -> int:
        for record, found_by in self._samples:
            if await self._client.read(record, found_by) != record[1]:
                raise CorruptData(f"key {record[0]!r} does not hold what was acknowledged")
        return len(self._samples)


async def run(system: System, addresses: list[str], shape: Shape, seconds: float,
              rate: float) -> list[dict[str, Any]]:  # fmt: skip
    """Return the reports of both workloads."""
    client = system.client()
    await client.open(addresses, shape)
    warmup_s = min(_WARMUP_MAX_S, seconds / 5)
    try:
        workload = _Workload(client, shape, system.batch)
        recorder = Recorder(warmup_s=warmup_s)
        await pace.in_window(system.window, seconds + warmup_s, workload.call, recorder)
        name = f"append, {system.window} calls of {system.batch} in flight"
        reports = [recorder.report(name, {"verified": await workload.verify()})]
        workload = _Workload(client, shape, 1)
        recorder = Recorder(warmup_s=warmup_s)
        await pace.at_rate(rate, seconds + warmup_s, workload.call, recorder)
        name = f"append at {rate:g}/s"
        reports.append(recorder.report(name, {"verified": await workload.verify()}))
    finally:
        await client.close()
    return reports


def main(name: str, addresses: str, *figures: str) -> None:
    """Run both workloads and print the reports."""
    keys, value_bytes, seconds, rate = figures
    shape = Shape(int(keys), value_bytes=int(value_bytes))
    system = SYSTEMS[name]
    reports = asyncio.run(run(system, addresses.split(","), shape, float(seconds), float(rate)))
    print(json.dumps(reports))


if __name__ == "__main__":
    main(*sys.argv[1:])
