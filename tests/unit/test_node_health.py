"""What `lognode health` calls unhealthy, and why."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from health_steps import drained

from lognode.node.serving import health
from lognode.partitions import commands
from lognode.partitions.metadata import Metadata
from lognode.partitions.planner import Damages


def metadata(nodes: int, *, ranges: int = 1, replicas: int = 3) -> Metadata:
    found = Metadata()
    commands: list[dict[str, Any]] = [
        {"op": "found", "cluster": "c", "node": 1},
        *(
            {"op": "register", "incarnation": node, "boot": 1, "node": None, "zone": "",
             "address": f"h{node}:1", "http": ""}
            for node in range(1, nodes + 1)
        ),
        {"op": "create_log", "name": "orders", "ranges": ranges, "replicas": replicas},
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
    steps = health.reasons(found, leader, nodes, damaged or {}, short or {}, unreachable)
    return drained(steps).reasons


def test_one_node_alone_is_healthy() -> None:
    assert reasons(metadata(1), led_by_one, 1) == []


def test_too_few_nodes() -> None:
    assert reasons(metadata(1), led_by_one, 3) == ["1 nodes are ACTIVE; the check wants 3"]


def test_members_that_are_still_to_come() -> None:
    found = metadata(3)
    found.controller = replace(found.controller, members=(1,))
    assert reasons(found, led_by_one, 3) == ["the controller has 1 of 3 members"]


def test_x29_a_controller_between_two_generations() -> None:
    """Its founder was killed there, with its disk, and nothing could be decided any more."""
    found = metadata(3)
    seal = {"op": "seal_controller", "members": [1, 2, 3], "kind": "expand", "reason": "r"}
    assert "ok" in found.apply(20, 1, seal)
    assert reasons(found, led_by_one, 3)[0] == "the controller continues with the members 1, 2, 3"
    found.begin_generation()
    assert not any("continues" in reason for reason in reasons(found, led_by_one, 3))


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
        "2 replicas of node 2 have no other node to go to: add another node",
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
    assert told[:2] == ["node 2 is DEAD", "this node cannot reach node 3"]


def test_a_dead_node_whose_replicas_others_can_take_is_only_dead() -> None:
    found = metadata(4)
    found.apply(10, 1, {"op": "node_state", "node": 2, "state": "DEAD"})
    assert reasons(found, led_by_one, 1) == [
        "node 2 is DEAD", "the controller has 1 of 3 members",
    ]  # fmt: skip


def test_a_node_short_of_disk_is_named() -> None:
    assert reasons(metadata(1), led_by_one, 1, short={1: 5, 9: 5}) == [
        "the disk of node 1 has 5 free bytes, less than its reserve: the ranges that the node "
        "leads refuse appends"
    ]


def without(node: int, nodes: int, **shape: int) -> Metadata:
    """A cluster of which the node was killed and removed; the first three are the controller."""
    found = metadata(nodes, **shape)
    found.controller = replace(found.controller, members=(1, 2, 3))
    assert "ok" in found.apply(100, 1, {"op": "node_state", "node": node, "state": "DEAD"})
    assert "ok" in found.apply(101, 1, {"op": "remove_node", "node": node, "dead": True})
    return found


def test_S2_ranges_that_a_removed_node_is_still_a_member_of_are_named() -> None:
    """It said that all was well, and the next node was stopped: then two of three were gone."""
    assert reasons(without(3, 4), led_by_one, 3) == [
        "node 3 was removed and the cluster still copies its replicas to other nodes (2): "
        "the controller (2 of 3 members are live), "
        "range 1 of log orders (2 of 3 members are live)"
    ]


def test_a_dead_member_is_not_live_either() -> None:
    found = without(3, 5, replicas=5)
    found.apply(102, 1, {"op": "node_state", "node": 2, "state": "DEAD"})
    (told,) = [line for line in reasons(found, led_by_one, 3) if "was removed" in line]
    assert "the controller (1 of 3 members are live)" in told
    assert "range 1 of log orders (3 of 5 members are live)" in told


def test_a_draining_member_is_live_and_its_node_is_named() -> None:
    found = without(3, 5)
    assert "ok" in found.apply(102, 1, {"op": "drain_node", "node": 2})
    told = reasons(found, led_by_one, 3)
    assert told[0] == "node 2 is DRAINING"
    assert "range 1 of log orders (2 of 3 members are live)" in told[1]


def test_a_removed_node_of_which_nothing_is_left_is_not_named() -> None:
    found = without(5, 5)
    assert reasons(found, led_by_one, 4) == []


def test_without_another_node_the_ranges_are_named_too() -> None:
    told = reasons(without(3, 3), led_by_one, 2)
    assert told[0].startswith("2 replicas of node 3 have no other node to go to")
    assert "range 1 of log orders (2 of 3 members are live)" in told[1]


def test_one_line_names_twenty_ranges_and_counts_the_others() -> None:
    (told,) = reasons(without(3, 4, ranges=40), led_by_one, 3)
    held = 1 + sum(3 in range_.members for range_ in without(3, 4, ranges=40).ranges.values())
    assert told.count("members are live") == 20
    assert f"to other nodes ({held}): " in told
    assert told.endswith(f", {held - 20} more")


def lines_of(found: Metadata) -> dict[str, bool]:
    """Which lines there are: of replicas to be copied, of operations."""
    told = reasons(found, led_by_one, 3)
    assert len(told) == sum("was removed" in line or "operation" in line for line in told), told
    return {
        "copied": any("was removed" in line for line in told),
        "operation": any("operation" in line for line in told),
    }


BOTH, COPIES, OPERATION, NEITHER = (
    {"copied": copied, "operation": operation}
    for copied, operation in ((True, True), (True, False), (False, True), (False, False))
)


def step(found: Metadata, **command: Any) -> None:
    answer = found.apply(found.version + 200, 1, {"operation": 1, "at_ms": 1, **command})
    assert "ok" in answer, answer


def replaced_controller(nodes: int) -> Metadata:
    found = without(3, nodes)
    found.controller = replace(found.controller, members=(1, 2, nodes))
    return found


def parent(range_id: int, generation: int) -> list[Any]:
    return [range_id, generation, 9, 1, 5, 0, b"h"]


def test_S2_a_repair_is_told_until_the_last_member_has_its_copy() -> None:
    found = replaced_controller(4)
    assert lines_of(found) == COPIES
    step(found, op="plan", kind="repair", inputs=[[1, 1]], reason="r",
         outputs=[{"range": 1, "members": [1, 2, 4]}])  # fmt: skip
    assert lines_of(found) == BOTH
    step(found, op="sealing")
    assert lines_of(found) == BOTH
    step(found, op="decide", lineage=[parent(1, 1)], members=[[1, 2, 4]])
    assert lines_of(found) == OPERATION, "the new members have not all begun"
    for node in (1, 2):
        step(found, op="installed", node=node)
        assert lines_of(found) == OPERATION
    step(found, op="installed", node=4)
    assert lines_of(found) == NEITHER


def test_S2_a_repair_that_is_given_up_leaves_its_range_to_be_copied() -> None:
    found = replaced_controller(4)
    step(found, op="plan", kind="repair", inputs=[[1, 1]], reason="r",
         outputs=[{"range": 1, "members": [1, 2, 4]}])  # fmt: skip
    step(found, op="sealing")
    step(found, op="decide", lineage=[parent(1, 1)], members=[[1, 2, 3]])
    step(found, op="installed", node=1)
    step(found, op="installed", node=2)
    assert lines_of(found) == BOTH
    step(found, op="done")
    assert lines_of(found) == COPIES


def test_S2_both_halves_of_a_split_range_are_to_be_copied() -> None:
    found = replaced_controller(4)
    step(found, op=commands.SPLIT, log="orders", at=b"m", reason="")
    assert lines_of(found) == BOTH
    step(found, op="sealing")
    step(found, op="decide", lineage=[parent(1, 1)], members=[[1, 2, 3], [1, 2, 3]])
    told = next(line for line in reasons(found, led_by_one, 3) if "was removed" in line)
    assert "(2): range 1 of log orders (2 of 3" in told
    assert "range 2 of log orders (2 of 3" in told


def test_S2_a_merged_range_is_to_be_copied() -> None:
    found = replaced_controller(4)
    step(found, op=commands.SPLIT, log="orders", at=b"m", reason="")
    step(found, op="sealing")
    step(found, op="decide", lineage=[parent(1, 1)], members=[[1, 2, 3], [1, 2, 3]])
    step(found, op="installed", node=1)
    step(found, op="installed", node=2)
    step(found, op="done")
    assert lines_of(found) == COPIES
    step(found, op=commands.MERGE, log="orders", at=b"m", reason="")
    step(found, op="sealing", operation=2)
    step(found, op="decide", operation=2, lineage=[parent(1, 2), parent(2, 2)],
         members=[[1, 2, 3]])  # fmt: skip
    told = next(line for line in reasons(found, led_by_one, 3) if "was removed" in line)
    assert "(1): range 1 of log orders (2 of 3" in told


def test_X1_the_health_of_many_ranges_comes_in_short_steps() -> None:
    """12,288 ranges were looked at in one turn of the loop, in 10 ms and more."""
    found = metadata(5, ranges=1_024)
    asked: list[int] = []

    def leader(range_id: int, generation: int) -> None:
        asked.append(range_id)

    steps = health.reasons(found, leader, 1, {}, {}, ())
    counts = []
    for _ in range(5):
        next(steps)
        counts.append(len(asked))
        asked.clear()
    assert max(counts) <= 64
    assert len(drained(steps).reasons) == 1 + 1_025, (
        "every range and the controller, without a leader"
    )


def test_a_log_that_is_deleted_between_two_steps_is_left_out() -> None:
    found = metadata(3, ranges=1_024)
    steps = health.reasons(found, lambda *_: None, 1, {}, {}, ())
    next(steps)
    step(found, op="delete_log", name="orders")
    told = drained(steps).reasons
    assert told[-1] == "range 63 of log orders has no leader"


def test_a_removed_node_is_looked_for_once_for_all_ranges() -> None:
    """With removed nodes by the dozen, one look at the ranges for each took seconds."""
    found = metadata(5, ranges=40, replicas=1)
    found.controller = replace(found.controller, members=(1, 2, 3))
    for node in (4, 5):
        for range_ in list(found.ranges.values()):
            if range_.range_id % 3 == node - 4:
                found.ranges.put(range_.range_id, replace(range_, members=(1, 2, node)))
        found.nodes.put(node, replace(found.nodes[node], state="REMOVED"))
    told = [line for line in reasons(found, led_by_one, 3) if "was removed" in line]
    for node, line in zip((4, 5), told, strict=True):
        held = sum(node in range_.members for range_ in found.ranges.values())
        assert held > 10
        assert line.startswith(f"node {node} was removed")
        assert f"({held})" in line
