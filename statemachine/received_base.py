"""Bases from another node: checked before they are stored.

A base goes to meta first and is read afterwards, at this start and at every later one. So this
module checks all of it: the files that its manifest names are verified by their hashes, and each
field of its tables has the type that the state of a range reads.
"""

from array import array
from collections.abc import Iterable, Mapping
from typing import Any

from ..client.protocol import limits
from ..client.protocol.errors import CorruptData, Unsupported
from ..client.protocol.levels import LEVEL_MIN, missing
from . import tails
from .groups import stored
from .producer_row import ROW_FIELDS, rest_of
from .range_state import Base

_HASH_BYTES_MAX = 64
_SEAL_FIELDS = 3
_ROW_FIELDS = (ROW_FIELDS, ROW_FIELDS + 1, ROW_FIELDS + 2)
_ELDER_FIELDS = 5
_LEASE_FIELDS = 7
_CURSOR_FIELDS = 3


def received(body: object) -> Base:
    """Return the base of a body from another node. Raises CorruptData for an invalid body.

    Raises Unsupported for a base at a feature level that this program does not know.

    This takes some tenths of a second where 100,000 producers have written: too long for a loop.
    """
    if not isinstance(body, Mapping):
        raise CorruptData("a base is not a map")
    base = Base.from_wire(body)
    tables = base.tables
    for what, holds in (
        ("applied", _are_small((base.applied_index, base.applied_term)) and base.applied_index > 0),
        ("manifest", all(_are_numbers(filter(_is_int, info)) for info in base.manifest)),
        ("next_seq", _are_small([tables.get("next_seq", 1)])),
        ("last_timestamp_ms", _are_numbers([tables.get("last_timestamp_ms", 0)])),
        ("hash", _is_hash(tables.get("hash", b""))),
        ("effects", _is_hash(tables.get("effects", b""))),
        ("sealed", _is_seal(tables.get("sealed"))),
        ("producers", _are_producers(tables.get("producers", {}))),
        ("removal", _is_removal(tables.get("removal"))),
        ("cursors", _are_cursors(tables.get("cursors", {}))),
        ("groups", stored.are_groups(tables.get("groups", {}), _are_steps)),
        ("tails", tails.are_rows(tables.get(tails.TABLE, [[], []]))),
        ("restoring", type(tables.get("restoring", False)) is bool),
        ("level", _are_small([tables.get("level", LEVEL_MIN)])),
    ):
        if not holds:
            raise CorruptData(f"the {what} of a base is not valid")
    unknown = missing(tables.get("level", LEVEL_MIN))
    if unknown is not None:
        raise Unsupported(f"this program cannot apply entries to the base: {unknown}")
    return base


def _are_numbers(values: Iterable[Any]) -> bool:
    """Whether these are integers that msgpack can carry.

    An older version accepted an epoch or a clock of any size.
    """
    found = list(values)
    return not found or (set(map(type, found)) == {int} and min(found) >= 0)


def _are_small(values: Iterable[Any]) -> bool:
    """Whether these are integers small enough for additions."""
    found = list(values)
    return _are_numbers(found) and max(found) <= limits.number_max


def _is_int(value: object) -> bool:
    return type(value) is int


def _is_hash(value: object) -> bool:
    return type(value) is bytes and len(value) <= _HASH_BYTES_MAX


def _is_seal(value: Any) -> bool:
    return not value or (
        isinstance(value, list | tuple) and len(value) == _SEAL_FIELDS and _are_numbers(value)
    )


def _is_span(start: object, end: object) -> bool:
    return type(start) is bytes and type(end) in (bytes, type(None))


def _are_producers(rows: Any) -> bool:
    return type(rows) is dict and _are_numbers(rows) and all(map(_is_producer, rows.values()))


def _is_producer(row: Any) -> bool:
    if not isinstance(row, list | tuple) or len(row) not in _ROW_FIELDS:
        return False
    epoch, low, highest, runs, last_ms, token = row[:ROW_FIELDS]
    elders, weighed = rest_of(row)
    return (
        _are_numbers((epoch, low, highest, last_ms, token))
        and _are_runs(runs)
        and type(elders) is list
        and all(map(_is_elder, elders))
        and (weighed is None or _are_numbers((weighed,)))
    )


def _is_elder(row: Any) -> bool:
    if not isinstance(row, list | tuple) or len(row) != _ELDER_FIELDS:
        return False
    start, end, low, highest, runs = row
    return _is_span(start, end) and _are_numbers((low, highest)) and _are_runs(runs)


def _are_runs(columns: Any) -> bool:
    """Whether the columns are runs: first numbers, first seqs and ranks.

    The ranks count the numbers before each run and before the end.
    """
    if not isinstance(columns, list | tuple) or [type(column) for column in columns] != [list] * 3:
        return False
    firsts, seqs, ranks = columns
    if len(firsts) != len(seqs) or len(ranks) != len(firsts) + 1:
        return False
    try:
        return ranks == sorted(array("Q", ranks)) and all(array("Q", c) for c in columns[:2] if c)
    except (TypeError, OverflowError):
        return False


def _is_removal(table: Any) -> bool:
    if table is None:
        return True
    if type(table) is not dict or type(table.get("leases")) is not list:
        return False
    return (
        _are_floors(table.get("floors"))
        and _are_marks(table.get("marks"))
        and all(map(_is_lease, table["leases"]))
    )


def _are_floors(rows: Any) -> bool:
    return type(rows) is dict and set(map(type, rows)) <= {bytes} and _are_numbers(rows.values())


def _are_marks(steps: Any) -> bool:
    if not isinstance(steps, list | tuple) or len(steps) != 3 or not all(map(_are_steps, steps)):
        return False
    (_, trims), (_, compactions), (_, snapshots) = steps
    return (
        _are_numbers((*trims, *snapshots))
        and all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in compactions)
        and _are_numbers(number for pair in compactions for number in pair)
    )


def _are_steps(rows: Any) -> bool:
    """Whether the rows are steps: where values begin, the first at the first key, and values."""
    if not isinstance(rows, list | tuple) or [type(part) for part in rows] != [list, list]:
        return False
    starts, values = rows
    return (
        len(starts) == len(values) > 0
        and set(map(type, starts)) == {bytes}
        and starts[0] == b""
        and starts == sorted(starts)
    )


def _is_lease(row: Any) -> bool:
    if not isinstance(row, list | tuple) or len(row) != _LEASE_FIELDS:
        return False
    lease_id, start, end, through, expires_ms, marks, floors = row
    return (
        type(lease_id) is str
        and _is_span(start, end)
        and _are_numbers((through, expires_ms))
        and _are_marks(marks)
        and _are_floors(floors)
    )


def _are_cursors(table: Any) -> bool:
    return (
        type(table) is dict
        and set(map(type, table)) <= {str}
        and all(map(_is_cursor, table.values()))
    )


def _is_cursor(row: Any) -> bool:
    if not isinstance(row, list | tuple) or len(row) != _CURSOR_FIELDS:
        return False
    starts, held, keys = row
    return (
        _are_steps([starts, held])
        and all(isinstance(each, list | tuple) and len(each) == 2 for each in held)
        and all(map(_are_small, held))
        and _are_floors(keys)
    )
