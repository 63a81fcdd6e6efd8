"""Repair of the dead: replicas of a node that is gone are rebuilt elsewhere, with no help."""

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cluster_history import check, same_on
from cluster_load import Load, Size

import lognode
from lognode import testing

pytestmark = pytest.mark.cluster

SOON = ("--repair-after", "1", "--balance", "off")
"""So that replicas move for one reason only, and what comes back gets none again."""
PAUSE_S = 3.0
"""Promise L1: for a leader that is lost, and for one that is replaced."""
REPAIRED_S = 60.0
"""Ten seconds until it is DEAD, one more, and the copies."""


def state_of(client: lognode.Client, node: int) -> str:
    (row,) = [row for row in client.status()["nodes"] if row["id"] == node]
    return str(row["state"])


def members(client: lognode.Client) -> list[set[int]]:
    """Of the controller and of all ranges, once nothing is under way."""
    status = client.status()
    if status["operations"]:
        return []
    return [set(range_["members"]) for range_ in status["ranges"]]


def name_of(range_: dict[str, Any]) -> str:
    return f"range {range_['id']} of log {range_['log']}" if range_["id"] else "the controller"


def cli_health(cluster: testing.LocalCluster, nodes: int) -> tuple[int, str]:
    """The exit code of `lognode health`, and what the verb printed."""
    done = subprocess.run(
        [sys.executable, "-m", "lognode.node.main", "health", "--nodes", str(nodes),
         "--server", cluster.servers],
        capture_output=True, text=True, timeout=60, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    return done.returncode, done.stdout


def replicas_on(node: testing.LocalNode) -> set[int]:
    with lognode.Client(node.address) as client:
        return {replica["range"] for replica in client.status()["replicas"]}


def wait_rebuilt(client: lognode.Client, gone: int) -> None:
    """Until nothing has the node for a member."""

    def rebuilt() -> bool:
        found = members(client)
        return bool(found) and not any(gone in each for each in found)

    testing.eventually(rebuilt, timeout_s=REPAIRED_S, what=f"node {gone} is replaced")


def test_S2_L1_a_killed_node_is_replaced_under_load_and_retires_what_it_had(
    tmp_path: Path,
) -> None:
    """All ranges, and the controller; the node that comes back is one like any other."""
    with (
        testing.cluster(tmp_path, 4, flags=SOON) as cluster,
        lognode.Client(cluster.servers, timeout=30) as client,
    ):
        testing.wait_healthy(cluster)
        client.create_log("load", ranges=4)
        testing.wait_healthy(cluster)
        seed = random.SystemRandom().randrange(1 << 32)
        with Load(cluster.servers, "load", seed, Size(value_bytes=200)) as load:
            load.go_on(200)
            victim = testing.leader_of(client, "load")
            node = cluster.nodes[victim - 1]
            was = sum(victim in each for each in members(client))
            assert was >= 2
            node.kill()
            load.go_on(100)
            wait_rebuilt(client, victim)
            others = {1, 2, 3, 4} - {victim}
            assert all(each == others for each in members(client))
            ends = [range_["last_operation"] for range_ in client.status()["ranges"]]
            said = f"node {victim} has been DEAD for 1 s"
            assert [(e["kind"], e["outcome"]) for e in ends if e and e["reason"] == said] == (
                [("repair", "DONE")] * was
            )
            load.go_on(100)
            node.start()
            node.wait_ready()
            testing.eventually(lambda: replicas_on(node) == set(), what="it retires its replicas")
            testing.wait_healthy(cluster)
            assert all(each == others for each in members(client)), "nothing goes back"
            load.go_on(100)
        assert load.slowest_s() < PAUSE_S
        check(same_on(cluster.servers, "load", others), load.told)


@pytest.mark.by_hand
def test_x29_a_node_comes_back_to_a_controller_whose_leader_it_has_never_heard_of(
    tmp_path: Path,
) -> None:
    """Its old members name one that joined while it was away, of whom it has no address."""
    with (
        testing.cluster(tmp_path, 3, flags=SOON) as cluster,
        lognode.Client(cluster.servers, timeout=30) as client,
    ):
        testing.wait_healthy(cluster)
        log = client.create_log("orders")
        acks = [log.append(b"k", b"%d" % n) for n in range(50)]
        away = cluster.nodes[2]
        away.kill()
        joins = cluster.add()
        joins.start()
        joins.wait_ready()
        wait_rebuilt(client, 3)
        client.admin.transfer(0, to_node=4)
        away.start()
        away.wait_ready()
        testing.eventually(lambda: state_of(client, 3) == "ACTIVE", what="it is back")
        testing.eventually(lambda: replicas_on(away) == set(), what="it retires its replicas")
        testing.wait_healthy(cluster, 4)
        entries = same_on(cluster.servers, "orders", [1, 2, 4])
        assert [entry.seq for entry in entries[b"k"]] == [ack.seq for ack in acks]


@pytest.mark.by_hand
def test_S2_data_without_another_copy_waits_for_its_node(tmp_path: Path) -> None:
    """Nothing is planned that could not end, and health says what is wanted."""
    with (
        testing.cluster(tmp_path, 3, flags=SOON) as cluster,
        lognode.Client(cluster.servers, timeout=30) as client,
    ):
        testing.wait_healthy(cluster)
        client.create_log("alone", split_at=["b", "c"], replicas=1)
        client.create_log("all")
        keys = (b"a", b"b", b"c")
        for key in keys:
            client.log("alone").append(key, b"v")
        before = client.status()["ranges"]
        cluster.nodes[2].kill()
        testing.eventually(lambda: state_of(client, 3) == "DEAD", what="it is DEAD")
        said = "2 replicas of node 3 have no other node to go to: add another node"

        def told() -> bool:
            return said in client.health(nodes=1)["reasons"]

        testing.eventually(told, what="health says why")
        cluster.nodes[2].start()
        testing.wait_healthy(cluster)
        after = client.status()["ranges"]
        kept = ("id", "generation", "members")
        assert [[r[name] for name in kept] for r in before] == [
            [r[name] for name in kept] for r in after
        ]
        for key in keys:
            entry = client.log("alone").latest(key)
            assert entry is not None
            assert entry.value == b"v"


@pytest.mark.by_hand
def test_S2_health_names_what_a_removed_node_leaves_until_all_copies_are_made(
    tmp_path: Path,
) -> None:
    """`health` was 0 while ranges still counted on the removed node: who stopped the next node
    then, stopped those ranges."""
    flags = ("--repair-after", "0", "--balance", "off")
    with (
        testing.cluster(tmp_path, 3, flags=flags) as cluster,
        lognode.Client(cluster.servers, timeout=30) as client,
    ):
        testing.wait_healthy(cluster)
        log = client.create_log("orders", ranges=8)
        testing.wait_healthy(cluster)
        acks = [log.append(b"%d" % n, b"v") for n in range(100)]
        assert cli_health(cluster, 3) == (0, "healthy\n")
        victim = cluster.nodes[2]
        victim.kill()
        testing.eventually(lambda: state_of(client, 3) == "DEAD", what="node 3 is DEAD")
        left = client.admin.remove(3, dead=True)["replicas"]
        names = {name_of(range_) for range_ in client.status()["ranges"]}
        assert len(names) == left == 9

        def removed() -> bool:
            return state_of(client, 3) == "REMOVED"

        testing.eventually(removed, what="the nodes know")
        code, said = cli_health(cluster, 2)
        assert code == 3
        (line,) = [line for line in said.splitlines() if line.startswith("node 3 was removed and")]
        assert all(f"{name} (2 of 3 members are live)" in line for name in names), line
        assert client.status()["ranges"][1]["live_members"] == [1, 2]

        new = cluster.add()
        new.start()
        looks = []
        while True:
            told = client.health(nodes=3)
            leader = client.status()["cluster"]["controller_leader"]
            if leader is None:
                assert not told["ok"]
                continue
            # The leader's metadata is at least as new as what any node answered before.
            ranges = cluster.nodes[leader - 1].status()["ranges"]
            still = [name_of(range_) for range_ in ranges if 3 in range_["members"]]
            looks.append(len(still))
            if told["ok"]:
                assert not still, "health says that all is well while copies are missing"
                break
            for name in still:
                assert any(line.startswith("node 3 was removed and") and f"{name} (" in line
                           for line in told["reasons"]), (name, told)  # fmt: skip
        assert looks[0] == 9, "the first look came before the copies"
        assert cli_health(cluster, 3) == (0, "healthy\n")
        assert replicas_on(new) == set(range(1, 9))
        cluster.nodes[1].kill()
        entries = [log.latest(b"%d" % n) for n in range(100)]
        assert [entry and entry.seq for entry in entries] == [ack.seq for ack in acks]
