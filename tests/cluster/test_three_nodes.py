"""Three nodes under load, any of them killed with -9: nothing acknowledged is missing."""

import random
from pathlib import Path

import pytest
from cluster_history import check, same_on
from cluster_load import Load

import lognode
from lognode import testing

pytestmark = pytest.mark.cluster

NODES = (1, 2, 3)
PAUSE_MAX_S = 3.0


def create(cluster: testing.LocalCluster, log: str, split_at: list[str] | None = None) -> None:
    """A log whose kinds of keys lie in ranges of their own."""
    with lognode.Client(cluster.servers, timeout=20) as client:
        client.create_log(log, split_at=split_at or ["own", "register", "shared"])


def test_S1_S2_S3_S4_S5_S7_S8_S9_S11_kill_of_each_node_in_turn(
    three: testing.LocalCluster,
) -> None:
    create(three, "turns")
    with Load(three.servers, "turns", random.randrange(1 << 32)) as load:
        for node in three.nodes:
            load.go_on(200)
            node.kill()
            load.go_on(200)
            node.start()
            node.wait_ready()
        load.go_on(200)
        load.read_on(100)
    check(same_on(three.servers, "turns", NODES), load.told)


def test_L1_S2_kill_of_the_leader_costs_no_client_more_than_3_s(
    three: testing.LocalCluster,
) -> None:
    create(three, "pause", ["zzz"])
    with (
        Load(three.servers, "pause", random.randrange(1 << 32)) as load,
        lognode.Client(three.servers) as client,
    ):
        for _ in range(3):
            load.go_on(200)
            leader = three.nodes[testing.leader_of(client, "pause") - 1]
            leader.kill()
            load.go_on(100)
            leader.start()
            leader.wait_ready()
            testing.wait_healthy(three)
    unsettled = [a for a in load.told.attempts if a.expect is None and a.outcome != "ok"]
    assert not unsettled, "S8: a plain append is retried with its number until it is acknowledged"
    assert load.slowest_s() < PAUSE_MAX_S
    check(same_on(three.servers, "pause", NODES), load.told)


def test_S1_S2_kill_of_all_three_at_once(three: testing.LocalCluster) -> None:
    create(three, "all")
    with Load(three.servers, "all", random.randrange(1 << 32)) as load:
        for _ in range(2):
            load.go_on(300)
            for node in three.nodes:
                node.kill()
            for node in three.nodes:
                node.start()
            for node in three.nodes:
                node.wait_ready()
            load.go_on(100)
    check(same_on(three.servers, "all", NODES), load.told)


def test_L1_L2_a_node_that_was_away_catches_up_and_can_be_the_majority(
    three: testing.LocalCluster,
) -> None:
    """What two acknowledged while one was away survives the death of either of them."""
    create(three, "away")
    with Load(three.servers, "away", random.randrange(1 << 32)) as load:
        away, stays, dies = three.nodes
        load.go_on(50)
        away.kill()
        load.go_on(500)
        away.start()
        away.wait_ready()
        dies.kill()
        load.go_on(200)
        stays_only = {away.number, stays.number}
    check(same_on(three.servers, "away", stays_only), load.told)


def test_L4_S2_stop_of_a_leader_hands_over_and_stop_of_all_returns(
    three: testing.LocalCluster, tmp_path: Path
) -> None:
    create(three, "stops", ["zzz"])
    with (
        Load(three.servers, "stops", random.randrange(1 << 32)) as load,
        lognode.Client(three.servers) as client,
    ):
        load.go_on(100)
        leader = three.nodes[testing.leader_of(client, "stops") - 1]
        assert leader.stop() == 0
        load.go_on(100)
        leader.start()
        leader.wait_ready()
    entries = same_on(three.servers, "stops", NODES)
    check(entries, load.told)
    assert [node.stop() for node in three.nodes] == [0, 0, 0]
    for node in three.nodes:
        node.start()
    testing.wait_healthy(three)
    assert same_on(three.servers, "stops", NODES) == entries
