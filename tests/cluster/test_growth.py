"""One node with data becomes three, its log cut long before, and the first one never stops."""

import random
from pathlib import Path

import pytest
from cluster_history import check, read_all, same_on
from cluster_load import Load, Size
from cluster_wal import SMALL_WAL, fill_until_cut

import lognode
from lognode import testing

pytestmark = [pytest.mark.cluster, pytest.mark.by_hand]

NODES = (1, 2, 3)


def test_S2_S3_L1_growth_from_segments_under_load_then_the_founder_dies(tmp_path: Path) -> None:
    with testing.cluster(tmp_path, 1, flags=SMALL_WAL) as cluster:
        founder = cluster.nodes[0]
        pid = founder.pid
        with lognode.Client(cluster.servers, timeout=20) as client:
            log = client.create_log("old", split_at=["g", "p"])
            client.create_log("busy", split_at=["own", "register", "shared"])
            fill_until_cut([founder], log, [b"a%d" % n for n in range(20)] + [b"k\0k", b"z"])
        old = read_all(cluster.servers, "old")
        with Load(
            cluster.servers, "busy", random.randrange(1 << 32), Size(value_bytes=400)
        ) as load:
            load.go_on(200)
            for _ in range(2):
                node = cluster.add()
                node.start()
                node.wait_ready()
                load.go_on(50)
            testing.wait_healthy(cluster, 3)
            load.go_on(100)
            assert founder.pid == pid
            assert founder.running
            assert same_on(cluster.servers, "old", NODES) == old
            founder.kill()
            load.go_on(200)
            assert same_on(cluster.servers, "old", (2, 3)) == old
            founder.start()
            founder.wait_ready()
            load.go_on(100)
        assert load.slowest_s() < 3.0
        check(same_on(cluster.servers, "busy", NODES), load.told)
        assert same_on(cluster.servers, "old", NODES) == old


def test_S2_a_cluster_of_two_keeps_one_member_and_grows_at_three(tmp_path: Path) -> None:
    """Groups have odd sizes: with two nodes a range stays where it is, and nothing depends on
    the second."""
    with testing.cluster(tmp_path, 2) as cluster, lognode.Client(cluster.servers) as client:
        testing.wait_healthy(cluster)
        log = client.create_log("log", ranges=2)
        acks = log.append_many([(b"k%d" % n, b"v") for n in range(50)])
        ranges = [r for r in client.status()["ranges"] if r["log"] == "log"]
        assert [len(r["members"]) for r in ranges] == [1, 1]
        cluster.nodes[1].kill()
        assert log.append(b"k1", b"alone").seq is not None
        cluster.nodes[1].start()
        cluster.add().start()
        testing.wait_healthy(cluster, 3)
        ranges = client.status()["ranges"]
        assert [sorted(r["members"]) for r in ranges] == [[1, 2, 3]] * 3
        assert sum(map(len, same_on(cluster.servers, "log", NODES).values())) == len(acks) + 1
