"""What `lognode health` calls unhealthy, and why."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from lognode.node import health
from lognode.partitions.metadata import Metadata
from lognode.partitions.planner import Damages


def metadata(nodes: int) -> Metadata:
    found = Metadata()
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
        assert "ok" in found.apply(index, 1, command)
    return found


def led_by_one(range_id: int, generation: int) -> int | None:
    return 1


def reasons(
    found: Metadata,
    leader: Callable[[int, int], int | None],
    nodes: int,
    *,
    damaged: Damages | None = None,
    short: Mapping[int, int] | None = None,
    unreachable: Collection[int] = (),
) -> list[str]:
    return health.reasons(found, leader, nodes, damaged or {}, short or {}, unreachable)


def test_one_node_alone_is_healthy() -> None:
    assert reasons(metadata(1), led_by_one, 1) == []


def test_too_few_nodes() -> None:
    assert reasons(metadata(1), led_by_one, 3) == ["1 nodes are ACTIVE, 3 are wanted"]


def test_members_that_are_still_to_come() -> None:
    found = metadata(3)
    found.controller = replace(found.controller, members=(1,))
    assert reasons(found, led_by_one, 3) == ["the controller has 1 members, 3 are wanted"]


def test_x29_a_controller_between_two_generations() -> None:
    """Its founder was killed there, with its disk, and nothing could be decided any more."""
    found = metadata(3)
    seal = {"op": "seal_controller", "members": [1, 2, 3], "kind": "expand", "reason": "r"}
    assert "ok" in found.apply(20, 1, seal)
    assert reasons(found, led_by_one, 3)[0] == "the controller goes on with members 1, 2, 3"
    found.begin_generation()
    assert not any("goes on" in reason for reason in reasons(found, led_by_one, 3))


def test_a_range_without_a_leader() -> None:
    assert reasons(metadata(1), lambda range_id, _: None if range_id else 1, 1) == [
        "range 1 of log orders has no leader"
    ]


def test_a_dead_node_and_an_operation() -> None:
    found = metadata(3)
    (range_,) = found.ranges.values()
    found.apply(10, 1, {"op": "node_state", "node": 2, "state": "DEAD"})
    outputs = [{"range": range_.range_id, "members": [1, 2, 3]}]
    inputs = [[range_.range_id, range_.generation]]
    plan = {"op": "plan", "kind": "expand", "inputs": inputs, "outputs": outputs, "reason": "r"}
    assert "ok" in found.apply(11, 1, plan)
    found.controller = replace(found.controller, members=(1, 2, 3))
    assert reasons(found, led_by_one, 1) == [
        "node 2 is DEAD",
        "2 replicas of node 2 have no other node to go to: let another one join",
        "operation 1 (expand) is PLANNED",
    ]


def test_S12_a_damaged_replica_is_named() -> None:
    damaged = {2: [(1, 1, "a checksum"), (1, 7, "of a generation that is over")]}
    assert reasons(metadata(1), led_by_one, 1, damaged=damaged) == [
        "node 2's replica of range 1 of log orders is damaged: a checksum"
    ]


def test_a_node_that_cannot_be_reached_is_named_at_once() -> None:
    """The controller takes ten seconds to call it dead; its links are gone in a moment."""
    found = metadata(3)
    found.controller = replace(found.controller, members=(1, 2, 3))
    found.apply(10, 1, {"op": "node_state", "node": 2, "state": "DEAD"})
    told = reasons(found, led_by_one, 2, unreachable={2, 3})
    assert told[:2] == ["node 2 is DEAD", "node 3 cannot be reached"]


def test_a_dead_node_whose_replicas_others_can_take_is_only_dead() -> None:
    found = metadata(4)
    found.apply(10, 1, {"op": "node_state", "node": 2, "state": "DEAD"})
    assert reasons(found, led_by_one, 1) == [
        "node 2 is DEAD", "the controller has 1 members, 3 are wanted",
    ]  # fmt: skip


def test_a_node_short_of_disk_is_named() -> None:
    assert reasons(metadata(1), led_by_one, 1, short={1: 5, 9: 5}) == [
        "node 1 has less disk left than its reserve, 5 bytes: the ranges that it leads take no "
        "appends"
    ]
