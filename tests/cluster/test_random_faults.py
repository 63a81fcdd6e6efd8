"""Minutes of random faults under load: the cluster stays valid throughout.

Kills, pauses and stops of any nodes, leads that are moved, damage to one node's disk at a time,
and times without appends in which all groups rest; keys are trimmed and deleted, and a log ages.
A short run by default. By hand:
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
SECONDS = float(os.environ.get("LOGNODE_FAULTS_S", "30"))
SEED = int(os.environ.get("LOGNODE_FAULTS_SEED") or random.SystemRandom().randrange(1 << 32))


def at_rest(client: lognode.Client, key: bytes) -> bool:
    """Whether the log's oldest entry stays for two looks of those who see to retention."""
    first = next(iter(client.log("aged").scan(key, limit=1)), None)
    time.sleep(5.0)
    return first == next(iter(client.log("aged").scan(key, limit=1)), None)


def test_S1_to_S12_L1_L2_random_faults_under_load(tmp_path: Path) -> None:
    print(f"LOGNODE_FAULTS_SEED={SEED}")
    with (
        testing.cluster(tmp_path, 3, flags=SMALL_WAL) as cluster,
        lognode.Client(cluster.servers, timeout=20) as client,
    ):
        testing.wait_healthy(cluster)
        client.create_log("log", split_at=["own", "register", "shared"])
        client.create_log("aged", retention_bytes=100_000)
        size = Size(writers=2, value_bytes=200, removers=1, aged="aged")
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
        client.alter_log("aged", retention_bytes=None)  # nodes are compared page by page
        testing.eventually(lambda: at_rest(client, b"aged-0"), what="retention is at rest")
        aged = same_on(cluster.servers, "aged", NODES)
        check({**entries, **aged}, told)
        assert told.removals > 0
        assert min(told.reads, told.reads_of_nodes, told.reads_of_prefixes) > 0
        print(dict(faults.count))
        print(
            f"{load.count:,} appends acknowledged, {told.reads:,} linearizable reads,"
            f" {told.reads_of_prefixes:,} of prefixes, {told.reads_of_nodes:,} of named nodes,"
            f" {told.removals:,} trims and deletes, retention up to"
            f" {min(found[0].seq for found in aged.values()):,}"
        )
