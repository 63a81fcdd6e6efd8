"""What the controller's leader commits next, from an operation and what was reported of it."""

from dataclasses import replace

from lognode.partitions.change import (
    ABORT_AFTER_S,
    LEAVE_OUT_AFTER_S,
    next_commands,
)
from lognode.partitions.facts import OperationFacts
from lognode.partitions.model import Lineage, Operation, Output, Span

GROWS = Operation(5, "expand", ((7, 1),), (Output(7, 2, Span(b"", None), (1, 2, 3)),), "PLANNED")
ABORT = [{"op": "abort", "operation": 5}]


def test_a_planned_operation_waits_for_those_who_copy() -> None:
    facts = OperationFacts(copied={1, 2})
    assert next_commands(GROWS, facts, 1.0, {1, 2, 3}, [1]) == []
    facts.copied.add(3)
    assert next_commands(GROWS, facts, 1.0, {1, 2, 3}, [1]) == [{"op": "sealing", "operation": 5}]


def test_x25_a_range_is_not_kept_locked_for_a_dead_node() -> None:
    """It was for a minute, in which members flushed for the copy twice a second."""
    assert next_commands(GROWS, OperationFacts(copied={1, 2}), 1.0, {1, 2}, [1]) == ABORT


def test_x25_a_copy_that_takes_too_long_is_given_up() -> None:
    facts = OperationFacts(copied={1, 2}, planned_at=1.0)
    assert next_commands(GROWS, facts, 1.5 + ABORT_AFTER_S, {1, 2, 3}, [1]) == ABORT


ENDED = Lineage(7, 1, 40, 3, 100, 5, b"hash")
WRONG = ENDED._replace(state_hash=b"other")
SEALING = replace(GROWS, phase="SEALING", outputs=(Output(7, 2, Span(b"", None), (1, 2, 3, 4, 5)),))


def decided(prepared: dict[int, Lineage], *, old: tuple[int, ...], now: float) -> object:
    """(lineage, members) of what is decided then; None while nothing is."""
    facts = OperationFacts(prepared=prepared, sealed_at=0.0)
    for command in next_commands(SEALING, facts, now, set(range(1, 6)), old):
        assert command["op"] == "decide"
        return Lineage(*command["lineage"][0]), command["members"]
    return None


def test_x7_all_members_of_the_output_prepared() -> None:
    prepared = dict.fromkeys(range(1, 6), ENDED)
    assert decided(prepared, old=(1, 2, 3), now=0.1) == (ENDED, [[1, 2, 3, 4, 5]])
    del prepared[5]
    assert decided(prepared, old=(1, 2, 3), now=LEAVE_OUT_AFTER_S) is None


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
