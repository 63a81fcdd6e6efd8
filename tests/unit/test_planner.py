"""Who takes the place of members that are gone, by zones and numbers of replicas, and when."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from lognode.partitions.change import REPAIR_AGAIN_AFTER_S, next_steps, timers
from lognode.partitions.facts import Facts
from lognode.partitions.leaving import DEAD_AFTER_S, leaving
from lognode.partitions.locks import OPERATIONS_MAX
from lognode.partitions.metadata import Metadata
from lognode.partitions.model import NodeRecord
from lognode.partitions.placement import Homes
from lognode.partitions.planner import plan, plan_controller
from lognode.partitions.replacing import Leave

DEAD = Leave("repair", "it has been DEAD for long")
NOW = 1_000.0
REPAIR_S = 300.0
LONG_S = DEAD_AFTER_S + REPAIR_S


def applied(metadata: Metadata, op: str, **fields: Any) -> Any:
    answer = metadata.apply(1, 1, {"op": op, **fields})
    assert "ok" in answer, answer
    return answer["ok"]


def cluster(nodes: int, *, zones: str = "", ranges: int = 1, replicas: int = 3) -> Metadata:
    """A log with its ranges, all on the first so many nodes and the controller on the first three;
    a letter of `zones` for each node."""
    metadata = Metadata()
    applied(metadata, "found", cluster="c", node=1)
    for node in range(1, nodes + 1):
        applied(metadata, "register", incarnation=node, boot=1, zone=zones[node - 1 : node])
    applied(metadata, "create_log", name="a", ranges=ranges, replicas=replicas)
    members = tuple(range(1, replicas + 1))
    for range_ in list(metadata.ranges.values()):
        metadata.ranges[range_.range_id] = replace(range_, members=members)
    metadata.controller = replace(metadata.controller, members=(1, 2, 3))
    return metadata


def died(metadata: Metadata, *nodes: int) -> set[int]:
    """Those that are left alive."""
    for node in nodes:
        applied(metadata, "node_state", node=node, state="DEAD")
    return set(metadata.nodes) - set(nodes)


def members(metadata: Metadata, *gone: int, alive: set[int] | None = None) -> list[Any]:
    """Of each range that is planned to be changed."""
    left = died(metadata, *gone)
    leave = dict.fromkeys(gone, DEAD)
    return [p.members for p in plan(metadata, alive or left, {}, leave)]


@pytest.mark.parametrize(
    ("zones", "gone", "expected"),
    [
        ("", (3,), (1, 2, 4)),
        ("abcabc", (3,), (1, 2, 6)),
        ("abcabc", (2,), (1, 3, 5)),
        ("abcabc", (1,), (2, 3, 4)),
        ("aabbbb", (1,), (2, 3, 4)),
        ("abbbba", (2,), (1, 3, 4)),
        ("abccab", (3,), (1, 2, 4)),
        ("aabbcc", (2,), (1, 3, 5)),
    ],
)
def test_the_dead_are_replaced_from_a_zone_that_the_others_use_least(
    zones: str, gone: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    """As well for the controller."""
    metadata = cluster(6, zones=zones)
    assert members(metadata, *gone) == [expected]
    alive = set(metadata.nodes) - set(gone)
    own = plan_controller(metadata, alive, {}, dict.fromkeys(gone, DEAD))
    assert own is not None
    assert (own.kind, own.members, own.reason) == ("repair", expected, DEAD.reason)


def test_where_zones_do_not_matter_the_emptiest_node_comes_next() -> None:
    metadata = cluster(6, ranges=4)
    metadata.ranges[1] = replace(metadata.ranges[1], members=(3, 4, 5))
    assert members(metadata, 3) == [(4, 5, 6), (1, 2, 4), (1, 2, 5), (1, 2, 6)]


def test_a_running_operation_counts_for_the_next_principal() -> None:
    metadata = cluster(5, ranges=2)
    applied(metadata, "move_range", **{"range": 1, "from": 1, "to": 4})
    assert members(metadata, 3) == [(1, 2, 5)]


@pytest.mark.parametrize(
    ("nodes", "replicas", "gone", "expected"),
    [
        (3, 3, (3,), []),  # nobody could come
        (4, 3, (2, 3), []),  # no majority could seal it
        (5, 3, (1, 2, 3), []),
        (7, 5, (4, 5), [(1, 2, 3, 6, 7)]),
        (6, 5, (4, 5), [(1, 2, 3, 5, 6)]),  # one of two: better than none
        (7, 5, (3, 4, 5), []),
        (2, 1, (1,), []),  # the only copy
    ],
)
def test_members_are_replaced_while_most_are_alive_and_another_node_is_there(
    nodes: int, replicas: int, gone: tuple[int, ...], expected: list[Any]
) -> None:
    assert members(cluster(nodes, replicas=replicas), *gone) == expected


def test_a_silent_or_inactive_node_gets_no_replica() -> None:
    assert members(cluster(4), 3, alive={1, 2}) == []
    for state in ("DEAD", "DRAINING", "JOINING", "REMOVED"):
        metadata = cluster(4)
        applied(metadata, "node_state", node=4, state=state)
        assert members(metadata, 3, alive={1, 2, 4}) == []
        assert plan_controller(metadata, {1, 2, 4}, {}, {3: DEAD}) is None


def test_x2_a_damaged_member_does_not_count_for_the_majority() -> None:
    metadata = cluster(4)
    alive = died(metadata, 3)
    damaged = {2: [(1, 1, "a checksum"), (0, 1, "a checksum")]}
    assert plan(metadata, alive, damaged, {3: DEAD}) == []
    assert plan_controller(metadata, alive, damaged, {3: DEAD}) is None


def test_a_range_is_planned_once_and_those_in_operation_or_resting_are_left_alone() -> None:
    metadata = cluster(7, ranges=3, replicas=5)
    alive = died(metadata, 5)
    damaged = {4: [(1, 1, "a checksum")]}
    planned = plan(metadata, alive, damaged, {5: DEAD})
    assert [(p.range_id, p.members) for p in planned] == [
        (1, (1, 2, 3, 4, 5)), (2, (1, 2, 3, 4, 7)), (3, (1, 2, 3, 4, 6)),
    ]  # fmt: skip
    assert [p.range_id for p in plan(metadata, alive, damaged, {5: DEAD}, resting={1, 3})] == [2]
    metadata.ranges[2] = replace(metadata.ranges[2], operation=9)
    assert [p.range_id for p in plan(metadata, alive, damaged, {5: DEAD}, resting={1, 3})] == []


def test_ranges_that_fail_again_and_again_keep_none_of_the_others_waiting() -> None:
    metadata = cluster(5, ranges=OPERATIONS_MAX + 1)
    alive = died(metadata, 3)
    first = [p.range_id for p in plan(metadata, alive, {}, {3: DEAD})]
    assert len(first) == OPERATIONS_MAX
    (other,) = plan(metadata, alive, {}, {3: DEAD}, resting=first)
    assert other.range_id not in first


def test_two_replicas_at_once_come_to_a_node_and_leave_one_that_drains() -> None:
    """Their ranges wait for each other's flushes: of four at once one paused for 4.8 s."""
    metadata = cluster(4, ranges=5)
    alive = died(metadata, 3)
    first, second = plan(metadata, alive, {}, {3: DEAD})
    assert (first.range_id, second.range_id) == (1, 2)
    move = {"op": "move_range", "range": 5, "from": 1, "to": 4}
    assert "ok" in metadata.apply(1, 1, move)
    assert [p.range_id for p in plan(metadata, alive, {}, {3: DEAD})] == [1]
    metadata = cluster(6, ranges=5)
    leaves = Leave("move", "node 3 is draining")
    assert len(plan(metadata, set(metadata.nodes), {}, {3: leaves})) == 2
    assert len(plan(metadata, died(metadata, 3), {}, {3: DEAD})) == OPERATIONS_MAX


def test_repairs_come_before_growth() -> None:
    metadata = cluster(4, ranges=6)
    for range_id in range(1, 6):
        metadata.ranges[range_id] = replace(metadata.ranges[range_id], members=(1,))
    metadata.ranges[6] = replace(metadata.ranges[6], members=(1, 2, 3))
    planned = plan(metadata, died(metadata, 3), {}, {3: DEAD})
    assert [(p.kind, p.range_id) for p in planned][:2] == [("repair", 6), ("expand", 1)]


def test_new_logs_and_growth_use_as_many_zones_as_there_are() -> None:
    metadata = cluster(7, zones="aaaaabc")
    applied(metadata, "create_log", name="b", ranges=5)
    log = metadata.log_named("b")
    homes = [range_.members for range_ in metadata.ranges_of(log.log_id)]
    assert all({6, 7} < set(each) for each in homes), homes
    assert Counter(node for each in homes for node in each if node < 6) == dict.fromkeys(
        range(1, 6), 1
    )
    metadata.ranges[1] = replace(metadata.ranges[1], members=(6,))
    metadata.controller = replace(metadata.controller, members=(7,))
    (grown,) = plan(metadata, set(metadata.nodes), {})
    assert {6, 7} < set(grown.members)
    own = plan_controller(metadata, set(metadata.nodes), {})
    assert own is not None
    assert own.members == (1, 6, 7)


@pytest.mark.parametrize(
    ("present", "taken"),
    [((), [1, 3, 2]), ((1,), [3, 2, 4]), ((1, 2), [3, 4]), ((1, 2, 3, 4), [])],
)
def test_planned_nodes_count_and_may_be_too_few(present: tuple[int, ...], taken: list[int]) -> None:
    zones = {1: "a", 2: "a", 3: "b", 4: "a"}
    nodes = [NodeRecord(node, "", "", zone, 1, 1, "ACTIVE") for node, zone in zones.items()]
    homes = Homes(nodes, {})
    assert homes.take(3, present, [zones[node] for node in present]) == taken
    assert len(homes) == 4
    assert len(homes.take(9)) == 4


# When.


def dead_since(metadata: Metadata, silent_s: float, *, node: int = 3) -> Facts:
    """The node is DEAD, and was not heard for so long."""
    facts = Facts()
    facts.heard = dict.fromkeys(died(metadata, node), NOW)
    facts.heard[node] = NOW - silent_s
    return facts


@pytest.mark.parametrize(
    ("silent_s", "leads_s", "after_s", "leaves"),
    [
        (LONG_S, 9_999.0, REPAIR_S, True),
        (LONG_S - 1, 9_999.0, REPAIR_S, False),
        (LONG_S, LONG_S - 1, REPAIR_S, False),  # x2.23: the clock starts anew with the leader
        (LONG_S, LONG_S, REPAIR_S, True),
        (1e9, 1e9, 0.0, False),  # never
        (DEAD_AFTER_S + 1.5, 9_999.0, 1.5, True),
    ],
)
def test_x2_23_the_dead_are_replaced_after_a_while_by_the_leaders_own_clock(
    silent_s: float, leads_s: float, after_s: float, leaves: bool
) -> None:
    metadata = cluster(4)
    facts = dead_since(metadata, silent_s)
    assert list(leaving(metadata, facts, NOW, leads_s, after_s)) == [3] * leaves
    steps = next_steps(metadata, facts, NOW, leads_s, after_s)
    assert [step["op"] for step in steps] == ["seal_controller"] * leaves
    if leaves:
        assert steps[0]["members"] == [1, 2, 4]
        assert steps[0]["reason"] == f"node 3 has been DEAD for {after_s:g} s"


def test_one_that_was_never_heard_by_this_leader_is_dead_as_long_as_it_leads() -> None:
    metadata = cluster(4)
    facts = dead_since(metadata, 0.0)
    del facts.heard[3]
    assert not leaving(metadata, facts, NOW, LONG_S - 1, REPAIR_S)
    assert leaving(metadata, facts, NOW, LONG_S, REPAIR_S)


def test_one_that_is_silent_and_not_yet_DEAD_keeps_its_replicas() -> None:
    metadata = cluster(4)
    facts = dead_since(metadata, LONG_S)
    applied(metadata, "node_state", node=3, state="ACTIVE")
    (step,) = next_steps(metadata, facts, NOW, 9_999.0, REPAIR_S)
    assert (step["op"], step["state"]) == ("node_state", "DEAD")
    assert leaving(metadata, facts, NOW, 9_999.0, REPAIR_S) == {}


def planned(steps: list[dict[str, Any]]) -> Mapping[int, list[int]]:
    """Members by range."""
    assert all(step["op"] == "plan" for step in steps), steps
    return {step["outputs"][0]["range"]: step["outputs"][0]["members"] for step in steps}


def test_a_repair_that_was_given_up_is_tried_again_a_while_later() -> None:
    metadata = cluster(4)
    metadata.controller = replace(metadata.controller, members=(1, 2, 4))
    facts = dead_since(metadata, LONG_S)
    (step,) = next_steps(metadata, facts, NOW, 9_999.0, REPAIR_S)
    assert (step["kind"], step["reason"]) == ("repair", "node 3 has been DEAD for 300 s")
    assert planned([step]) == {1: [1, 2, 4]}
    soon, later = NOW + 1.0, NOW + REPAIR_AGAIN_AFTER_S
    quiet = timers(metadata, facts, soon, 9_999.0, REPAIR_S)
    assert next_steps(metadata, facts, soon, 9_999.0, REPAIR_S) == []
    facts.heard = dict.fromkeys((1, 2, 4), later)
    facts.heard[3] = 0.0
    # Nothing but time has passed, and who drives the steps notices it.
    assert timers(metadata, facts, later, 9_999.0, REPAIR_S) != quiet
    assert planned(next_steps(metadata, facts, later, 9_999.0, REPAIR_S)) == {1: [1, 2, 4]}


def test_time_alone_makes_a_repair_due_and_is_noticed() -> None:
    metadata = cluster(4)
    facts = dead_since(metadata, DEAD_AFTER_S)
    seen = {
        timers(metadata, facts, NOW + passed, 9_999.0, REPAIR_S) for passed in (0.5, 1.0, 2.0, 2.5)
    }
    assert len(seen) == 1
    facts.heard = {node: at + REPAIR_S for node, at in facts.heard.items() if node != 3}
    facts.heard[3] = NOW - DEAD_AFTER_S
    assert timers(metadata, facts, NOW + REPAIR_S, 9_999.0, REPAIR_S) not in seen
