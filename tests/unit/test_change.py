"""What the controller's leader commits next, from an operation and what was reported of it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from lognode.partitions import change
from lognode.partitions.change import (
    ABORT_AFTER_S,
    DONE_AFTER_S,
    LEAVE_OUT_AFTER_S,
    REPAIR_AGAIN_AFTER_S,
    next_steps,
)
from lognode.partitions.facts import Facts, OperationFacts
from lognode.partitions.metadata import Metadata
from lognode.partitions.model import Lineage, Operation, Output, Span

GROWS = Operation(5, "expand", ((7, 1),), (Output(7, 2, Span(b"", None), (1, 2, 3)),), "PLANNED")
MOVES = replace(GROWS, kind="move")
"""Of nodes 1, 2 and 4; 3 takes the place of 4."""
ABORT = [{"op": "abort", "operation": 5}]


def next_commands(
    operation: Operation, facts: OperationFacts, now: float, active: set[int], old: Sequence[int]
) -> list[dict[str, Any]]:
    """Of an operation on range 7, at its generation 1, with these members."""
    return change.next_commands(operation, facts, now, active, {(7, 1): old})


each_kind = pytest.mark.parametrize(
    ("operation", "old"), [(GROWS, [1]), (MOVES, [1, 2, 4])], ids=["expand", "move"]
)


@each_kind
def test_a_planned_operation_waits_for_the_copying_nodes(
    operation: Operation, old: list[int]
) -> None:
    facts = OperationFacts(copied={1, 2})
    nodes = {1, 2, 3, 4}
    assert next_commands(operation, facts, 1.0, nodes, old) == []
    facts.copied.add(3)
    assert next_commands(operation, facts, 1.0, nodes, old) == [{"op": "sealing", "operation": 5}]


@each_kind
def test_x25_a_range_is_not_kept_locked_for_a_dead_node(
    operation: Operation, old: list[int]
) -> None:
    """It was for a minute, in which members flushed for the copy twice a second."""
    facts = OperationFacts(copied={1, 2})
    assert next_commands(operation, facts, 1.0, {1, 2, 4}, old) == ABORT


@each_kind
def test_x25_a_copy_that_takes_too_long_is_given_up(operation: Operation, old: list[int]) -> None:
    facts = OperationFacts(copied={1, 2}, planned_at=1.0)
    late = 1.5 + ABORT_AFTER_S
    assert next_commands(operation, facts, late, {1, 2, 3, 4}, old) == ABORT


def test_a_replica_moves_away_from_a_dead_node() -> None:
    """Who leaves need not copy, seal or say anything."""
    facts = OperationFacts(copied={1, 2, 3})
    alive = {1, 2, 3}
    sealing = [{"op": "sealing", "operation": 5}]
    assert next_commands(MOVES, facts, 1.0, alive, [1, 2, 4]) == sealing
    facts.prepared = dict.fromkeys((1, 2, 3), AT_END)
    facts.sealed = dict.fromkeys((1, 2), AT_END)
    (decide,) = next_commands(replace(MOVES, phase="SEALING"), facts, 1.0, alive, [1, 2, 4])
    assert decide["members"] == [[1, 2, 3]]


DIES = {
    "PLANNED": "abort",
    "SEALING": "decide",
    "DECIDED": "done",
}


@pytest.mark.parametrize("phase", DIES)
def test_x7_x25_the_new_member_dies_in_any_phase_of_a_move_and_it_ends(phase: str) -> None:
    """While it is planned it is given up; after that it goes forwards, with whom there is."""
    operation = replace(MOVES, phase=phase, installed=(1, 2) if phase == "DECIDED" else ())
    facts = OperationFacts(copied={1, 2}, prepared=dict.fromkeys((1, 2, 4), AT_END))
    facts.sealed = dict(facts.prepared)
    (step,) = next_commands(operation, facts, LEAVE_OUT_AFTER_S + 0.1, {1, 2, 4}, [1, 2, 4])
    assert step["op"] == DIES[phase]
    if phase == "SEALING":
        assert step["members"] == [[1, 2, 4]], "the old members go on"


@pytest.mark.parametrize("phase", DIES)
def test_a_new_controller_leader_goes_on_with_a_move_from_its_record(phase: str) -> None:
    """What was reported to the last one is told again."""
    operation = replace(MOVES, phase=phase)
    nothing = OperationFacts(planned_at=100.0, sealed_at=100.0)
    assert next_commands(operation, nothing, 100.0, {1, 2, 3, 4}, [1, 2, 4]) == []
    told = OperationFacts(
        copied={1, 2, 3}, prepared=dict.fromkeys((1, 2, 3, 4), AT_END),
        sealed=dict.fromkeys((1, 2, 4), AT_END), installed={1, 2, 3},
    )  # fmt: skip
    steps = next_commands(operation, told, 100.0, {1, 2, 3, 4}, [1, 2, 4])
    expected = {"PLANNED": ["sealing"], "SEALING": ["decide"], "DECIDED": ["installed"] * 3}
    assert [step["op"] for step in steps] == expected[phase]


ENDED = Lineage(7, 1, 40, 3, 100, 5, b"hash")
AT_END = {(7, 1): ENDED}
WRONG = ENDED._replace(state_hash=b"other")
SEALING = replace(GROWS, phase="SEALING", outputs=(Output(7, 2, Span(b"", None), (1, 2, 3, 4, 5)),))


def decided(
    prepared: dict[int, Lineage], *, old: tuple[int, ...], now: float, fetched: tuple[int, ...] = ()
) -> object:
    """(lineage, members) of what is decided then; None while nothing is. Old members but those
    of `fetched` came to that end themselves."""
    told = {node: {(7, 1): end} for node, end in prepared.items()}
    own = {node: ends for node, ends in told.items() if node in old and node not in fetched}
    facts = OperationFacts(prepared=told, sealed=own, sealed_at=0.0)
    for command in next_commands(SEALING, facts, now, set(range(1, 6)), old):
        assert command["op"] == "decide"
        return Lineage(*command["lineage"][0]), command["members"]
    return None


def test_x7_all_members_of_the_output_prepared() -> None:
    prepared = dict.fromkeys(range(1, 6), ENDED)
    assert decided(prepared, old=(1, 2, 3), now=0.1) == (ENDED, [[1, 2, 3, 4, 5]])
    del prepared[5]
    assert decided(prepared, old=(1, 2, 3), now=LEAVE_OUT_AFTER_S) is None


def test_x7_an_old_member_that_is_slow_is_not_waited_for() -> None:
    """A repair kept the range sealed for two seconds while the damaged member fetched the tail."""
    assert decided({1: ENDED, 2: ENDED, 4: ENDED, 5: ENDED}, old=(1, 2, 3), now=0.1) == (
        ENDED, [[1, 2, 3, 4, 5]],
    )  # fmt: skip
    facts = OperationFacts(prepared={1: AT_END, 2: AT_END}, sealed={1: AT_END, 2: AT_END})
    (decide,) = next_commands(replace(REPAIR, phase="SEALING"), facts, 0.0, {1, 2, 3}, (1, 2, 3))
    assert decide["members"] == [[1, 2, 3]]
    moved = replace(SEALING, outputs=(Output(7, 2, Span(b"", None), (3, 4, 5)),))
    facts.prepared[4] = facts.prepared[5] = AT_END
    (decide,) = next_commands(moved, facts, 0.0, {1, 2, 3, 4, 5}, (1, 2, 3))
    assert decide["members"] == [[3, 4, 5]]
    del facts.prepared[5]
    assert next_commands(moved, facts, 0.0, {1, 2, 3, 4, 5}, (1, 2, 3)) == []


def test_x7_the_old_members_go_on_when_a_new_one_takes_too_long() -> None:
    late = LEAVE_OUT_AFTER_S + 0.1
    prepared = {1: ENDED, 2: ENDED, 4: ENDED}
    assert decided(prepared, old=(1, 2, 3), now=late) == (ENDED, [[1, 2, 3]])
    assert decided({1: ENDED}, old=(1,), now=late) == (ENDED, [[1]])


def test_x6_nothing_is_decided_without_most_of_the_old_members() -> None:
    """One alone was believed, whatever its hash, and became the only member."""
    late = LEAVE_OUT_AFTER_S + 0.1
    assert decided({3: WRONG, 4: WRONG, 5: WRONG}, old=(1, 2, 3), now=late) is None
    assert decided({1: ENDED, 3: WRONG}, old=(1, 2, 3), now=late) is None
    assert decided({1: ENDED, 3: WRONG, 2: ENDED}, old=(1, 2, 3), now=late) == (
        ENDED, [[1, 2, 3]],
    )  # fmt: skip


def test_x2_a_base_fetched_by_a_damaged_member_does_not_count_as_held() -> None:
    """It repeats one member's state: that one alone would have been believed (x6)."""
    late = LEAVE_OUT_AFTER_S + 0.1
    prepared = {1: WRONG, 3: WRONG}
    assert decided(prepared, old=(1, 2, 3), now=late, fetched=(3,)) is None
    prepared = {1: ENDED, 2: ENDED, 3: ENDED}
    assert decided(prepared, old=(1, 2, 3), now=late, fetched=(3,)) == (ENDED, [[1, 2, 3]])


REPAIR = Operation(6, "repair", ((7, 1),), (Output(7, 2, Span(b"", None), (1, 2, 3)),), "PLANNED")


def test_a_dead_old_member_does_not_keep_a_repair_from_the_seal() -> None:
    """Nor from being planned at all: with five members, one damaged and one dead, three go on."""
    facts = OperationFacts(copied={1, 3})
    old = (1, 2, 3)
    assert next_commands(REPAIR, facts, 1.0, {1, 2, 3}, old) == []
    sealing = [{"op": "sealing", "operation": 6}]
    assert next_commands(REPAIR, facts, 1.0, {1, 3}, old) == sealing
    facts.copied.discard(3)  # one that lives is waited for
    assert next_commands(REPAIR, facts, 1.0, {1, 3}, old) == []


def test_a_dead_member_does_not_keep_an_operation_open() -> None:
    decided = replace(REPAIR, phase="DECIDED", installed=(1,))
    done = [{"op": "done", "operation": 6}]
    facts = OperationFacts(decided_at=1.0)
    assert next_commands(decided, facts, 999.0, {1, 3}, (1, 2, 3)) == []  # no majority
    decided = replace(decided, installed=(1, 3))
    assert next_commands(decided, facts, 2.0, {1, 3}, (1, 2, 3)) == done
    # One that lives has a minute: it may be fetching what it needs.
    assert next_commands(decided, facts, 2.0, {1, 2, 3}, (1, 2, 3)) == []
    assert next_commands(decided, facts, 2.0 + DONE_AFTER_S, {1, 2, 3}, (1, 2, 3)) == done


def cluster(replicas: int = 3) -> tuple[Metadata, Facts]:
    """Three nodes, all heard at 100 s, a range and the controller on all."""
    metadata, facts = Metadata(), Facts()
    first: list[dict[str, Any]] = [
        {"op": "found", "cluster": "c", "node": 1},
        *({"op": "register", "incarnation": node, "boot": 1} for node in (1, 2, 3)),
        {"op": "create_log", "name": "orders", "replicas": replicas},
    ]
    for command in first:
        assert "ok" in metadata.apply(1, 1, command)
    metadata.controller = replace(metadata.controller, members=(1, 2, 3))
    facts.heard = dict.fromkeys((1, 2, 3), 100.0)
    return metadata, facts


def test_x2_a_damaged_replica_is_repaired_with_the_same_members_and_says_why() -> None:
    metadata, facts = cluster()
    facts.damaged = {3: [(1, 1, "wal-1 is damaged at byte 7")]}
    assert next_steps(metadata, facts, 100.0, leads_for_s=1.0) == []  # x2.23
    (step,) = next_steps(metadata, facts, 100.0, leads_for_s=100.0)
    assert (step["op"], step["kind"], step["inputs"]) == ("plan", "repair", [[1, 1]])
    assert step["outputs"] == [{"range": 1, "members": [1, 2, 3]}]
    assert step["reason"] == "the replica of node 3: wal-1 is damaged at byte 7"


def test_x2_a_member_that_breaks_in_the_new_generation_keeps_no_operation_open() -> None:
    """It had begun, and its disk was lost before it could say so: it never will."""
    metadata, facts = cluster()
    end = [1, 1, 40, 3, 100, 5, b"hash"]
    outputs = [{"range": 1, "members": [1, 2, 3]}]
    first: list[dict[str, Any]] = [
        {"op": "plan", "kind": "repair", "inputs": [[1, 1]], "outputs": outputs},
        {"op": "sealing", "operation": 1},
        {"op": "decide", "operation": 1, "lineage": [end], "members": [[1, 2, 3]]},
        {"op": "installed", "operation": 1, "node": 1},
    ]
    for command in first:
        assert "ok" in metadata.apply(1, 1, command)
    facts.damaged = {3: [(1, 2, "its log is not in the WAL")]}
    assert next_steps(metadata, facts, 100.0, leads_for_s=100.0) == []  # no majority holds it
    assert "ok" in metadata.apply(1, 1, {"op": "installed", "operation": 1, "node": 2})
    (step,) = next_steps(metadata, facts, 100.0, leads_for_s=100.0)
    assert step == {"op": "done", "operation": 1}
    facts.damaged = {3: [(1, 1, "the generation before")]}
    assert next_steps(metadata, facts, 100.0, leads_for_s=100.0) == []


def test_x2_a_repair_takes_most_members_sound_and_the_damaged_one_alive() -> None:
    metadata, facts = cluster()
    facts.damaged = {3: [(1, 1, "bad")], 2: [(1, 1, "bad")]}
    assert next_steps(metadata, facts, 100.0, leads_for_s=100.0) == []
    facts.damaged = {3: [(1, 1, "bad")]}
    for gone in (2, 3):
        facts.heard = {node: 100.0 for node in (1, 2, 3) if node != gone}
        steps = next_steps(metadata, facts, 100.0, leads_for_s=5.0)
        assert steps == [], f"planned without node {gone}"
    facts.heard = dict.fromkeys((1, 2, 3), 100.0)
    facts.damaged = {3: [(1, 2, "of another generation"), (9, 1, "of a range that is gone")]}
    assert next_steps(metadata, facts, 100.0, leads_for_s=100.0) == []


def test_a_range_that_breaks_again_and_again_is_repaired_now_and_then() -> None:
    metadata, facts = cluster()
    facts.damaged = {3: [(1, 1, "bad")]}
    assert next_steps(metadata, facts, 100.0, leads_for_s=100.0)
    assert not next_steps(metadata, facts, 102.0, leads_for_s=100.0)
    facts.heard = dict.fromkeys((1, 2, 3), 102.0 + REPAIR_AGAIN_AFTER_S)
    assert next_steps(metadata, facts, 102.0 + REPAIR_AGAIN_AFTER_S, leads_for_s=100.0)


def test_x2_the_controllers_last_record_names_the_same_members_when_one_is_damaged() -> None:
    metadata, facts = cluster()
    facts.damaged = {2: [(0, 1, "its log is not in the WAL"), (1, 1, "its log is not there")]}
    seal = {"op": "seal_controller", "members": [1, 2, 3], "kind": "repair",
            "reason": "the replica of node 2: its log is not in the WAL"}  # fmt: skip
    assert next_steps(metadata, facts, 100.0, leads_for_s=100.0) == [seal]
    # An operation that is under way may wait for that very member.
    assert "ok" in metadata.apply(1, 1, {"op": "plan", "kind": "repair", "inputs": [[1, 1]],
                                  "outputs": [{"range": 1, "members": [1, 2, 3]}]})  # fmt: skip
    assert next_steps(metadata, facts, 100.0, leads_for_s=100.0) == [seal]
    assert "ok" in metadata.apply(9, 3, seal)
    assert (metadata.controller.generation, metadata.controller.members) == (2, (1, 2, 3))
    metadata.begin_generation()
    assert seal not in next_steps(metadata, facts, 100.0, leads_for_s=100.0)


ONE, OTHER = (bytes([1]) + index + digest for index, digest in ((bytes(8), b"1"), (bytes(8), b"2")))
ELSEWHERE = bytes([1]) + bytes(7) + b"\x09" + b"3"
"""Of a member that was upgraded behind entry 9: nobody can compare it."""


@pytest.mark.parametrize(
    ("told", "effects"),
    [
        ({1: ONE, 2: ONE, 3: ONE}, ONE),
        ({1: ONE, 2: ONE, 3: OTHER}, ONE),
        ({1: OTHER, 2: ONE, 3: ONE}, ONE),
        ({1: ONE, 2: ONE}, ONE),
        ({1: ONE, 2: OTHER}, None),  # the third one knows
        ({1: b"", 2: b"", 3: b""}, b""),
        ({1: b"", 2: ONE, 3: b""}, ONE),
        ({1: b"", 2: ELSEWHERE, 3: ONE}, ELSEWHERE),
        ({1: b"", 2: OTHER}, OTHER),
        ({1: b"", 2: ONE, 3: OTHER}, b""),  # nobody can tell which one is wrong
        ({1: ELSEWHERE, 2: ONE, 3: OTHER}, b""),
    ],
)
def test_S12_x6_most_members_say_what_the_entries_did(
    told: dict[int, bytes], effects: bytes | None
) -> None:
    prepared = dict.fromkeys(told, AT_END)
    facts = OperationFacts(prepared=prepared, sealed=dict(prepared))
    facts.effects = {node: {(7, 1): each} for node, each in told.items()}
    operation = replace(SEALING, outputs=(Output(7, 2, Span(b"", None), (1, 2, 3)),))
    steps = next_commands(operation, facts, 0.1, {1, 2, 3}, (1, 2, 3))
    if effects is None:
        assert steps == []
    else:
        (step,) = steps
        assert step.get("effects", [b""]) == [effects]


def test_S12_x6_a_member_whose_entries_did_something_else_holds_nothing() -> None:
    facts = OperationFacts(prepared=dict.fromkeys((1, 2, 3, 4), AT_END))
    facts.sealed = dict(facts.prepared)
    del facts.sealed[4]
    facts.effects = {node: {(7, 1): OTHER if node == 4 else ONE} for node in (1, 2, 3, 4)}
    operation = replace(SEALING, outputs=(Output(7, 2, Span(b"", None), (1, 2, 4)),))
    assert next_commands(operation, facts, 0.1, {1, 2, 3, 4}, (1, 2, 3)) == []
    facts.effects[4] = {(7, 1): ONE}
    (step,) = next_commands(operation, facts, 0.1, {1, 2, 3, 4}, (1, 2, 3))
    assert (step["members"], step["effects"]) == ([[1, 2, 4]], [ONE])
