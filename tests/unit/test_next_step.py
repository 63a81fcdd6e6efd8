"""What `lognode health` says to do next."""

from dataclasses import replace
from typing import Any

import pytest
from health_steps import drained

from lognode.node.serving import health
from lognode.node.serving.next_step import Troubles, next_step
from lognode.partitions.metadata import Metadata


def found(nodes: int, *, members: tuple[int, ...] = (1, 2, 3), **states: str) -> Metadata:
    """A cluster with one range; `states` are those of nodes, as `n2="DEAD"`."""
    made = Metadata()
    commands: list[dict[str, Any]] = [
        {"op": "found", "cluster": "c", "node": 1},
        *(
            {"op": "register", "incarnation": node, "boot": 1, "node": None, "zone": "",
             "address": f"h{node}:1", "http": ""}
            for node in range(1, nodes + 1)
        ),
        {"op": "create_log", "name": "orders", "ranges": 1, "replicas": 3},
    ]  # fmt: skip
    for index, command in enumerate(commands, 2):
        assert "ok" in made.apply(index, 1, command)
    made.controller = replace(made.controller, members=(1, 2, 3))
    for range_ in list(made.ranges.values()):
        made.ranges.put(range_.range_id, replace(range_, members=members))
    for node, state in states.items():
        record = made.nodes[int(node[1:])]
        made.nodes.put(record.node_id, replace(record, state=state))
    return made


def step(made: Metadata, nodes: int = 1, **troubles: Any) -> str:
    return next_step(made, Troubles(**troubles), nodes)


def test_a_range_without_a_majority_names_the_nodes_to_start() -> None:
    made = found(3, n2="DEAD")
    (range_,) = made.ranges.values()
    told = step(made, leaderless=range_, unreachable={3})
    assert told == (
        "start node 2 (h2:1) and node 3 (h3:1) again with the same data directory; if the disks "
        "are lost for good, run `lognode range recover 1`, which shows what would be lost"
    )
    assert step(made, leaderless=made.controller, unreachable={3}) == (
        "start node 2 (h2:1) and node 3 (h3:1) again with the same data directory"
    )
    assert step(made, leaderless=range_).startswith("wait some seconds for an election of range 1")
    gone = found(5, members=(1, 2, 3), n2="REMOVED", n3="REMOVED")
    (range_,) = gone.ranges.values()
    assert step(gone, leaderless=range_).startswith("run `lognode range recover 1`")


def test_a_node_that_is_down_is_to_be_started() -> None:
    again = "start node 2 (h2:1) again with the same data directory"
    assert step(found(3), unreachable={2}) == again
    assert step(found(3, n2="DEAD")) == (
        f"{again}; if its disk is lost for good, run `lognode node remove 2`"
    )
    assert not step(found(3, n2="REMOVED"), unreachable={2}).startswith("start node 2")


def test_many_nodes_are_counted() -> None:
    told = step(found(9), unreachable=set(range(2, 10)))
    assert "node 6 (h6:1) and 3 more again" in told


def test_the_other_troubles_have_a_step_each() -> None:
    assert "free space on the disk of node 2 (h2:1)" in step(found(3), short={2})
    assert "upgrade node 2 (h2:1)" in step(found(3), halted=[2])
    assert "wait: the cluster rebuilds the replica of node 2" in step(found(3), damaged=[2])
    assert step(found(1), nodes=3) == "start 2 more nodes with `lognode --join h1:1`"
    assert step(found(3), stranded=[2]) == "start 1 more node with `lognode --join h1:1`"
    assert step(found(3)) == "wait: `lognode health --wait 60s` ends when the cluster is healthy"


def test_an_empty_node_that_drains_is_to_be_removed() -> None:
    assert "run `lognode node remove 4`" in step(found(4, n4="DRAINING"))
    assert "wait:" in step(found(3, n3="DRAINING"))


@pytest.mark.parametrize("is_healthy", [True, False])
def test_only_an_unhealthy_cluster_has_a_next_step(is_healthy: bool) -> None:
    made = found(3)
    down = set() if is_healthy else {2}
    got = drained(health.reasons(made, lambda *_: 1, 3, {}, {}, down))
    assert bool(got.next) == bool(got.reasons) == (not is_healthy)


def test_damage_of_a_generation_that_is_over_gives_no_step() -> None:
    made = found(3)
    damaged = {2: [(1, 1, "a checksum")], 3: [(1, 7, "over")]}
    got = drained(health.reasons(made, lambda *_: 1, 3, damaged, {}, ()))
    assert got.next == "wait: the cluster rebuilds the replica of node 2 (h2:1)"
