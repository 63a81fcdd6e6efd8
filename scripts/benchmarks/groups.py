"""`scripts/bench groups`: records a second that consumers of a group acknowledge.

A log is filled, and then consumers read the log with a group, each entry once. They run in
processes of their own. Nothing else runs. Every value is checked: each key's numbers come in order,
and together the consumers acknowledge every record exactly once.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import lognode
from lognode.node.local.dev import LocalCluster

from . import nodes
from .figures import data_directory, environment

_BATCH = 1_000


def main(arguments: Sequence[str]) -> int:
    """Start nodes, fill the log, consume it, print the figures."""
    parser = argparse.ArgumentParser(prog="scripts/bench groups", allow_abbrev=False)
    parser.add_argument("--records", type=int, default=500_000)
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--value-bytes", type=int, default=100)
    parser.add_argument("--consumers", default="1,4,16", help="comma-separated")
    parser.add_argument("--processes", type=int, default=4, help="processes of consumers at most")
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--ranges", type=int, default=1)
    parser.add_argument("--data", type=data_directory, default=Path())
    parser.add_argument("--part", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.part:
        print(json.dumps(asyncio.run(_consume(**json.loads(options.part)))))
        return 0
    with (
        tempfile.TemporaryDirectory(dir=options.data) as directory,
        LocalCluster(Path(directory), options.nodes) as cluster,
    ):
        print("  ".join(f"{name}={value}" for name, value in environment().items()))
        asyncio.run(_fill(cluster, options))
        for consumers in map(int, options.consumers.split(",")):
            print(_round(cluster, options, consumers))
    return 0


async def _fill(cluster: LocalCluster, options: argparse.Namespace) -> None:
    async with lognode.AsyncClient(cluster.servers, timeout=60) as client:
        await nodes.healthy(client, options.nodes)
        await _finalize(client)
        keys = [b"%08d" % number for number in range(options.keys)]
        step = options.keys // options.ranges
        log = await client.create_log("work", split_at=keys[step::step][: options.ranges - 1])
        filler = b"." * max(0, options.value_bytes - 8)
        for begin in range(0, options.records, _BATCH):
            numbers = range(begin, min(begin + _BATCH, options.records))
            await log.append_many(
                [(keys[n % options.keys], b"%08d" % (n // options.keys) + filler) for n in numbers]
            )


async def _finalize(client: lognode.AsyncClient) -> None:
    while True:
        try:
            await client.admin.finalize()
            return
        except (lognode.Conflict, lognode.Unavailable):
            await asyncio.sleep(0.2)


def _round(cluster: LocalCluster, options: argparse.Namespace, consumers: int) -> str:
    """Let this many consumers of a new group acknowledge everything; return the figures."""
    processes = min(consumers, options.processes)
    shares = [consumers // processes + (at < consumers % processes) for at in range(processes)]
    cpu = sum(map(nodes.cpu_seconds, cluster.nodes))
    begun = time.perf_counter()
    parts = []
    for share in shares:
        part = {
            "servers": cluster.servers, "group": f"g{consumers}", "consumers": share,
            "begin_at": time.time() + 2.0, "records": options.records,
        }  # fmt: skip
        command = [sys.executable, sys.argv[0], "groups", "--part", json.dumps(part)]
        parts.append(subprocess.Popen(command, stdout=subprocess.PIPE))
    answers = [json.loads(part.communicate()[0]) for part in parts]
    took = max(each["end"] for each in answers) - min(each["begin"] for each in answers)
    total = sum(each["acked"] for each in answers)
    if total != options.records:
        raise lognode.CorruptData(f"{total} of {options.records} records were acknowledged")
    cpu = sum(map(nodes.cpu_seconds, cluster.nodes)) - cpu
    own = sum(each["cpu"] for each in answers)
    whole = time.perf_counter() - begun
    return (
        f"{consumers} consumers in {processes} processes: {total / took:,.0f} records/s acked, "
        f"{sum(each['batches'] for each in answers):,} batches; nodes {cpu / whole:.2f} cores, "
        f"consumers {own / whole:.2f} cores"
    )


async def _consume(
    servers: str, group: str, consumers: int, begin_at: float, records: int
) -> dict[str, float]:
    """Consume until nothing is left; return counts and times."""
    seen: dict[bytes, int] = {}
    counts = {"acked": 0, "batches": 0}
    last = time.time()

    async with lognode.AsyncClient(servers, timeout=60) as client:
        log = client.log("work")

        async def one() -> None:
            nonlocal last
            async with log.consume(group) as consumer:
                async for batch in consumer:
                    for value in batch.values:
                        number = int((value or b"")[:8])
                        if number < seen.get(batch.key, 0):
                            raise lognode.CorruptData(f"key {batch.key!r} goes back to {number}")
                        seen[batch.key] = number + 1
                    await batch.ack(wait=False)
                    counts["acked"] += len(batch)
                    counts["batches"] += 1
                    last = time.time()

        await asyncio.sleep(max(0.0, begin_at - time.time()))
        begin = time.time()
        tasks = [asyncio.create_task(one()) for _ in range(consumers)]
        while (await log.group(group).lag()).entries if time.time() > last + 1 else True:
            await asyncio.sleep(0.2)
            for task in tasks:
                if task.done():
                    task.result()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return {**counts, "begin": begin, "end": last, "cpu": time.process_time()}
