"""The table of groups in bases: clipped for splits, united for merges, checked when received."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import merge
from typing import Any, Final

from ...client.protocol import limits
from ..forms import is_number, is_text
from ..span_map import Steps
from ..spans import Span, common, has, rows_in
from .forms import DECISIONS
from .table import GROUP_FIELDS
from .units import ENTRY_UNIT_BYTES_MIN, key_of

Table = Mapping[int, Any]
_ROW_FIELDS: Final = 6
_DECISION_FIELDS: Final = 8


def clipped(table: Table, span: Span) -> dict[int, Any]:
    """Return the part of the table that concerns the keys in the span.

    A group keeps its fence and the decisions about these keys. A group that has begun nowhere in
    the span stays too, with floor 0: it begins where its first leader says.
    """
    return {
        group_id: [
            fence, waits, Steps(*floors).clipped(*span, 0).to_wire(),
            _entries_in(rows, span) if by_entry else rows_in(rows, span),
            _decisions_in(decisions, span), *by_entry,
        ]
        for group_id, (fence, waits, floors, rows, decisions, *by_entry) in table.items()
    }  # fmt: skip


def united(parts: Sequence[tuple[Span, Table]]) -> dict[int, Any]:
    """Return the table of a merged range: each part's floors and rows belong to its own keys.

    Seqs of different parts are unrelated, so their floors stay apart until they are equal (x12). A
    group that one part does not have has not begun there. The fence is the largest; leases name the
    generation too, so none of them outlives the merge.
    """
    found: dict[int, Any] = {}
    for group_id in sorted({group_id for _, table in parts for group_id in table}):
        here = [(span, table[group_id]) for span, table in parts if group_id in table]
        floors = Steps.of(
            (step for span, group in here for step in Steps(*group[2]).within(*span)), 0
        )
        decisions = merge(*(group[4] for _, group in here), key=lambda row: row[0])
        found[group_id] = [
            max(group[0] for _, group in here),
            any(group[1] for _, group in here),
            floors.to_wire(),
            {key: row for _, group in here for key, row in group[3].items()},
            list(decisions)[-limits.group_decisions_max :],
            *here[0][1][GROUP_FIELDS:],
        ]
    return found


def _entries_in(rows: Mapping[bytes, Any], span: Span) -> dict[bytes, Any]:
    """Return the rows of the entries whose keys are in the span."""
    return {unit: row for unit, row in rows.items() if has(span, key_of(unit))}


def _decisions_in(decisions: Iterable[Sequence[Any]], span: Span) -> list[Sequence[Any]]:
    found: list[Sequence[Any]] = []
    for row in decisions:
        part = common((row[3], row[4]), span)
        if part is not None:
            found.append((*row[:3], *part, *row[5:]))
    return found


def are_groups(table: Any, are_steps: Callable[[Any], bool]) -> bool:
    """Whether this is a table of groups, as another node sent it.

    `are_steps` checks the form of a map over spans. A merged range may have more rows than a
    range takes, so the frame bounds their number.
    """
    return (
        type(table) is dict
        and all(map(is_number, table))
        and all(_is_group(group, are_steps) for group in table.values())
    )


def _is_group(group: Any, are_steps: Callable[[Any], bool]) -> bool:
    if not isinstance(group, list | tuple) or len(group) < GROUP_FIELDS:
        return False
    fence, waits, floors, rows, decisions, *by_entry = group
    least = ENTRY_UNIT_BYTES_MIN if by_entry else 1
    return (
        is_number(fence)
        and type(waits) is bool
        and are_steps(floors)
        and all(map(is_number, floors[1]))
        and type(rows) is dict
        and set(map(type, rows)) <= {bytes}
        and by_entry in ([], [True])
        and min(map(len, rows), default=least) >= least
        and all(map(_is_row, rows.values()))
        and type(decisions) is list
        and len(decisions) <= limits.group_decisions_max
        and all(map(_is_decision, decisions))
    )


def _is_row(row: Any) -> bool:
    if not isinstance(row, list | tuple) or len(row) != _ROW_FIELDS:
        return False
    done, deliveries, parked, error, producer, number = row
    return (
        is_number(done)
        and done > 0
        and is_number(deliveries)
        and type(parked) is bool
        and is_text(error, limits.group_text_chars_max)
        and is_number(producer)
        and is_number(number)
    )


def _is_decision(row: Any) -> bool:
    if not isinstance(row, list | tuple) or len(row) != _DECISION_FIELDS:
        return False
    at_ms, what, who, start, end, begin, through, why = row
    return (
        all(map(is_number, (at_ms, what, begin, through)))
        and what in DECISIONS
        and is_text(who, limits.group_text_chars_max)
        and type(start) is bytes
        and type(end) in (bytes, type(None))
        and is_text(why, limits.group_text_chars_max)
    )
