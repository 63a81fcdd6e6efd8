"""`scripts/bench handover`: what clients notice when the lead of their range moves under load.

Several clients append, each one record after the other. Meanwhile `range transfer` hands the lead
over; then the leader's node is stopped by SIGTERM and started again. The benchmark measures the
longest append around each move, beside the longest without any.
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import lognode
from lognode.node.local.dev import LocalCluster

from . import nodes
from .figures import data_directory, environment, quantile

_LOG = "handover"
_CALM_S = 1.0


def main(arguments: Sequence[str]) -> int:
    """Start three nodes, move the lead, print the figures. Return 1 when an append was lost."""
    parser = argparse.ArgumentParser(prog="scripts/bench handover", allow_abbrev=False)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--moves", type=int, default=20, help="number of moves of each kind")
    parser.add_argument("--data", type=data_directory, default=Path())
    options = parser.parse_args(arguments)
    with (
        tempfile.TemporaryDirectory(dir=options.data) as directory,
        LocalCluster(Path(directory), 3) as cluster,
    ):
        print("  ".join(f"{name}={value}" for name, value in environment().items()))
        return asyncio.run(_run(cluster, options))


class _Load:
    """Clients that append until they are stopped; `longest_s` since it was last taken."""

    def __init__(self, cluster: LocalCluster, count: int) -> None:
        self.acknowledged: list[tuple[bytes, bytes]] = []
        self._longest_s = 0.0
        self._under_way: dict[int, float] = {}
        self._stop = False
        self._tasks = [asyncio.create_task(self._append(cluster, n)) for n in range(count)]

    def take_longest_s(self) -> float:
        """Return the longest append since the last call, including unfinished ones."""
        now = time.perf_counter()
        longest_s = max([self._longest_s, *(now - at for at in self._under_way.values())])
        self._longest_s = 0.0
        return longest_s

    async def stop(self) -> None:
        self._stop = True
        await asyncio.gather(*self._tasks)

    async def _append(self, cluster: LocalCluster, number: int) -> None:
        async with lognode.AsyncClient(cluster.servers) as client:
            log, key, at = client.log(_LOG), b"k%d" % number, 0
            while not self._stop:
                value = b"%d" % at
                self._under_way[number] = begun = time.perf_counter()
                await log.append(key, value)
                self._longest_s = max(self._longest_s, time.perf_counter() - begun)
                del self._under_way[number]
                self.acknowledged.append((key, value))
                at += 1


async def _run(cluster: LocalCluster, options: argparse.Namespace) -> int:
    async with lognode.AsyncClient(cluster.servers, timeout=60) as client:
        await nodes.healthy(client)
        log = await client.create_log(_LOG)
        await nodes.healthy(client)
        load = _Load(cluster, options.clients)

        async def nothing(_: int, __: int) -> None:
            return None

        async def transfer(range_id: int, leader: int) -> None:
            await client.admin.transfer(range_id, to_node=leader % 3 + 1)

        async def stop(_: int, leader: int) -> None:
            node = cluster.nodes[leader - 1]
            await asyncio.to_thread(node.stop)
            node.start()
            await asyncio.to_thread(node.wait_ready)
            await nodes.healthy(client)

        for name, move in (("no move", nothing), ("transfer", transfer), ("SIGTERM", stop)):
            print(f"{name}: {await _stalls(client, load, move, options.moves)}")
        await load.stop()
        held = [e.value for n in range(options.clients) async for e in log.scan(b"k%d" % n)]
        print(f"{len(load.acknowledged)} acknowledged, {len(held)} held")
        return int(len(held) != len(load.acknowledged))


async def _stalls(
    client: lognode.AsyncClient,
    load: _Load,
    move: Callable[[int, int], Awaitable[None]],
    moves: int,
) -> str:
    stalls = []
    for _ in range(moves):
        await asyncio.sleep(_CALM_S / 2)
        load.take_longest_s()
        range_id, leader = await _range(client)
        await move(range_id, leader)
        await asyncio.sleep(_CALM_S / 2)
        stalls.append(load.take_longest_s())
    stalls.sort()
    return (
        f"{moves} times, longest append p50 {quantile(stalls, 0.5) * 1000:.0f} ms, "
        f"largest {stalls[-1] * 1000:.0f} ms"
    )


async def _range(client: lognode.AsyncClient) -> tuple[int, int]:
    """Return the log's range and its leader, once there is one."""
    while True:
        for range_ in (await client.status())["ranges"]:
            if range_["log"] == _LOG and range_["leader"]:
                return range_["id"], range_["leader"]
        await asyncio.sleep(0.05)
