"""x11 on real nodes: a leader whose wall clock jumped stamps with the clock of the others."""

import asyncio
import time
from pathlib import Path

import pytest
from live_nodes import live, until

import lognode
from lognode.node.replicas.clocks import Clocks

pytestmark = pytest.mark.cluster

DAY_MS = 86_400_000


class Jumping:
    """A wall clock that can be set."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def __call__(self) -> int:
        return time.time_ns() // 1_000_000 + self.ahead_ms


def test_x11_a_leader_whose_clock_jumps_two_days_stamps_with_the_others(tmp_path: Path) -> None:
    async def run() -> None:
        walls = {number: Jumping() for number in (1, 2, 3)}
        clocks = {number: Clocks(wall_ms=wall) for number, wall in walls.items()}
        async with (
            live(tmp_path, 3, clocks=clocks) as cluster,
            lognode.AsyncClient(cluster.address) as client,
        ):
            await cluster.healthy(3)
            log = await client.create_log("orders")
            await log.append(b"k", b"before")
            leader = (await cluster.leader()).node.identity.node_id
            follower = next(number for number in walls if number != leader)
            await until(lambda: len(clocks[leader]._heard) == 2, "it hears both peers")
            walls[follower].ahead_ms = -DAY_MS  # one of the others: nobody follows it
            walls[leader].ahead_ms = 30_000  # half a minute is let be
            await asyncio.sleep(0.5)
            ack = await log.append(b"k", b"half a minute")
            assert ack.timestamp_ms is not None
            assert 25_000 < ack.timestamp_ms - time.time() * 1000 < 35_000
            walls[follower].ahead_ms = 0
            walls[leader].ahead_ms = 2 * DAY_MS
            await until(lambda: clocks[leader].correction_ms() < -DAY_MS, "the jump is noticed")
            ack = await log.append(b"k", b"after")
            assert ack.timestamp_ms is not None
            assert abs(ack.timestamp_ms - time.time() * 1000) < 35_000

    asyncio.run(run())
