"""Apply the commands that change the generations of ranges: planned, requested, and carried on.

Each command is checked first; a refused command raises an error and changes nothing. An operation
holds its ranges from its beginning to its end (docs/design/ranges.md#seal-decide-install):

    PLAN, MOVE, SPLIT, MERGE -> PLANNED --SEALING--> SEALING --DECIDE--> DECIDED
                     RECOVER -----------------------> SEALING, from the start
                                PLANNED --ABORT--> over: the range is as it was
                                           SEALING --APART--> SEALING of each range alone
                                                             DECIDED --INSTALLED, DONE--> over
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from ..client.protocol.errors import InvalidArgument
from . import bounds, commands, joins, locks, moves, reasons, recovery, splits
from .command_fields import key as _key
from .command_fields import number as _number
from .command_fields import numbers as _numbers
from .command_fields import text as _text
from .metadata_state import MetadataState
from .model import Cause, Descriptor, LastOperation, Lineage, Operation, Output
from .reasons import Reason
from .spans import union

REASON_CHARS_MAX = 500
"""The most characters of a reason that are kept."""

Command = dict[str, Any]
Answer = dict[str, Any]


def _plan(state: MetadataState, command: Command) -> Answer:
    inputs = tuple((range_id, generation) for range_id, generation in command["inputs"])
    reason = Reason(_text(command, "reason")[:REASON_CHARS_MAX])
    for range_id, given in inputs:
        range_ = state.range_(range_id)
        locks.check_free(range_)
        if range_.generation != given:
            raise InvalidArgument(
                f"the command is for generation {given} of range {range_id}, which has "
                f"generation {range_.generation}",
                what="generation",
            )
    next_generation = 1 + max(of_input for _, of_input in inputs)  # x26
    outputs = []
    for output in command["outputs"]:
        members = tuple(sorted(output["members"]))
        state.check_members(members)
        range_id = output["range"]
        span = state.range_(range_id).span
        outputs.append(Output(range_id, next_generation, span, members))
    return _begin(state, command["kind"], inputs, tuple(outputs), reason)


def _move(state: MetadataState, command: Command) -> Answer:
    """Plan a move for an operator. A repetition is refused while the first move is under way."""
    range_id, from_node, to_node = (_number(command, name) for name in ("range", "from", "to"))
    range_ = state.descriptor(range_id)
    members = moves.members_after(range_, state.nodes, from_node, to_node)
    locks.check_room(state.operations)
    output = Output(range_id, range_.generation + 1, range_.span, members)
    reason = Reason().then(state.feature_level, Cause(reasons.MOVED, (from_node, to_node)))
    answer = _begin(state, "move", ((range_id, range_.generation),), (output,), reason)
    return {
        **answer,
        "generation": output.generation,
        "members": list(members),
        "version": state.version + 1,  # once this command is applied
    }


def _split(state: MetadataState, command: Command) -> Answer:
    """Plan a split at a key of a log, for a reason or for an operator.

    The split is refused while the range is in another operation.
    """
    log = state.log_named(command["log"])
    log_id, at = log.log_id, _key(command, "at")
    range_ = state.range_at(log_id, at)
    splits.check_key(range_, at)
    if log.policy.kafka_partitions is not None:
        splits.check_bounds([at], log.policy.kafka_partitions)
    locks.check_free(range_)
    locks.check_room(state.operations)
    splits.check_count(state.ranges.count(log_id))
    bounds.check_ranges(state, 1)
    bounds.check_replicas(state, range_.members, len(range_.members))
    outputs = splits.children(range_, at, state.next_id("range"))
    inputs = ((range_.range_id, range_.generation),)
    reason = _given(state, command, Cause(reasons.SPLIT, (at,)))
    return {
        **_begin(state, "split", inputs, outputs, reason),
        "range": range_.range_id,
        "generation": outputs[0].generation,
        "new_range": outputs[1].range_id,
        "version": state.version + 1,  # once this command is applied
    }


def _recover(state: MetadataState, command: Command) -> Answer:
    """Recover a range from a single member, for an operator (see `recovery`).

    An operation that waits for the other members gives way.
    """
    range_ = state.descriptor(_number(command, "range"))
    node, damaged = _number(command, "from"), _numbers(command, "damaged")
    operation = state.operations.get(range_.operation)
    recovery.check(range_, state.nodes, operation, damaged, node)
    if operation is not None and operation.phase == "DECIDED":
        _end(state, operation, 0)
    elif operation is not None:
        _drop(state, operation, 0)
    output = Output(range_.range_id, range_.generation + 1, range_.span, (node,))
    inputs = ((range_.range_id, range_.generation),)
    reason = Reason().then(state.feature_level, Cause(reasons.RECOVERED, (node,)))
    return {
        **_begin(state, recovery.KIND, inputs, (output,), reason, "SEALING"),
        "generation": output.generation,
        "version": state.version + 1,  # once this command is applied
    }


def _merge(state: MetadataState, command: Command) -> Answer:
    """Plan the merge of two neighbours of a log, for a reason or for an operator.

    The merge is refused while either range is in another operation.
    """
    log_id = state.log_named(command["log"]).log_id
    at = _key(command, "at")
    left, right = joins.neighbours(state.ranges_of(log_id), at)
    output = joins.joined(left, right)
    locks.check_room(state.operations)
    inputs = tuple((range_.range_id, range_.generation) for range_ in (left, right))
    reason = _given(state, command, Cause(reasons.MERGED, (right.range_id, at)))
    reason = reason._replace(text=reason.text[:REASON_CHARS_MAX])
    return {
        **_begin(state, "merge", inputs, (output,), reason),
        "range": left.range_id,
        "generation": output.generation,
        "gone_range": right.range_id,
        "version": state.version + 1,  # once this command is applied
    }


def _given(state: MetadataState, command: Command, cause: Cause) -> Reason:
    """Return the reason that the command gives, or else the cause: an operator gives none."""
    text = _text(command, "reason")
    return Reason(text) if text else Reason().then(state.feature_level, cause)


def _further(state: MetadataState, operation: Operation, code: int) -> Reason:
    """Return the operation's reason with one cause more."""
    reason = Reason(operation.reason, operation.causes)
    return reason.then(state.feature_level, Cause(code))


def _begin(
    state: MetadataState,
    kind: str,
    inputs: tuple[tuple[int, int], ...],
    outputs: tuple[Output, ...],
    reason: Reason,
    phase: str = "PLANNED",
) -> Answer:
    spans = [state.ranges[range_id].span for range_id, _ in inputs]
    if union(spans) != union(output.span for output in outputs):
        raise InvalidArgument("the outputs do not cover the inputs exactly", what="outputs")
    operation_id = state.next_id("operation")
    state.operations[operation_id] = Operation(
        operation_id, kind, inputs, outputs, phase, reason.text, causes=reason.causes
    )
    for range_id, _ in inputs:
        _lock(state, range_id, operation_id)
    return {"operation": operation_id}


def _sealing(state: MetadataState, command: Command) -> Answer:
    operation = state.operation(command["operation"], "PLANNED")
    state.operations[operation.operation_id] = replace(operation, phase="SEALING")
    return {}


def _abort(state: MetadataState, command: Command) -> Answer:
    """End an operation that is still PLANNED: in any later phase the input may be sealed (x25)."""
    operation = state.operation(command["operation"], "PLANNED")
    _drop(state, operation, _number(command, "at_ms"))
    return {}


def _drop(state: MetadataState, operation: Operation, at_ms: int) -> None:
    del state.operations[operation.operation_id]
    for range_id, _generation in operation.inputs:
        _lock(state, range_id, 0)
        _remember(state, range_id, operation, "ABORTED", at_ms)


def _apart(state: MetadataState, command: Command) -> Answer:
    """Replace an operation on several ranges by one operation on each range alone.

    Each range that is sealed, or is to be, goes on unchanged in its next generation (x25).
    """
    operation = state.operation(command["operation"], "SEALING")
    if len(operation.inputs) < 2:
        raise InvalidArgument("the operation has one range only", what="operation")
    del state.operations[operation.operation_id]
    reason = _further(state, operation, reasons.GIVEN_UP)
    for gid in operation.inputs:
        range_ = state.ranges[gid[0]]
        alone = Output(range_.range_id, range_.generation + 1, range_.span, range_.members)
        number = _begin(state, operation.kind, (gid,), (alone,), reason)["operation"]
        state.operations[number] = replace(state.operations[number], phase="SEALING")
    return {}


def _decide(state: MetadataState, command: Command) -> Answer:
    operation = state.operation(command["operation"], "SEALING")
    lineage = tuple(Lineage(*parent) for parent in command["lineage"])
    if [(p.range_id, p.generation) for p in lineage] != list(operation.inputs):
        raise InvalidArgument("the lineage is not the lineage of the inputs", what="lineage")
    outputs = []
    for planned, members in zip(operation.outputs, command["members"], strict=True):
        state.check_members(tuple(members))
        outputs.append(replace(planned, members=tuple(sorted(members))))
    before = [state.ranges.pop(range_id) for range_id, _ in operation.inputs]
    log_id = before[0].log_id
    met_at = tuple(range_.span.start for range_ in before[1:])
    for output in outputs:
        state.ranges[output.range_id] = Descriptor(
            output.range_id, output.generation, log_id, output.span, output.members,
            lineage, "ACTIVE", operation.operation_id, met_at, tuple(command.get("effects") or ()),
        )  # fmt: skip
    state.check_log(log_id)
    if tuple(outputs) != operation.outputs:
        reason = _further(state, operation, reasons.MEMBERS_KEPT)
        operation = replace(operation, reason=reason.text, causes=reason.causes)
    state.operations[operation.operation_id] = replace(
        operation, phase="DECIDED", outputs=tuple(outputs)
    )
    return {}


def _installed(state: MetadataState, command: Command) -> Answer:
    operation = state.operation(command["operation"], "DECIDED")
    at_ms = _number(command, "at_ms")
    installed = tuple(sorted({*operation.installed, command["node"]}))
    needed = {member for output in operation.outputs for member in output.members}
    if not needed <= set(installed):
        state.operations[operation.operation_id] = replace(operation, installed=installed)
        return {}
    _end(state, operation, at_ms)
    return {"done": True}


def _done(state: MetadataState, command: Command) -> Answer:
    """End a decided operation without waiting for the members that have not installed.

    These members begin later, from a base of the new generation (x2.16).
    """
    operation = state.operation(command["operation"], "DECIDED")
    if not operation.is_held_by_majorities:
        raise InvalidArgument("an output is not held by most of its members", what="operation")
    _end(state, operation, _number(command, "at_ms"))
    return {}


def _end(state: MetadataState, operation: Operation, at_ms: int) -> None:
    del state.operations[operation.operation_id]
    for range_id, generation in operation.inputs:
        if range_id in state.ranges:
            state.done[range_id] = generation
        else:
            state.done.pop(range_id, None)
        state.last_operations.pop(range_id, None)
    for output in operation.outputs:
        _lock(state, output.range_id, 0)
        _remember(state, output.range_id, operation, "DONE", at_ms)


def _lock(state: MetadataState, range_id: int, operation_id: int) -> None:
    state.ranges[range_id] = replace(state.ranges[range_id], operation=operation_id)


def _remember(
    state: MetadataState, range_id: int, operation: Operation, outcome: str, at_ms: int
) -> None:
    state.last_operations[range_id] = LastOperation(
        operation.operation_id, operation.kind, operation.reason, outcome, at_ms, operation.causes
    )


HANDLERS: Final[Mapping[str, Callable[[MetadataState, Command], Answer]]] = {
    commands.PLAN: _plan,
    commands.MOVE: _move,
    commands.SPLIT: _split,
    commands.RECOVER: _recover,
    commands.MERGE: _merge,
    commands.SEALING: _sealing,
    commands.APART: _apart,
    commands.DECIDE: _decide,
    commands.INSTALLED: _installed,
    commands.DONE: _done,
    commands.ABORT: _abort,
}
"""The function that applies each command. A refused command raises a LognodeError, KeyError,
TypeError or ValueError."""
