"""Minutes of random kills, pauses and stops under load: the cluster stays valid throughout.

A short run by default. By hand: `LOGNODE_FAULTS_S=300 LOGNODE_FAULTS_SEED=7 pytest ...`.
"""

import os
import random
import signal
import time
from pathlib import Path

import pytest
from cluster_history import check, same_on
from cluster_load import Load, Size
from cluster_wal import SMALL_WAL

import lognode
from lognode import testing

pytestmark = pytest.mark.cluster

NODES = (1, 2, 3)
SECONDS = float(os.environ.get("LOGNODE_FAULTS_S", "20"))
SEED = int(os.environ.get("LOGNODE_FAULTS_SEED") or random.SystemRandom().randrange(1 << 32))


class Faults:
    """Picks a fault, makes it, ends it; all from one seed, so that the order can be had again."""

    def __init__(self, cluster: testing.LocalCluster, load: Load, seed: int) -> None:
        self._nodes = cluster.nodes
        self._load = load
        self._rng = random.Random(seed)
        self._began = time.monotonic()

    def one(self) -> None:
        """One fault; some go on while others begin."""
        victims = self._rng.sample(self._nodes, self._rng.choice((1, 1, 1, 2, 3)))
        fault = self._rng.choice((self._kill, self._kill, self._pause, self._stop))
        at = time.monotonic() - self._began
        print(f"{at:6.1f} s: {fault.__name__.strip('_')} {[node.number for node in victims]}")
        fault(victims)

    def _kill(self, victims: list[testing.LocalNode]) -> None:
        for node in victims:
            node.kill()
        self._while_down(victims)
        for node in victims:
            node.start()

    def _stop(self, victims: list[testing.LocalNode]) -> None:
        for node in victims:
            node.signal(signal.SIGTERM)
        for node in victims:
            assert node.wait_end() == 0, f"L4: node {node.number} did not stop in order"
        self._while_down(victims)
        for node in victims:
            node.start()

    def _pause(self, victims: list[testing.LocalNode]) -> None:
        for node in victims:
            node.signal(signal.SIGSTOP)
        try:
            self._while_down(victims)
        finally:
            for node in victims:
                node.signal(signal.SIGCONT)

    def _while_down(self, victims: list[testing.LocalNode]) -> None:
        """With a majority left: until appends go on. Without: until nothing more can be acked."""
        if len(victims) == 1:
            self._load.go_on(self._rng.choice((1, 50, 300)))
            return
        count = -1
        while count != self._load.count:
            count = self._load.count
            time.sleep(0.05)


def test_S1_to_S11_L1_L2_random_faults_under_load(tmp_path: Path) -> None:
    print(f"LOGNODE_FAULTS_SEED={SEED}")
    with testing.cluster(tmp_path, 3, flags=SMALL_WAL) as cluster:
        testing.wait_healthy(cluster)
        with lognode.Client(cluster.servers, timeout=20) as client:
            client.create_log("log", split_at=["own", "register", "shared"])
        size = Size(writers=2, value_bytes=200)
        with Load(cluster.servers, "log", SEED, size, timeout_s=60) as load:
            faults = Faults(cluster, load, SEED)
            until = time.monotonic() + SECONDS
            while time.monotonic() < until:
                faults.one()
                for node in cluster.nodes:
                    node.wait_ready()
                load.go_on(30, timeout_s=30)
            testing.wait_healthy(cluster)
        check(same_on(cluster.servers, "log", NODES), load.told)
        assert load.told.reads > 0
        print(f"{load.count:,} appends acknowledged, {load.told.reads:,} reads")
