"""A cluster whose metadata holds an address that nobody can dial goes on, and has a way back.

A version before the rule for addresses took `a..b:4600` from an operator or from a join. The record
is replicated: every node read it, the resolver raised, and every node ended, at each start again.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from metrics_page import metric

import lognode
from lognode import testing

pytestmark = pytest.mark.cluster

CARELESS = str(Path(__file__).resolve().parents[1] / "support" / "careless_node.py")
UNUSABLE = "a..b:4600"


@pytest.fixture
def spoilt(tmp_path: Path) -> Iterator[testing.LocalCluster]:
    """Three stopped nodes of a cluster in which node 3 has registered an unusable address."""
    with testing.cluster(tmp_path, 3, start=False) as cluster:
        plain = cluster.nodes[0].program
        for node in cluster.nodes:
            node.program = (CARELESS,)
        cluster.nodes[2]._flags = ("--advertise", UNUSABLE)
        for node in cluster.nodes[:2]:
            node.start()
            node.wait_ready()
        cluster.nodes[2].start()
        testing.eventually(lambda: address_of(cluster, 3) == UNUSABLE, what="it is registered")
        with lognode.Client(two(cluster), timeout=30) as client:
            client.create_log("orders").append(b"k", b"before")
        for node in cluster.nodes:
            node.stop()
            node.program = plain
        yield cluster


def two(cluster: testing.LocalCluster) -> str:
    """The nodes that can be dialled."""
    return "lognode://" + ",".join(node.address for node in cluster.nodes[:2])


def address_of(cluster: testing.LocalCluster, number: int) -> str:
    rows = cluster.nodes[0].status()["nodes"]
    return next((str(row["address"]) for row in rows if row["id"] == number), "")


def start(nodes: list[testing.LocalNode]) -> None:
    for node in nodes:
        node.start()
    for node in nodes:
        node.wait_ready()


def tells(node: testing.LocalNode) -> Callable[[], bool]:
    return lambda: "the address of a peer cannot be dialled" in node.log_path.read_text("utf-8")


def test_a_node_with_a_right_address_heals_a_cluster_that_holds_an_unusable_one(
    spoilt: testing.LocalCluster,
) -> None:
    one, other, third = spoilt.nodes
    start([one, other])
    for node in (one, other):
        testing.eventually(tells(node), what="the line")
        assert metric(node, 'lognode_unusable_records_total{kind="address"}') >= 1.0
    with lognode.Client(two(spoilt), timeout=30) as client:
        log = client.log("orders")
        log.append(b"k", b"without it")
        assert [entry.value for entry in log.scan(b"k")] == [b"before", b"without it"]
        assert {node.running for node in (one, other)} == {True}

        third.start()
        assert third.wait_end() == 1, "the operator is told"
        assert f"advertise '{UNUSABLE}' is not HOST:PORT" in third.log_tail(1)
        assert "the host has an empty label" in third.log_tail(1)

        third._flags = ()
        third.start()
        third.wait_ready()
        testing.wait_healthy(spoilt)
        assert address_of(spoilt, 3) == third.address
        (range_,) = [r for r in client.status()["ranges"] if r["log"] == "orders"]
        assert sorted(range_["members"]) == [1, 2, 3]
        log.append(b"k", b"with it")
        assert log.count(b"k", node=3) == 3
    assert {node.running for node in spoilt.nodes} == {True}


@pytest.mark.by_hand
def test_a_node_with_an_unusable_address_that_is_gone_can_be_removed(
    spoilt: testing.LocalCluster,
) -> None:
    one, other, _ = spoilt.nodes
    start([one, other])
    with lognode.Client(two(spoilt), timeout=30) as client:

        def is_dead() -> bool:
            return any(n["id"] == 3 and n["state"] == "DEAD" for n in client.status()["nodes"])

        testing.eventually(is_dead, what="node 3 is DEAD")
        client.admin.remove(3, dead=True)
        client.log("orders").append(b"k", b"after")
        new = spoilt.add()
        new.start()
        new.wait_ready()
        testing.eventually(lambda: client.health(nodes=3)["ok"], what="health", timeout_s=60)
        for node in (one, other):
            node.stop()
        start([one, other])
        assert client.log("orders").count(b"k") == 2
    assert {node.running for node in (one, other, new)} == {True}
