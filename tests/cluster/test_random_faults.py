"""Minutes of random faults under load: the cluster stays valid throughout.

Kills, pauses and stops of any nodes, leads that are moved, damage to one node's disk at a time,
and times without appends in which all groups rest. A short run by default. By hand:
`LOGNODE_FAULTS_S=300 LOGNODE_FAULTS_SEED=7 pytest ...`.
"""

import os
import random
import time
from pathlib import Path

import pytest
from cluster_faults import Faults
from cluster_history import check, same_on
from cluster_load import Load, Size
from cluster_wal import SMALL_WAL

import lognode
from lognode import testing

pytestmark = pytest.mark.cluster

NODES = (1, 2, 3)
SECONDS = float(os.environ.get("LOGNODE_FAULTS_S", "40"))
SEED = int(os.environ.get("LOGNODE_FAULTS_SEED") or random.SystemRandom().randrange(1 << 32))


def test_S1_to_S12_L1_L2_random_faults_under_load(tmp_path: Path) -> None:
    print(f"LOGNODE_FAULTS_SEED={SEED}")
    with (
        testing.cluster(tmp_path, 3, flags=SMALL_WAL) as cluster,
        lognode.Client(cluster.servers, timeout=20) as client,
    ):
        testing.wait_healthy(cluster)
        client.create_log("log", split_at=["own", "register", "shared"])
        size = Size(writers=2, value_bytes=200)
        with Load(cluster.servers, "log", SEED, size, timeout_s=60) as load:
            load.go_on(200)
            faults = Faults(cluster, client, "log", load, SEED)
            until = time.monotonic() + SECONDS
            while time.monotonic() < until:
                faults.one()
                load.go_on(30, timeout_s=30)
                assert not load.told.violations, load.told.violations[:5]
            testing.wait_healthy(cluster)
        told = load.told
        entries = same_on(cluster.servers, "log", NODES)
        check(entries, told)
        assert min(told.reads, told.reads_of_nodes, told.reads_of_prefixes) > 0
        print(dict(faults.count))
        print(
            f"{load.count:,} appends acknowledged, {told.reads:,} linearizable reads,"
            f" {told.reads_of_prefixes:,} of prefixes, {told.reads_of_nodes:,} of named nodes"
        )
