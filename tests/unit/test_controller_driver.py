"""What the controller's leader commits next, from an operation and what was reported of it."""

from lognode.node.controller_driver import ABORT_AFTER_S, next_commands
from lognode.node.facts import OperationFacts
from lognode.partitions.model import Operation, Output, Span

GROWS = Operation(5, "expand", ((7, 1),), (Output(7, 2, Span(b"", None), (1, 2, 3)),), "PLANNED")
ABORT = [{"op": "abort", "operation": 5}]


def test_a_planned_operation_waits_for_those_who_copy() -> None:
    facts = OperationFacts(copied={1, 2})
    assert next_commands(GROWS, facts, 1.0, {1, 2, 3}) == []
    facts.copied.add(3)
    assert next_commands(GROWS, facts, 1.0, {1, 2, 3}) == [{"op": "sealing", "operation": 5}]


def test_x25_a_range_is_not_kept_locked_for_a_dead_node() -> None:
    """It was for a minute, in which members flushed for the copy twice a second."""
    assert next_commands(GROWS, OperationFacts(copied={1, 2}), 1.0, {1, 2}) == ABORT


def test_x25_a_copy_that_takes_too_long_is_given_up() -> None:
    facts = OperationFacts(copied={1, 2}, planned_at=1.0)
    assert next_commands(GROWS, facts, 1.5 + ABORT_AFTER_S, {1, 2, 3}) == ABORT
