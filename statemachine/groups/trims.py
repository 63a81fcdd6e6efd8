"""What the removal of entries does to groups, and which removal waits for groups."""

from typing import Any, Final

from .. import commands
from ..commands import Command
from ..spans import common, has
from .group import Group
from .table import Groups

_BY_KEY: Final = (commands.TRIM_KEYS, commands.DELETE_KEYS)


def held_back(groups: Groups, command: Command) -> Command:
    """Return the command, with the trims of retention only up to what waiting groups have done."""
    if command.kind != commands.TRIM_SPANS:
        return command
    payload = [list(trim) for trim in command.payload]
    for group in groups.by_id.values():
        if group.waits:
            payload = [part for trim in payload for part in _held_back(group, *trim)]
    return Command(command.kind, command.timestamp_ms, payload)


def _held_back(group: Group, start: bytes, end: bytes | None, before: int) -> list[list[Any]]:
    """Return a trim in parts, one a lineage span of the group.

    The slowest key of a span holds the whole span. A group that has not begun in a span holds all
    of its entries.
    """
    behind = group.waiting_below(before)
    return [
        [first, last, min([before, floor, *(to for key, to in behind if has((first, last), key))])]
        for first, last, floor in group.floors.within(start, end)
    ]


def pass_removed(groups: Groups, command: Command, next_seq: int, log_ms: int) -> None:
    """Move groups past the entries that an applied trim or delete removed."""
    for group in groups.by_id.values():
        if command.kind == commands.TRIM_SPANS:
            for start, end, before in command.payload:
                span = common((start, end), groups.span)
                if span is not None:
                    group.pass_lost(*span, min(before, next_seq), log_ms)
        elif command.kind in _BY_KEY:
            below: dict[bytes, int] = {}
            for key, before in command.payload:
                below[key] = max(below.get(key, 0), min(before, next_seq))
            for unit in group.rows_of(below):
                group.pass_removed(unit, below[group.key_of(unit)], log_ms)
