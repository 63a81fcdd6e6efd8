"""A busy range of many keys is split by itself where its load halves; one with a hot key is not,
and the key is named."""

import asyncio
import random
import re
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cluster_history import read_all
from metrics_page import metric

import lognode
from lognode import testing

pytestmark = [pytest.mark.cluster, pytest.mark.by_hand]

BUSY = 100
"""Records a second from which a range is busy here, which any machine can append."""
HOT = b"user-0700"
Acked = dict[bytes, list[bytes]]
"""Per key the values that were acknowledged, in order."""


async def append(log: lognode.AsyncLog, key: Callable[[], bytes], acked: Acked) -> None:
    records = [(key(), b"%d" % number) for number in range(20)]
    await log.append_many(records)
    for one, value in records:
        acked.setdefault(one, []).append(value)


async def read(log: lognode.AsyncLog) -> None:
    await asyncio.gather(*(log.latest(HOT) for _ in range(20)))


@contextmanager
def clients(servers: str, acked: Acked) -> Iterator[Callable[[], None]]:
    """Some append to four logs and read another for as long as the block runs, or until the
    callable returns; what was acknowledged in `many` is in `acked` then."""
    stop, errors = threading.Event(), list[BaseException]()
    rng = random.Random(5)

    def any_key() -> bytes:
        return b"user-%04d" % rng.randrange(1_000)

    def mostly_one() -> bytes:
        return HOT if rng.random() < 0.75 else any_key()

    async def again(step: Callable[[], Awaitable[None]]) -> None:
        while not stop.is_set():
            await step()

    async def run() -> None:
        async with lognode.AsyncClient(servers, timeout=30) as client:
            many, near, hot, calm = map(client.log, ("many", "near", "hot", "calm"))
            await asyncio.gather(
                again(lambda: append(many, any_key, acked)),
                again(lambda: append(near, any_key, {})),
                again(lambda: append(hot, mostly_one, {})),
                again(lambda: append(calm, any_key, {})),
                again(lambda: read(client.log("read"))),
            )

    def until_stopped() -> None:
        try:
            asyncio.run(run())
        except BaseException as error:
            errors.append(error)

    def end() -> None:
        stop.set()
        thread.join(60)
        assert not thread.is_alive()
        assert not errors, errors

    thread = threading.Thread(target=until_stopped)
    thread.start()
    try:
        yield end
    finally:
        stop.set()
        thread.join(60)


def of_log(node: testing.LocalNode, log: str) -> list[dict[str, Any]]:
    return [row for row in node.status()["ranges"] if row["log"] == log]


def listed(servers: str, log: str) -> str:
    return subprocess.run(
        [sys.executable, "-m", "lognode.node.main", "range", "list", log, "--wide",
         "--server", servers, "--format", "table"],
        capture_output=True, text=True, timeout=60, check=True,
    ).stdout  # fmt: skip


def test_a_busy_range_is_split_at_its_median_of_load_and_a_hot_key_is_named(tmp_path: Path) -> None:
    with (
        testing.cluster(tmp_path, 3) as cluster,
        lognode.Client(cluster.servers, timeout=30) as client,
    ):
        testing.wait_healthy(cluster)
        for log in ("many", "near", "hot", "read"):
            client.create_log(log, split_rate=BUSY)
        client.create_log("calm")
        testing.wait_healthy(cluster)
        # What a leader finds travels to the controller's, which is another node; or the same.
        controller = client.status()["cluster"]["controller_leader"]
        other = controller % 3 + 1
        for log, leader in (("many", other), ("hot", other), ("near", controller)):
            client.admin.transfer(of_log(cluster.nodes[0], log)[0]["id"], to_node=leader)
        acked: Acked = {}
        with clients(cluster.servers, acked) as end:
            for log in ("many", "near"):

                def is_split(log: str = log) -> bool:
                    return len(of_log(cluster.nodes[0], log)) == 2

                testing.eventually(is_split, what=f"{log} is split")
            for node in cluster.nodes:  # whichever node is asked

                def named(node: testing.LocalNode = node) -> bool:
                    return bool(of_log(node, "hot")[0]["hot_key"])

                testing.eventually(named, what="the hot key is named")
                (row,) = of_log(node, "hot")
                assert row["hot_key"]["key"] == HOT.decode()
                assert 0.65 < row["hot_key"]["share"] < 0.85
                assert row["last_operation"] is None or row["last_operation"]["kind"] != "split"
            told = re.search(
                rf'hot key "{HOT.decode()}" has (\d+)% of the load', listed(cluster.servers, "hot")
            )
            assert told is not None
            assert 65 <= int(told[1]) <= 85
            testing.eventually(
                lambda: of_log(cluster.nodes[0], "read")[0]["hot_key"], what="a key that is read"
            )
            (row,) = of_log(cluster.nodes[0], "read")
            assert row["hot_key"] == {"key": HOT.decode(), "share": 1.0}
            counts = [metric(node, "lognode_hot_ranges") for node in cluster.nodes]
            assert sum(counts) == 2
            assert counts[other - 1] >= 1
            end()
        testing.wait_healthy(cluster)
        left, right = of_log(cluster.nodes[0], "many")
        at = left["end"].encode()
        total = sum(map(len, acked.values()))
        below = sum(len(values) for key, values in acked.items() if key < at)
        assert 0.35 < below / total < 0.65, f"split at {at!r}: {below} of {total} below"
        for row in (left, right):
            assert row["last_operation"]["reason"].endswith(f"split at key {at.decode()!r}")
            assert row["last_operation"]["reason"].startswith("load: ")
        assert [each.split("\t")[7] for each in listed(cluster.servers, "many").splitlines()] == [
            "ACTIVE"
        ] * 2
        assert [len(of_log(cluster.nodes[0], log)) for log in ("hot", "read", "calm")] == [1] * 3
        held = read_all(cluster.servers, "many")
        assert {key: [entry.value for entry in found] for key, found in held.items()} == acked
