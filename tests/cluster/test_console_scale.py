"""The console on a large cluster: each screen shows its first page within a second."""

import asyncio
import time
from pathlib import Path

import pytest
from console_page import SCREENS, chromium, console

import lognode
from lognode import testing

pytestmark = [pytest.mark.cluster, pytest.mark.by_hand]
RANGES, KEYS, LOGS, GROUPS_A_LOG = 1_000, 1_000_000, 625, 16
BATCH = 10_000
AT_A_TIME = 2
WITHIN_S = 1.0


async def make_groups(servers: str) -> None:
    """Make the logs and their groups, those of a few logs at a time."""
    async with lognode.AsyncClient(servers, timeout=120.0) as client:

        async def one(log: lognode.AsyncLog, name: str) -> None:
            async with log.consume(name) as consumer:
                await consumer.open()

        async def some(first: int) -> None:
            for n in range(first, LOGS, AT_A_TIME):
                log = await client.create_log(f"jobs-{n:03}", replicas=1)
                names = (f"group-{group:02}" for group in range(GROUPS_A_LOG))
                await asyncio.gather(*(one(log, name) for name in names))

        await asyncio.gather(*map(some, range(AT_A_TIME)))


def test_screens_of_1000_ranges_10000_groups_and_a_million_keys_take_a_second(
    tmp_path: Path,
) -> None:
    with testing.cluster(tmp_path, 1) as cluster:
        with lognode.Client(cluster.servers, timeout=120.0) as client:
            many = client.create_log(
                "many", split_at=[b"%06d" % (n * KEYS // RANGES) for n in range(1, RANGES)],
                replicas=1, split_rate=None,
            )  # fmt: skip
            for first in range(0, KEYS, BATCH):
                many.append_many([(b"%06d" % n, b"value") for n in range(first, first + BATCH)])
        asyncio.run(make_groups(cluster.servers))
        testing.wait_healthy(cluster, timeout_s=120.0)
        took: dict[str, float] = {}
        with chromium() as browser, console(browser, cluster.nodes[0].http) as tab:
            tab.open("settings")  # the browser has started, and has the files
            for name in SCREENS:
                query = {"ranges": "log=many", "explorer": "log=many"}.get(name, "")
                shown = {"ranges": ".map .cell", "overview": ".card"}.get(name, "table, p.none")
                began = time.monotonic()
                tab.open(name, query).locator(shown).first.wait_for()
                took[name] = round(time.monotonic() - began, 3)
            assert tab.open("ranges", "log=many").locator(".map .cell").count() == RANGES
            assert tab.errors == []
        print(took)
        assert max(took.values()) < WITHIN_S, took
