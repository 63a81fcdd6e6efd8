"""When a node may be drained or removed, and what is done about it then."""

import re
from dataclasses import replace
from typing import Any

import pytest
from metadata_log import Controller

from lognode.client.protocol import limits
from lognode.partitions.change import next_commands, next_steps
from lognode.partitions.facts import Facts, OperationFacts
from lognode.partitions.leaving import LEADS_FIRST_S, leaving
from lognode.partitions.metadata import Metadata

NOW = 1_000.0


def cluster(nodes: int, *, replicas: int = 3, controller: tuple[int, ...] = (1,)) -> Controller:
    """A range on the first nodes."""
    found = Controller().nodes(nodes)
    found.do("create_log", name="a", replicas=replicas)
    found.metadata.controller = replace(found.metadata.controller, members=controller)
    return found


def states(controller: Controller, **by_node: str) -> None:
    for node, state in by_node.items():
        assert "ok" in controller.do("node_state", node=int(node[1:]), state=state)


def refused(controller: Controller, op: str, **fields: Any) -> str:
    before = controller.metadata.nodes.copy()
    error = controller.do(op, **fields)["error"]
    assert controller.metadata.nodes == before
    return f"{error['code']}: {error['message']}"


def test_a_node_is_drained_and_the_drain_is_given_up() -> None:
    found = cluster(4)
    for changes in (True, False):
        version = found.metadata.version + changes
        assert found.do("drain_node", node=3)["ok"] == {
            "node": 3, "state": "DRAINING", "replicas": 1, "version": version,
        }  # fmt: skip
    assert found.metadata.nodes[3].state == "DRAINING"
    assert found.do("register", node=3, incarnation=3, boot=2)["ok"]["node"] == 3
    assert found.metadata.nodes[3].state == "DRAINING", "though it was started again"
    for _ in range(2):
        assert found.do("drain_node", node=3, undo=True)["ok"]["state"] == "ACTIVE"


def test_heartbeats_do_not_change_what_an_operator_said() -> None:
    """The command was on its way when the operator's came."""
    found = cluster(4)
    found.do("drain_node", node=4)
    assert "node 4 is DRAINING" in refused(found, "node_state", node=4, state="DEAD")
    found.do("remove_node", node=4)
    assert "node 4 is REMOVED" in refused(found, "node_state", node=4, state="ACTIVE")


@pytest.mark.parametrize(
    ("nodes", "by_node", "controller", "node", "told"),
    [
        (4, {}, (1,), 9, "NODE_NOT_FOUND: node 9 does not exist"),
        (1, {}, (1,), 1, "CONFLICT: node 1 is the last ACTIVE node"),
        (3, {}, (1,), 3, r"range 1 of log a has the members 1, 2, 3, 1 of them .* and 0 other"),
        (
            4,
            {"n4": "DEAD"},
            (1,),
            3,
            r"range 1 of log a .* 0 other nodes are ACTIVE; add a node first",
        ),
        (4, {"n2": "DRAINING"}, (1,), 3, r"2 of them would have to leave, and 1 other nodes"),
        (4, {"n3": "DEAD"}, (1, 2, 4), 4, r"the controller has the members 1, 2, 4"),
        (
            4,
            {"n3": "DEAD"},
            (1,),
            3,
            r"node 3 is DEAD and cannot be drained: start the node, or .*--dead",
        ),
        (
            4,
            {"n3": "REMOVED"},
            (1,),
            3,
            "node 3 is REMOVED and cannot be drained: a removed node never",
        ),
        (4, {"n3": "JOINING"}, (1,), 3, "node 3 is JOINING and cannot be drained: wait"),
    ],
)
def test_a_drain_that_could_never_end_is_refused(
    nodes: int, by_node: dict[str, str], controller: tuple[int, ...], node: int, told: str
) -> None:
    found = cluster(nodes, controller=controller)
    states(found, **by_node)
    if told.startswith("the controller"):
        found.do("delete_log", name="a")
    assert re.search(told, refused(found, "drain_node", node=node))


def test_nodes_that_have_nothing_are_drained_where_nobody_could_take_anything() -> None:
    found = cluster(4)
    states(found, n3="DEAD")
    assert found.do("drain_node", node=4)["ok"]["replicas"] == 0


def test_a_drained_node_is_removed_and_its_id_never_comes_back() -> None:
    found = cluster(4)
    assert "node 4 is ACTIVE: `lognode node drain 4` first" in refused(found, "remove_node", node=4)
    found.do("drain_node", node=4)
    for _ in range(2):
        assert found.do("remove_node", node=4)["ok"]["state"] == "REMOVED"
    assert "node 4 was removed" in refused(found, "register", node=4, incarnation=4, boot=2)
    assert found.register(5)["ok"]["node"] == 5
    assert "NODE_NOT_FOUND" in refused(found, "remove_node", node=9)


def test_a_node_is_not_removed_before_all_has_left_it() -> None:
    """What is to come there by an operation is not nothing."""
    found = cluster(5, controller=(1, 2, 5))
    found.do("drain_node", node=5)
    assert "still has 1 replicas" in refused(found, "remove_node", node=5), "the controller's"
    assert "still has 1 replicas" in refused(found, "remove_node", node=5, dead=True)
    found.metadata.controller = replace(found.metadata.controller, members=(1, 2, 3))
    found.do("drain_node", node=5, undo=True)
    found.do("move_range", **{"range": 1, "from": 1, "to": 5})
    found.do("drain_node", node=5)
    assert "still has 1 replicas" in refused(found, "remove_node", node=5)
    found.do("abort", operation=1)
    assert "ok" in found.do("remove_node", node=5)


@pytest.mark.parametrize(
    ("replicas", "nodes", "by_node", "told"),
    [
        (1, 2, {"n1": "DEAD"}, "has the last copy of range 1 of log a: start the node, or delete"),
        (3, 4, {"n1": "DEAD", "n2": "REMOVED"},
         "range 1 of log a needs node 1: of its members 1, 2, 3 only 3 would be left, which is "
         "not a majority"),
        (3, 3, {"n1": "DEAD", "n2": "DEAD", "n3": "DEAD"}, "no other node is ACTIVE"),
        (3, 4, {}, "node 1 is ACTIVE: .* first .--dead is only for DEAD nodes"),
    ],
)  # fmt: skip
def test_a_node_that_a_range_needs_is_not_removed(
    replicas: int, nodes: int, by_node: dict[str, str], told: str
) -> None:
    found = cluster(nodes, replicas=replicas, controller=(3,) if nodes > 2 else (2,))
    states(found, **by_node)
    assert re.search(told, refused(found, "remove_node", node=1, dead=True))


def test_a_dead_node_is_removed_only_when_it_is_said_that_it_never_comes_back() -> None:
    found = cluster(4, controller=(1, 2, 3))
    states(found, n3="DEAD")
    assert "remove the node with --dead" in refused(found, "remove_node", node=3)
    assert found.do("remove_node", node=3, dead=True)["ok"]["replicas"] == 2
    # At once, and though the dead are never repaired by themselves here.
    facts = Facts()
    facts.heard = dict.fromkeys((1, 2, 4), NOW)
    (step,) = next_steps(found.metadata, facts, NOW, 20.0)
    assert (step["op"], step["members"]) == ("seal_controller", [1, 2, 4])
    assert (step["kind"], step["reason"]) == ("repair", "node 3 was removed")
    found.do("seal_controller", **{n: step[n] for n in ("members", "kind", "reason")})
    found.metadata.begin_generation()
    (step,) = next_steps(found.metadata, facts, NOW, 20.0)
    assert step["outputs"] == [{"range": 1, "members": [1, 2, 4]}]


def test_removed_nodes_do_not_count_for_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "nodes_max", 4)
    found = cluster(4)
    assert "the cluster has 4 nodes" in refused(found, "register", incarnation=5, boot=1)
    found.do("drain_node", node=4)
    found.do("remove_node", node=4)
    assert found.register(5)["ok"]["node"] == 5


@pytest.mark.parametrize("fields", [{}, {"node": "3"}, {"node": -1}, {"node": None}])
@pytest.mark.parametrize("op", ["drain_node", "remove_node"])
def test_an_unknown_node_is_refused(op: str, fields: dict[str, Any]) -> None:
    assert re.match("NODE_NOT_FOUND|INVALID_ARGUMENT", refused(cluster(4), op, **fields))


# What is done about a node that drains.


def draining(*, controller: tuple[int, ...] = (1,)) -> tuple[Metadata, Facts]:
    """Node 3 of five drains, and all are alive."""
    found = cluster(5, controller=controller)
    found.do("drain_node", node=3)
    facts = Facts()
    facts.heard = dict.fromkeys(range(1, 6), NOW)
    return found.metadata, facts


def test_a_draining_node_hands_its_leads_over_first() -> None:
    metadata, facts = draining()
    assert leaving(metadata, facts, NOW, 20.0, 0.0) == {}, "it has not said what it leads"
    facts.leads_left[3] = 2
    assert leaving(metadata, facts, NOW + 1.0, 20.0, 0.0) == {}
    facts.leads_left[3] = 0
    (leave,) = leaving(metadata, facts, NOW + 1.1, 20.0, 0.0).values()
    assert (leave.kind, leave.reason) == ("move", "node 3 is draining")


def test_a_node_that_cannot_hand_its_leads_over_is_drained_all_the_same() -> None:
    metadata, facts = draining()
    facts.leads_left[3] = 2
    assert leaving(metadata, facts, NOW, 20.0, 0.0) == {}
    assert list(leaving(metadata, facts, NOW + LEADS_FIRST_S, 20.0, 0.0)) == [3]


def test_leads_of_an_earlier_drain_do_not_count() -> None:
    metadata, facts = draining()
    facts.leads_left[3] = 0
    assert leaving(metadata, facts, NOW, 20.0, 0.0)
    active = {"op": "drain_node", "node": 3, "undo": True}
    assert "ok" in metadata.apply(1, 1, active)
    assert leaving(metadata, facts, NOW + 60.0, 20.0, 0.0) == {}
    assert "ok" in metadata.apply(1, 1, {"op": "drain_node", "node": 3})
    assert leaving(metadata, facts, NOW + 61.0, 20.0, 0.0) == {}


def test_replicas_of_a_draining_node_move_whether_it_is_alive_or_not() -> None:
    metadata, facts = draining(controller=(1, 2, 4))
    facts.leads_left[3] = 0
    for alive in (True, False):
        if not alive:
            del facts.heard[3]
            facts.repaired.clear()
        (step,) = next_steps(metadata, facts, NOW, 20.0)
        assert (step["op"], step["kind"], step["reason"]) == ("plan", "move", "node 3 is draining")
        assert step["outputs"] == [{"range": 1, "members": [1, 2, 4]}]


def test_the_controller_leaves_a_draining_node_while_operations_run() -> None:
    metadata, facts = draining(controller=(1, 2, 3))
    facts.leads_left[3] = 0
    move = {"op": "move_range", "range": 1, "from": 1, "to": 4}
    assert "ok" in metadata.apply(1, 1, move)
    (step,) = next_steps(metadata, facts, NOW, 20.0)
    assert (step["op"], step["members"], step["kind"]) == ("seal_controller", [1, 2, 4], "move")


def test_a_draining_node_gets_nothing_new_and_takes_part_where_it_does() -> None:
    """An operation that would give it a replica is given up; one that keeps it waits for it."""
    metadata, facts = draining()
    keeps = {"op": "plan", "kind": "move", "inputs": [[1, 1]],
             "outputs": [{"range": 1, "members": [2, 3, 4]}]}  # fmt: skip
    assert "ok" in metadata.apply(1, 1, keeps)
    facts.of(1, NOW).copied |= {2, 4}
    assert next_steps(metadata, facts, NOW, 20.0) == []
    facts.of(1, NOW).copied.add(3)
    assert next_steps(metadata, facts, NOW, 20.0) == [{"op": "sealing", "operation": 1}]
    new = cluster(5)
    new.do("move_range", **{"range": 1, "from": 1, "to": 5})
    new.do("drain_node", node=5)
    assert next_steps(new.metadata, facts, NOW, 20.0) == [{"op": "abort", "operation": 1}]
    # Once it is decided it goes forwards, and the node is drained of it afterwards.
    new.do("sealing", operation=1)
    new.do("decide", operation=1, lineage=[[1, 1, 10, 2, 5, 7, b"hash"]], members=[[2, 3, 5]])
    assert new.metadata.replicas_by_node()[5] == 1
    (operation,) = new.metadata.operations.values()
    told = OperationFacts(installed={2, 3, 5})
    assert len(next_commands(operation, told, NOW, {1, 2, 3, 4}, {(1, 2): [2, 3, 5]})) == 3
