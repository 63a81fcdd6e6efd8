"""From one range on one node to many on five and back, and many splits one after another.

A few ranges by default. By hand, as many as the design promises:
`LOGNODE_RANGES=64 LOGNODE_RANGES_SEED=7 pytest ...`, `LOGNODE_SPLITS=1000 pytest ...`.
"""

import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cluster_history import check, same_on
from cluster_load import Load, Size

import lognode
from lognode import testing

pytestmark = [pytest.mark.cluster, pytest.mark.by_hand]

RANGES = int(os.environ.get("LOGNODE_RANGES", "6"))
SPLITS = int(os.environ.get("LOGNODE_SPLITS", "12"))
SEED = int(os.environ.get("LOGNODE_RANGES_SEED") or random.SystemRandom().randrange(1 << 32))
KILL_EVERY = 4
"""Operations."""
RANGE_KIB_MAX = 100
"""What a range may cost a node."""
NODE_MIB = 30
"""What a node may grow by for other reasons."""


class Operator:
    """Asks for operations until they are done, while now and then a node is killed."""

    def __init__(
        self, cluster: testing.LocalCluster, client: lognode.Client, load: Load, rng: random.Random
    ) -> None:
        self._cluster = cluster
        self._client = client
        self._load = load
        self._rng = rng
        self._count = 0
        self.kills = 0
        self.calm = False

    def ranges(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._client.log("log").describe()["ranges"]
        return found

    def do(self, ask: Callable[[], object], is_done: Callable[[], bool]) -> None:
        """Ask, and again when it was given up or the outcome is unknown."""
        self._count += 1
        victim = None
        if self._count % KILL_EVERY == 0 and not self.calm:
            victim = self._rng.choice(self._cluster.nodes)
            victim.kill()
            self.kills += 1
        began = time.monotonic()
        while not is_done():
            took_s = time.monotonic() - began
            assert took_s < 120, "an operation did not end"
            if victim is not None and took_s > 15 and not victim.running:
                victim.start()  # it may be the one that everybody waits for
            try:
                ask()
            except (
                lognode.Conflict, lognode.OperationInProgress, lognode.Timeout,
                lognode.Unavailable, lognode.LimitExceeded,
            ):  # fmt: skip
                time.sleep(0.2)
        if victim is not None:
            self._load.go_on(20, timeout_s=60)
            if not victim.running:
                victim.start()
            victim.wait_ready()
            testing.wait_healthy(self._cluster)
        assert not self._load.told.violations, self._load.told.violations[:5]

    def split(self, key: bytes) -> None:
        self.do(
            lambda: self._client.admin.split("log", at=key, timeout=30),
            lambda: any(range_["start"] == key for range_ in self.ranges()),
        )

    def merge(self, key: bytes) -> None:
        self.do(
            lambda: self._client.admin.merge("log", at=key, timeout=30),
            lambda: all(range_["start"] != key for range_ in self.ranges()),
        )

    def move(self, range_id: int, comes: int) -> None:
        """To a node that has none, from whichever."""

        def members() -> list[int]:
            found = [range_ for range_ in self.ranges() if range_["id"] == range_id]
            return list(found[0]["members"])

        leaves = self._rng.choice(members())
        self.do(
            lambda: self._client.admin.move(range_id, from_node=leaves, to_node=comes, timeout=30),
            lambda: comes in members(),
        )


def split_keys(client: lognode.Client, count: int) -> list[bytes]:
    """Where ranges are to begin: at keys that there are, and right behind them."""
    keys = list(client.log("log").keys())
    found = [key + b"~" * behind for behind in range(1 + count // len(keys)) for key in keys]
    return found[:count]


def test_S2_S4_S8_S9_from_one_range_on_one_node_to_many_on_five_and_back(tmp_path: Path) -> None:
    print(f"LOGNODE_RANGES={RANGES} LOGNODE_RANGES_SEED={SEED}")
    rng = random.Random(SEED)
    with (
        testing.cluster(tmp_path, 1) as cluster,
        lognode.Client(cluster.servers, timeout=30) as client,
    ):
        testing.wait_healthy(cluster)
        client.create_log("log")
        size = Size(writers=2, conditional=2, named=1, readers=1, value_bytes=100)
        with Load(cluster.servers, "log", SEED, size, timeout_s=120) as load:
            load.go_on(100)
            for _ in range(4):
                node = cluster.add()
                node.start()
                node.wait_ready()
            testing.wait_healthy(cluster, 5)
            load.go_on(50)
            operator = Operator(cluster, client, load, rng)
            keys = split_keys(client, RANGES - 1)
            for key in rng.sample(keys, len(keys)):
                operator.split(key)
            assert len(operator.ranges()) == RANGES
            for range_ in operator.ranges():
                operator.move(
                    range_["id"], rng.choice(sorted({1, 2, 3, 4, 5} - {*range_["members"]}))
                )
            load.go_on(50, timeout_s=60)
            for key in rng.sample(keys, len(keys)):
                operator.merge(key)
            (whole,) = operator.ranges()
            load.go_on(100)
        assert operator.kills >= RANGES // KILL_EVERY
        operator.calm = True  # the load, which waits for kills to pass, has ended
        told = load.told
        entries = same_on(cluster.servers, "log", whole["members"])
        check(entries, told)
        for other in sorted({1, 2, 3, 4, 5} - {*whole["members"]}):
            operator.move(whole["id"], other)
        (whole,) = operator.ranges()
        assert same_on(cluster.servers, "log", whole["members"]) == entries
        print(f"{load.count:,} appends acknowledged, {operator.kills} kills")


def resident_kib(node: testing.LocalNode) -> int:
    with open(f"/proc/{node.pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


def test_many_splits_one_after_another_cost_little_and_no_replica_is_rebuilt(
    tmp_path: Path,
) -> None:
    with (
        testing.cluster(tmp_path, 3) as three,
        lognode.Client(three.servers, timeout=60) as client,
    ):
        log = client.create_log("divided")
        testing.wait_healthy(three)
        log.append_many([(b"k%06d" % n, b"v" * 100) for n in range(20_000)])
        client.admin.split("divided", at=b"k")
        before = [resident_kib(node) for node in three.nodes]
        began = time.monotonic()
        for number in range(1, SPLITS + 1):
            client.admin.split("divided", at=b"k%06d" % (number * 7_919 % 20_000))
        print(f"{SPLITS} splits in {time.monotonic() - began:.0f} s")
        assert len(log.describe()["ranges"]) == SPLITS + 2
        for node, kib in zip(three.nodes, before, strict=True):
            grown = resident_kib(node) - kib
            print(f"node {node.number}: {grown:,} KiB more, {grown / SPLITS:.0f} a range")
            assert grown <= NODE_MIB * 1024 + SPLITS * RANGE_KIB_MAX
            for said in ("file fetched", "base installed"):
                assert said not in node.log_tail(1_000_000), f"node {node.number}"
        keys = list(log.keys())
        assert len(keys) == 20_000
