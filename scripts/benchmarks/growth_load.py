"""The load of `scripts/bench growth`, in a process of its own: one client a connection.

python -m benchmarks.growth_load SERVERS SWEEP POINT SECONDS
"""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import lognode
from lognode.client.bench import pace
from lognode.client.bench.appending import Appender, Appending
from lognode.client.bench.garbage import few_collections
from lognode.client.bench.report import Recorder
from lognode.client.bench.shape import Shape

from . import nodes

_KEYS = 100_000
_RANGES = 4
_WINDOW = 64
_WARMUP_MAX_S = 2.0
_VERIFIED_MAX = 20
"""Clients whose appends are read back."""


def started(servers: str, sweep: str, point: int, seconds: float) -> dict[str, Any]:
    """Run the load in a process of its own; return the report."""
    paths = (str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH"))
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.growth_load", servers, sweep, str(point), str(seconds)],
        capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
    )  # fmt: skip
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip()[-2_000:])
    report: dict[str, Any] = json.loads(done.stdout)
    return report


async def run(servers: str, sweep: str, point: int, seconds: float) -> dict[str, Any]:
    """Return the report of one point of a sweep."""
    count = {name: point if name == sweep else 1 for name in ("connections", "logs")}
    shape = Shape(point if sweep == "keys" else _KEYS)
    ranges = {"ranges": point, "logs": 1}.get(sweep, _RANGES)
    warmup_s = min(_WARMUP_MAX_S, seconds / 4)
    load = Appending(seconds, batch=1_000)
    clients = [lognode.AsyncClient(servers, timeout=120) for _ in range(count["connections"])]
    try:
        names = [f"growth-{number}" for number in range(count["logs"])]
        for name in names:
            await clients[0].create_log(name, split_at=shape.splits(ranges), split_rate=None)
        await nodes.healthy(clients[0])
        appenders = [
            Appender(client.log(name), shape, load) for client in clients for name in names
        ]
        for appender in appenders:
            await appender.call(0, 0.0)  # connected, and the range has a leader

        async def call(number: int, due: float) -> int:
            at, turn = number % len(appenders), number // len(appenders)
            return await appenders[at].call(turn + 1, due)

        recorder = Recorder(warmup_s=warmup_s)
        with few_collections():
            await pace.in_window(_WINDOW, seconds + warmup_s, call, recorder)
        found = [await appender.verify() for appender in appenders[:_VERIFIED_MAX]]
        verified = sum(each["verified"] for each in found)
        return recorder.report("growth", {"verified": verified})
    finally:
        for client in clients:
            await client.close()


def main(servers: str, sweep: str, point: str, seconds: str) -> None:
    """Run the load and print the report."""
    print(json.dumps(asyncio.run(run(servers, sweep, int(point), float(seconds)))))


if __name__ == "__main__":
    main(*sys.argv[1:])
