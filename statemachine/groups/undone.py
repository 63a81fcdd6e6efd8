"""The entries of a range that a group has not done, found by reading the index step by step.

Leaders only: apply reads no entries. A step reads one page, and raises NotPrepared and TurnOver in
a bounded turn (see `SegmentStore.on_hand`); repeating the step makes progress.
"""

from collections import deque
from typing import Final, NamedTuple

from ...client.protocol import limits
from ..range_state import RangeState
from ..spans import Span, common, has
from ..turn_limits import ENTRIES_A_TURN
from .group import Group
from .selection import Selection

_BYTES_A_STEP: Final = limits.MIB


class Undone(NamedTuple):
    """The undone entries of one key, in the bounds of a search."""

    first: int
    """The seq of the oldest."""
    oldest_ms: int
    """The timestamp of the oldest."""
    entries: int
    bytes: int
    """Keys and values."""


class Search:
    """Finds undone entries in a span of keys, from the floors up to `end_seq`, excluded.

    The search is about the group at its begin: positions that move meanwhile are not seen. Entries
    that are removed meanwhile are found or not; `disturbed` says whether there may be such.
    """

    def __init__(
        self, state: RangeState, group: Group, span: Span, end_seq: int,
        selection: Selection | None = None,
    ) -> None:  # fmt: skip
        self._state = state
        self._selection = Selection() if selection is None else selection
        self._removals = state.removal.changes
        self.end_seq = end_seq
        self.keys: dict[bytes, Undone] = {}
        """The units with undone entries: keys, or the entries themselves."""
        self.above: dict[bytes, int] = {}
        """The first undone seq at or above the floor, of each unit that has such an entry."""
        self.begun = True
        """Whether the group has begun on all keys of the span. The search leaves other keys out."""
        self._group = group
        """To name units only."""
        self._rows = dict(group.rows)
        self.parked = frozenset(key for key, row in self._rows.items() if row.parked)
        """The keys that are parked at the begin."""
        self._floors = group.floors
        self._spans: deque[tuple[bytes, bytes | None, int]] = deque()
        whole = common(span, (state.start, state.end)) or (b"", b"")
        for start, end, floor in group.floors.within(*whole):
            if floor:
                for part in self._selection.within((start, end)):
                    self._spans.append((*part, floor))
            else:
                self.begun = False
        self._behind = deque(
            (unit, row.done, min(group.end_of(unit, self._floors.at(key)), end_seq))
            for unit, row in self._rows.items()
            if has(whole, key := group.key_of(unit)) and group.is_behind(unit, row)
        )
        """Units below their floors: each with the bounds of what is left to read."""

    @property
    def done(self) -> bool:
        """Whether nothing is left to read."""
        return not (self._spans or self._behind)

    @property
    def disturbed(self) -> bool:
        """Whether entries may have been removed since the search began."""
        return self._state.removal.changes != self._removals

    def step(self) -> None:
        """Read some entries."""
        if self._behind:
            self._read_behind()
        elif self._spans:
            self._read_page()

    def _read_behind(self) -> None:
        """Read some entries of a key below its floor."""
        unit, begin, end = self._behind[0]
        key = self._group.key_of(unit)
        page = self._state.scan(key, begin, end, limit=ENTRIES_A_TURN, bytes_max=_BYTES_A_STEP)
        self._behind.popleft()
        if page.more:
            self._behind.appendleft((unit, page.next, end))
        for seq, timestamp_ms, value in zip(page.seqs, page.timestamps, page.values, strict=True):
            self._add(unit, key, seq, timestamp_ms, len(value or b""))

    def _read_page(self) -> None:
        """Read a page of the entries at or above a floor."""
        start, end, seq = self._spans[0]
        page = self._state.read_span(
            start, end, seq, self.end_seq, limit=ENTRIES_A_TURN, bytes_max=_BYTES_A_STEP
        )
        self._spans.popleft()
        if page.end_key is not None:
            self._spans.appendleft((page.end_key, end, seq))
        if page.more:
            self._spans.appendleft((start, page.end_key or end, page.next))
        for at in self._selection.positions(page.keys):
            key, seq = page.keys[at], page.seqs[at]
            timestamp_ms, value = page.timestamps[at], page.values[at]
            unit = self._group.unit(key, seq)
            row = self._rows.get(unit)
            if row is None or seq >= row.done:
                self.above.setdefault(unit, seq)
                self._add(unit, key, seq, timestamp_ms, len(value or b""))

    def _add(self, unit: bytes, key: bytes, seq: int, timestamp_ms: int, value_bytes: int) -> None:
        size = len(key) + value_bytes
        known = self.keys.get(unit)
        if known is None:
            self.keys[unit] = Undone(seq, timestamp_ms, 1, size)
        else:
            self.keys[unit] = known._replace(entries=known.entries + 1, bytes=known.bytes + size)
