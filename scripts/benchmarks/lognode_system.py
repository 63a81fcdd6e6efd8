"""lognode under load: three nodes on loopback, fsync on every member before an acknowledgement."""

import asyncio
import random
import tempfile
import time
from pathlib import Path

import lognode
from lognode.node.dev import LocalCluster

from . import nodes
from .figures import Result, result
from .workload import Shape

NAME = "lognode"
_DURABILITY = "fsync on a majority"
_WINDOW = 64
"""Batches in flight in the throughput run."""


def run(shape: Shape, workloads: set[str], root: Path) -> list[Result]:
    """Start a cluster under `root`, run the workloads, stop it."""
    with (
        tempfile.TemporaryDirectory(dir=root) as directory,
        LocalCluster(Path(directory), 3) as cluster,
    ):
        return asyncio.run(_run(shape, workloads, cluster.servers))


async def _run(shape: Shape, workloads: set[str], servers: str) -> list[Result]:
    results = []
    async with lognode.AsyncClient(servers, timeout=60) as client:
        await nodes.healthy(client)
        split_at = [shape.key(shape.keys * i // 4) for i in range(1, 4)]
        log = await client.create_log("bench", split_at=split_at)
        await nodes.healthy(client)
        results.append(await _throughput(log, shape))
        if "append" in workloads:
            results.append(await _latency(log, shape))
        if "poll" in workloads:
            results.append(await _poll(log, shape))
    return results


async def _throughput(log: lognode.AsyncLog, shape: Shape) -> Result:
    rng = random.Random(shape.seed)
    done = 0
    latencies: list[float] = []
    started = time.perf_counter()
    deadline = started + shape.seconds
    written: dict[bytes, bytes] = {}

    async def worker() -> None:
        nonlocal done
        while time.perf_counter() < deadline:
            keys = shape.random_keys(shape.batch, rng)
            values = [shape.value(done + i) for i in range(shape.batch)]
            sent = time.perf_counter()
            await log.append_many(list(zip(keys, values, strict=True)))
            latencies.append(time.perf_counter() - sent)
            done += shape.batch
            written[keys[0]] = values[0]

    await asyncio.gather(*(worker() for _ in range(_WINDOW)))
    seconds = time.perf_counter() - started
    await _check(log, written)
    return result(
        NAME, f"append_many({shape.batch})", _DURABILITY,
        records=done, seconds=seconds, latencies_s=latencies,
    )  # fmt: skip


async def _check(log: lognode.AsyncLog, written: dict[bytes, bytes]) -> None:
    for key, value in list(written.items())[:200]:
        values = [entry.value async for entry in log.scan(key)]
        if value not in values:
            raise lognode.CorruptData(f"key {key!r} does not hold what was acknowledged")


async def _latency(log: lognode.AsyncLog, shape: Shape) -> Result:
    rng = random.Random(shape.seed + 1)
    latencies: list[float] = []
    started = time.perf_counter()
    count = int(shape.rate * shape.seconds)

    async def one(number: int, due: float) -> None:
        await log.append(shape.key(rng.randrange(shape.keys)), shape.value(number))
        latencies.append(time.perf_counter() - due)

    async with asyncio.TaskGroup() as group:
        for number in range(count):
            due = started + number / shape.rate
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            group.create_task(one(number, due))
    return result(
        NAME, f"append at {shape.rate:g}/s", _DURABILITY,
        records=count, seconds=time.perf_counter() - started, latencies_s=latencies,
    )  # fmt: skip


async def _poll(log: lognode.AsyncLog, shape: Shape) -> Result:
    rng = random.Random(shape.seed + 2)
    latencies: list[float] = []
    entries = 0
    started = time.perf_counter()
    while time.perf_counter() - started < shape.seconds:
        key = shape.key(rng.randrange(shape.keys))
        sent = time.perf_counter()
        page = [entry async for entry in log.scan(key, limit=32)]
        latencies.append(time.perf_counter() - sent)
        entries += len(page)
        if any(entry.key != key for entry in page):
            raise lognode.CorruptData(f"a poll of {key!r} returned another key")
    return result(
        NAME, "poll one key (32)", "linearizable",
        records=len(latencies), seconds=time.perf_counter() - started, latencies_s=latencies,
    )  # fmt: skip
