"""One group with `ordering` "none" in a range: each entry is a unit of its own (`units`).

The position of a unit is the seq of its entry, or a higher seq once the entry is done. A unit
without a row is done if the floor is above its entry. So below the floor only entries that are not
done have rows, and at or above the floor those that are done, have failed, or are parked.
"""

from collections.abc import Collection, Sequence
from typing import Any

from ...client.protocol.errors import InvalidArgument, LognodeError
from ..spans import Span, has
from .forms import LOST
from .group import Group
from .row import Row
from .units import entry_unit, key_of, seq_of


class EntryGroup(Group):
    """See the module."""

    by_entry = True

    # Units.

    def unit(self, key: bytes, seq: int) -> bytes:
        """Return the unit of an entry."""
        return entry_unit(key, seq)

    def units(self, keys: Sequence[bytes], seqs: Sequence[int]) -> Sequence[bytes]:
        """Return the units of entries."""
        return list(map(entry_unit, keys, seqs))

    def key_of(self, unit: bytes) -> bytes:
        """Return the key of a unit."""
        return key_of(unit)

    def keys_of(self, units: Sequence[bytes]) -> Sequence[bytes]:
        """Return the keys of units."""
        return list(map(key_of, units))

    def seq_of(self, unit: bytes) -> int:
        """Return the seq of the entry of a unit."""
        return seq_of(unit)

    def end_of(self, unit: bytes, end: int) -> int:
        """Return the seq behind the entry of a unit."""
        return seq_of(unit) + 1

    def rest(self, unit: bytes) -> int:
        """Return the position of a unit without a row; 0: not begun."""
        floor = self.floors.at(key_of(unit))
        return max(floor, seq_of(unit)) if floor else 0

    def positions(self, units: Sequence[bytes]) -> list[int]:
        """Return the positions of units."""
        return list(map(self.position, units))

    def rows_of(self, keys: Collection[bytes]) -> list[bytes]:
        """Return the units of the keys that have rows."""
        return [unit for unit in self.rows if key_of(unit) in keys] if keys else []

    def is_behind(self, unit: bytes, row: Row) -> bool:
        """Whether the row has an entry below the floor that is not done."""
        seq = seq_of(unit)
        return row.done <= seq < self.floors.at(key_of(unit))

    def waiting_below(self, before: int) -> list[tuple[bytes, int]]:
        """Return the keys of rows with undone entries below a seq, and the seqs of the entries."""
        return [
            (key_of(unit), seq)
            for unit, row in self.rows.items()
            if row.done <= (seq := seq_of(unit)) < before
        ]

    # Commands.

    def moves_all(
        self, keys: Sequence[bytes], expected: list[int], through: Sequence[int], next_seq: int
    ) -> bool:
        """Return False: entries are moved one by one."""
        return False

    def reset(
        self,
        spans: Sequence[tuple[bytes, bytes | None, int]],
        keys: Sequence[tuple[bytes, int]],
        *,
        who: str,
        at_ms: int,
        spans_max: int,
    ) -> LognodeError | None:
        """Set the positions of spans, and raise the fence."""
        if keys:
            return InvalidArgument(
                "a group without an order has no position of a single key; reset the whole group, "
                "or skip the entry",
                what="keys",
            )
        return super().reset(spans, keys, who=who, at_ms=at_ms, spans_max=spans_max)

    def drop_passed(
        self, span: Span, bounds: tuple[int, int], kept: Collection[bytes], ended: Collection[bytes]
    ) -> None:
        """Drop the rows that have nothing to do below the new floor: the floor says the same."""
        begin, to = bounds
        for unit in [
            unit
            for unit, row in self.rows.items()
            if seq_of(unit) < to
            and not row.parked
            and (unit in ended or (row.done >= begin and unit not in kept))
            and has(span, key_of(unit))
        ]:
            del self.rows[unit]

    def pass_removed(self, unit: bytes, before: int, at_ms: int) -> None:
        """Forget the row of an entry below `before`, which is removed."""
        seq = seq_of(unit)
        if seq < before:
            row = self.rows.pop(unit)
            if row.done <= seq:
                self.decide(at_ms, LOST, "", unit, seq, seq + 1, row.error)

    # In tables.

    def to_wire(self) -> list[Any]:
        """Return a copy of the present state as tables store it (x16)."""
        return [*super().to_wire(), True]
