"""Applying the commands of groups, with the same result on every member of the range."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ...client.protocol.errors import GenerationMismatch, LognodeError
from .. import commands
from ..commands import Command
from ..rules import Rules
from ..spans import are_within, common, covers
from .group import Group, Refused
from .table import Groups

Answer = Mapping[str, Any]
_Run = Callable[[Group, list[Any], Groups, int, int, Rules], LognodeError | Refused | None]


def apply(
    groups: Groups, command: Command, *, next_seq: int, log_ms: int, rules: Rules
) -> LognodeError | Answer:
    """Apply one of KINDS. Return what the reply adds to its status, or the error.

    An error has changed nothing. An answer may name places of the command that were refused, each
    with the position of that key: {"refused": [place], "actual": [position]}.
    """
    payload = command.payload
    group_id = payload[0]
    if command.kind == commands.GROUP_OPEN:
        by_entry = bool(payload[3:])
        error = groups.open(group_id, payload[1], payload[2], by_entry, next_seq, rules)
        return error or {"fence": groups.by_id[group_id].fence}
    if command.kind == commands.GROUP_FORGET:
        groups.by_id.pop(group_id, None)
        return {}
    group = groups.found(group_id)
    if not isinstance(group, Group):
        return group
    if command.kind in _FENCED:
        stale = group.check_fence(payload[1])
        if stale is not None:
            return stale
    if not are_within(groups.span, group.keys_of(_units(command))):
        return GenerationMismatch("a key is outside of the range", ranges=[])
    done = _RUNS[command.kind](group, payload, groups, next_seq, log_ms, rules)
    if isinstance(done, LognodeError):
        return done
    if not done:
        return {}
    return {"refused": [at for at, _ in done], "actual": [position for _, position in done]}


def ack_all(groups: Groups, command: Command, *, next_seq: int) -> LognodeError | Refused:
    """Apply the acknowledgements of a GROUP_APPEND, all or none.

    Return the error of the command, or the places that do not fit, each with the position of its
    key; nothing has changed then.
    """
    group_id, fence, acks, _ = command.payload
    group = groups.found(group_id)
    if not isinstance(group, Group):
        return group
    stale = group.check_fence(fence)
    if stale is not None:
        return stale
    if not are_within(groups.span, group.keys_of(_units(command))):
        return GenerationMismatch("a key is outside of the range", ranges=[])
    return group.ack_all(acks, next_seq)


def told(groups: Groups, command: Command) -> Any:
    """Return the state that the command may have changed, for the hash of effects."""
    group = groups.by_id.get(command.payload[0])
    if group is None:
        return None
    rows = [group.rows.get(unit) for unit in _units(command)]
    return [group.fence, group.waits, group.floors.to_wire(), len(group.rows), rows,
            len(group.decisions)]  # fmt: skip


def _units(command: Command) -> Sequence[bytes]:
    """Return the units that a command names. A reset names keys: apply refuses these in a group
    whose units are entries."""
    kind, payload = command.kind, command.payload
    if kind == commands.GROUP_ACK:
        keys: list[bytes] = payload[2]
        return keys
    if kind in _KEYS_IN_ROWS:
        return [row[0] for row in payload[2]]
    if kind == commands.GROUP_FLOOR:
        return [*payload[6], *payload[7]]
    if kind == commands.GROUP_RETRY:
        return list(payload[1])
    if kind == commands.GROUP_SKIP:
        return [row[0] for row in payload[1]]
    if kind == commands.GROUP_LETTER:
        return [row[0] for row in payload[3]]
    if kind == commands.GROUP_RESET:
        return [row[0] for row in payload[2]]
    return ()


def _ack(
    group: Group, payload: list[Any], groups: Groups, next_seq: int, log_ms: int, rules: Rules
) -> Refused:
    keys, expected, through = payload[2:]
    return group.ack(keys, expected, through, next_seq)


def _note(
    group: Group, payload: list[Any], groups: Groups, next_seq: int, log_ms: int, rules: Rules
) -> Refused:
    return group.note(payload[2], payload[3], log_ms)


def _raise_floor(
    group: Group, payload: list[Any], groups: Groups, next_seq: int, log_ms: int, rules: Rules
) -> LognodeError | None:
    start, end, begin, to, pinned, finished = payload[2:]
    if not covers(groups.span, (start, end)) or not are_within((start, end), group.keys_of(pinned)):
        return GenerationMismatch("a span is outside of the range", ranges=[])
    bounds = (begin, min(to, next_seq))
    return group.raise_floor(
        (start, end), bounds, pinned, finished, spans_max=rules.lineage_spans_max
    )


def _retry(
    group: Group, payload: list[Any], groups: Groups, next_seq: int, log_ms: int, rules: Rules
) -> Refused:
    return group.retry(payload[1], payload[2], log_ms)


def _skip(
    group: Group, payload: list[Any], groups: Groups, next_seq: int, log_ms: int, rules: Rules
) -> Refused:
    _, skips, what, who, why = payload
    return group.skip(skips, next_seq, what=what, who=who, why=why, at_ms=log_ms)


def _letter(
    group: Group, payload: list[Any], groups: Groups, next_seq: int, log_ms: int, rules: Rules
) -> Refused:
    return group.letter(payload[2], payload[3], next_seq)


def _copied(
    group: Group, payload: list[Any], groups: Groups, next_seq: int, log_ms: int, rules: Rules
) -> Refused:
    return group.copied(payload[2], payload[3], log_ms)


def _reset(
    group: Group, payload: list[Any], groups: Groups, next_seq: int, log_ms: int, rules: Rules
) -> LognodeError | None:
    _, given, keys, who = payload
    spans = [
        (*span, min(to, next_seq))
        for start, end, to in given
        if (span := common((start, end), groups.span)) is not None
    ]
    return group.reset(
        spans, [(key, min(to, next_seq)) for key, to in keys], who=who, at_ms=log_ms,
        spans_max=rules.lineage_spans_max,
    )  # fmt: skip


_RUNS: Final[Mapping[int, _Run]] = {
    commands.GROUP_ACK: _ack,
    commands.GROUP_NOTE: _note,
    commands.GROUP_FLOOR: _raise_floor,
    commands.GROUP_RETRY: _retry,
    commands.GROUP_SKIP: _skip,
    commands.GROUP_RESET: _reset,
    commands.GROUP_LETTER: _letter,
    commands.GROUP_COPIED: _copied,
}
_FENCED: Final = frozenset((
    commands.GROUP_ACK, commands.GROUP_NOTE, commands.GROUP_FLOOR, commands.GROUP_LETTER,
    commands.GROUP_COPIED,
))  # fmt: skip
"""The commands of a leader by itself: its fence must be the present one."""
_KEYS_IN_ROWS: Final = frozenset((
    commands.GROUP_NOTE, commands.GROUP_COPIED, commands.GROUP_APPEND,
))  # fmt: skip
"""The commands whose third element has rows that begin with a key."""
KINDS: Final = frozenset((*_RUNS, commands.GROUP_OPEN, commands.GROUP_FORGET))
"""The commands that `apply` applies: all but GROUP_APPEND, which also appends."""
