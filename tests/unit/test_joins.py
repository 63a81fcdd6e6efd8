"""Merges: what is planned and refused, and how one range comes of two."""

import re
from dataclasses import replace
from typing import Any

import pytest
from pure_nodes import PHASES, VICTIMS, Nodes, carry_out, cluster, do, end_of

from lognode.partitions import change, commands
from lognode.partitions.change import LEAVE_OUT_AFTER_S
from lognode.partitions.duties import Begin, Damage, Held, Local, Tell, duties, name_of
from lognode.partitions.facts import INSTALLED, Facts, OperationFacts
from lognode.partitions.lineage import Gid
from lognode.partitions.locks import OPERATIONS_MAX
from lognode.partitions.metadata import Metadata
from lognode.partitions.model import Descriptor, Lineage, Operation, Span

LEFT, RIGHT, MERGED = (1, 1), (2, 1), (1, 2)
SEALED = Held(
    leads=False, leader=None, members=(1, 2, 3), sealed=True, end=None, memtable_bytes=0,
    base_wanted=False,
)  # fmt: skip


def two_ranges(**log: Any) -> Metadata:
    metadata: Metadata = cluster(split_at=[b"m"], **log)
    return metadata


def merge(metadata: Metadata, at: object, log: str = "orders") -> dict[str, Any]:
    before = metadata.image()
    answer = metadata.apply(1, 1, {"op": commands.MERGE, "log": log, "at": at})
    assert "ok" in answer or metadata.image() == before, "a refused command changed something"
    return answer


def decided(metadata: Metadata) -> Metadata:
    assert "ok" in merge(metadata, b"m")
    do(metadata, op=commands.SEALING, operation=1)
    ends = [list(end_of(LEFT)), list(end_of(RIGHT))]
    do(metadata, op=commands.DECIDE, operation=1, lineage=ends, members=[[1, 2, 3]])
    return metadata


def test_a_merge_keeps_the_left_range_for_all_keys() -> None:
    metadata = cluster(split_at=[b"d", b"m"])
    answer = merge(metadata, b"m")["ok"]
    assert answer == {"operation": 1, "range": 2, "generation": 2, "gone_range": 3,
                      "version": metadata.version}  # fmt: skip
    (operation,) = metadata.operations.values()
    assert (operation.kind, operation.phase) == ("merge", "PLANNED")
    assert operation.reason == "an operator merges it with range 3 at key 'm'"
    assert operation.inputs == ((2, 1), (3, 1))
    do(metadata, op=commands.SEALING, operation=1)
    ends = [[2, 1, 40, 3, 100, 5, b"hash"], [3, 1, 9, 1, 700, 9, b"other"]]
    do(metadata, op=commands.DECIDE, operation=1, lineage=ends, members=[[1, 2, 3]])
    merged = metadata.ranges[2]
    assert (merged.generation, merged.span, merged.members) == (2, Span(b"d", None), (1, 2, 3))
    assert [list(parent) for parent in merged.lineage] == ends
    assert merged.spans_of_parents() == [Span(b"d", b"m"), Span(b"m", None)]
    assert [range_.range_id for range_ in metadata.ranges_of(1)] == [1, 2]
    assert [range_.range_id for range_ in metadata.descendants(3)] == [2]
    assert Descriptor.from_wire(merged.to_wire()) == merged
    for node in (1, 2, 3):
        do(metadata, op=commands.INSTALLED, operation=1, node=node, at_ms=7)
    assert not metadata.operations
    assert metadata.is_done(2, 1)
    assert metadata.is_done(3, 1)
    assert metadata.last_operations[2].kind == "merge"
    assert 3 not in metadata.last_operations
    assert Metadata.from_image(metadata.image()).image() == metadata.image()


def test_an_image_of_a_merge_under_way_says_what_the_state_says() -> None:
    """Seed 144: a controller that started again in between had another state than its peers."""
    metadata = two_ranges()
    metadata.ranges[2] = replace(metadata.ranges[2], generation=3)
    metadata.done[2] = 2
    assert "ok" in merge(metadata, b"m")
    do(metadata, op=commands.SEALING, operation=1)
    ends = [list(end_of(LEFT)), list(end_of((2, 3)))]
    do(metadata, op=commands.DECIDE, operation=1, lineage=ends, members=[[1, 2, 3]])
    assert 2 not in metadata.ranges
    image = metadata.image()
    assert Metadata.from_image(image).image() == image
    for node in (1, 2, 3):
        do(metadata, op=commands.INSTALLED, operation=1, node=node, at_ms=7)
    assert metadata.done == {1: 1}


def test_x26_a_merged_range_is_above_both_of_its_parents() -> None:
    metadata = two_ranges()
    metadata.ranges[2] = replace(metadata.ranges[2], generation=7)
    assert merge(metadata, b"m")["ok"]["generation"] == 8


@pytest.mark.parametrize(
    ("log", "at", "code", "told"),
    [
        ("none", b"m", "LOG_NOT_FOUND", "log 'none' does not exist"),
        ("orders", b"k", "INVALID_ARGUMENT", "no two ranges of the log meet at key 'k'; the "
         "ranges meet at 'd', 'm': give the first key of the right range"),
        ("orders", b"", "INVALID_ARGUMENT", "no two ranges of the log meet at key ''"),
        ("whole", b"m", "INVALID_ARGUMENT", "meet at key 'm'; the log has only one range"),
        ("orders", "m", "INVALID_ARGUMENT", "at is 'm'; give a key"),
        ("orders", None, "INVALID_ARGUMENT", "at is None; give a key"),
    ],
)  # fmt: skip
def test_a_merge_that_cannot_be_is_refused_and_says_why(
    log: str, at: object, code: str, told: str
) -> None:
    metadata = cluster(split_at=[b"d", b"m"])
    do(metadata, op=commands.CREATE_LOG, name="whole", replicas=3)
    error = merge(metadata, at, log)["error"]
    assert error["code"] == code
    assert re.search(told, error["message"]), error["message"]


def test_ranges_on_different_nodes_are_not_merged() -> None:
    metadata = two_ranges(nodes=4)
    metadata.ranges[1] = replace(metadata.ranges[1], members=(1, 2, 3))
    metadata.ranges[2] = replace(metadata.ranges[2], members=(1, 2, 4))
    error = merge(metadata, b"m")["error"]
    assert error["code"] == "CONFLICT"
    assert "range 1 is on nodes 1, 2, 3, range 2 on 1, 2, 4; move" in error["message"]


@pytest.mark.parametrize("at", [b"d", b"m"])
def test_neither_neighbour_may_be_in_another_operation(at: bytes) -> None:
    metadata = cluster(split_at=[b"d", b"m", b"s"])
    do(metadata, op=commands.SPLIT, log="orders", at=b"f")
    error = merge(metadata, at)["error"]
    assert (error["code"], error["fields"]["range"]) == ("OPERATION_IN_PROGRESS", 2)
    assert "ok" in merge(metadata, b"s")
    for _ in range(OPERATIONS_MAX - 2):
        do(metadata, op=commands.CREATE_LOG, name=f"log{metadata.version}", split_at=[b"m"])
        assert "ok" in merge(metadata, b"m", f"log{metadata.version - 1}")
    do(metadata, op=commands.CREATE_LOG, name="last", split_at=[b"m"])
    assert merge(metadata, b"m", "last")["error"]["fields"]["limit"] == "operations_max"


# How it is done.


def ended(gid: Gid, **what: Any) -> Held:
    return SEALED._replace(end=end_of(gid), **what)


def test_a_merged_range_begins_from_both_parents_and_the_left_leader_leads() -> None:
    metadata = decided(two_ranges())
    range_ = metadata.ranges[1]
    both = {LEFT: ended(LEFT), RIGHT: ended(RIGHT, leads=True)}
    local = Local(node_id=1, replicas=both, marks={1: 1, 2: 1})
    assert duties(metadata, local) == [Begin(range_, False, ("own", "own"))]
    both[LEFT] = ended(LEFT, leads=True)
    assert duties(metadata, local) == [Begin(range_, True, ("own", "own"))]
    # What is not here is fetched, or was; the other one is not.
    del both[RIGHT]
    assert duties(metadata, local) == [Begin(range_, True, ("own", "peers"))]
    local = replace(local, prepared={(1, RIGHT): end_of(RIGHT)})
    assert duties(metadata, local) == [Begin(range_, True, ("own", "prepared"))]
    begun = replace(local, replicas={**both, MERGED: SEALED}, marks={1: 2, 2: 1})
    assert duties(metadata, begun) == [Tell(1, INSTALLED)]


def test_the_ends_of_both_parents_are_told() -> None:
    """The second one had the first one's name, and waited for it for ever."""
    metadata = two_ranges()
    assert "ok" in merge(metadata, b"m")
    do(metadata, op=commands.SEALING, operation=1)
    local = Local(node_id=1, replicas={LEFT: ended(LEFT), RIGHT: ended(RIGHT)})
    found = duties(metadata, local)
    assert found == [Tell(1, "sealed", end_of(LEFT)), Tell(1, "sealed", end_of(RIGHT))]
    assert len(set(map(name_of, found))) == 2


def test_x2_17_both_parents_go_when_the_merge_is_done_and_not_before_this_node_has_begun() -> None:
    metadata = decided(two_ranges())
    both = {LEFT: ended(LEFT), RIGHT: ended(RIGHT)}
    local = Local(node_id=1, replicas={**both, MERGED: SEALED}, marks={1: 2, 2: 1})
    assert [type(duty) for duty in duties(metadata, local)] == [Tell]
    for node in (2, 3):
        do(metadata, op=commands.INSTALLED, operation=1, node=node)
    do(metadata, op=commands.DONE, operation=1)
    (retire,) = duties(metadata, local)
    assert set(retire.gids) == {LEFT, RIGHT}  # type: ignore[union-attr]
    late = Local(node_id=1, replicas=both, marks={1: 1, 2: 1})
    assert [type(duty) for duty in duties(metadata, late)] == [Begin]
    # Where one of them is not here it is nowhere any more: from a later base of the merged range.
    late = Local(node_id=1, replicas={LEFT: ended(LEFT)}, marks={1: 1})
    (begin,) = duties(metadata, late)
    assert begin == Begin(metadata.ranges[1], False, late=True)


def test_x6_a_parent_with_another_hash_is_damaged_and_fetched() -> None:
    metadata = decided(two_ranges())
    wrong = SEALED._replace(end=end_of(RIGHT)._replace(state_hash=b"other"))
    local = Local(node_id=1, replicas={LEFT: ended(LEFT), RIGHT: wrong}, marks={1: 1, 2: 1})
    damage, begin = duties(metadata, local)
    assert isinstance(damage, Damage)
    assert damage.gid == RIGHT
    assert begin == Begin(metadata.ranges[1], False, ("own", "peers"))


@pytest.mark.parametrize("victim", VICTIMS)
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("back", [False, True], ids=["stays away", "comes back"])
def test_a_merge_completes_after_the_death_of_any_node_in_any_phase(
    victim: str, phase: str, back: bool
) -> None:
    nodes = Nodes(two_ranges())
    nodes.look(Facts(), 0.0)
    assert "ok" in merge(nodes.metadata, b"m")
    carry_out(nodes, (LEFT, MERGED), victim=victim, phase=phase, back=back)
    assert [range_.span for range_ in nodes.metadata.ranges_of(1)] == [Span(b"", None)]
    for node in nodes.nodes.keys() - nodes.down:
        assert set(nodes.nodes[node].replicas) == {MERGED}, f"node {node}"
    assert nodes.leader(MERGED) is not None


# One of them cannot be sealed.


def told(*ends: Lineage) -> dict[Gid, Lineage]:
    return {(end.range_id, end.generation): end for end in ends}


def sealing(metadata: Metadata) -> Operation:
    assert "ok" in merge(metadata, b"m")
    do(metadata, op=commands.SEALING, operation=1)
    return metadata.operations[1]


MEMBERS = {LEFT: (1, 2, 3), RIGHT: (1, 2, 3)}


def asked(operation: Operation, facts: OperationFacts, now: float) -> list[str]:
    return [str(each["op"]) for each in change.next_commands(operation, facts, now, {1}, MEMBERS)]


def test_x7_a_merge_is_decided_once_most_members_hold_both_ends() -> None:
    operation = sealing(two_ranges())
    left, right = told(end_of(LEFT)), told(end_of(RIGHT))
    apart = OperationFacts(sealed={1: left, 2: left, 3: right})
    apart.prepared = dict(apart.sealed)
    assert asked(operation, apart, 0.1) == []
    # Both are sealed by a majority, and no majority holds both.
    crossed = OperationFacts(sealed={1: left, 2: left | right, 3: right})
    crossed.prepared = dict(crossed.sealed)
    assert asked(operation, crossed, 0.1) == []
    crossed.prepared[1] = left | right
    assert asked(operation, crossed, 0.1) == ["decide"]
    (decide,) = change.next_commands(operation, crossed, 0.1, {1}, MEMBERS)
    assert decide["lineage"] == [list(end_of(LEFT)), list(end_of(RIGHT))]


def test_x25_two_ranges_go_on_alone_if_only_one_is_sealed_in_time() -> None:
    """The sealed one served nobody until the other had its quorum back."""
    metadata = two_ranges()
    operation = sealing(metadata)
    late = LEAVE_OUT_AFTER_S + 0.1
    left = told(end_of(LEFT))
    assert asked(operation, OperationFacts(), late) == [], "nobody waits for anything"
    facts = OperationFacts(sealed={1: left, 2: left}, prepared={1: left, 2: left})
    assert asked(operation, facts, LEAVE_OUT_AFTER_S - 0.1) == []
    assert asked(operation, facts, late) == ["apart"]
    do(metadata, op=commands.APART, operation=1)
    assert metadata.apply(1, 1, {"op": commands.APART, "operation": 2}).keys() == {"error"}
    alone = list(metadata.operations.values())
    assert [(each.operation_id, each.inputs, each.phase) for each in alone] == [
        (2, (LEFT,), "SEALING"), (3, (RIGHT,), "SEALING"),
    ]  # fmt: skip
    assert [range_.operation for range_ in metadata.ranges_of(1)] == [2, 3]
    do(metadata, op=commands.DECIDE, operation=2, lineage=[list(end_of(LEFT))],
       members=[[1, 2, 3]])  # fmt: skip
    left_now, right_now = metadata.ranges_of(1)
    assert (left_now.generation, left_now.span) == (2, Span(b"", b"m"))
    # A seal that lands late ends in a decision too.
    assert (right_now.generation, right_now.operation) == (1, 3)
    do(metadata, op=commands.DECIDE, operation=3, lineage=[list(end_of(RIGHT))],
       members=[[1, 2, 3]])  # fmt: skip
    assert metadata.ranges[2].generation == 2
    for node in (1, 2, 3):
        do(metadata, op=commands.INSTALLED, operation=2, node=node)
    assert "given up: not both were sealed" in metadata.last_operations[1].reason
