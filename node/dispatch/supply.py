"""Reads ahead of the consumers: which keys have undone entries, and some of these entries.

The leader reads the entries of the range once, in the order of seq, from the floors of the group
on. Every key with an undone entry below the reading position of its span has a line here, or is
parked. The floors follow from this rule (`floor_claims`), and so does the promise that no entry is
passed by (G2).

In a group without an order, each entry is a unit with a line of its own.

Memory is bounded: reading stops while there are too many lines or bytes. The line of a key that
waits for a retry keeps no entries; they are read again by key. The line of a key that is with a
consumer keeps the few that were read meanwhile, as long as all such lines together have little.
They never stop the reading (G5).
"""

from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import Final, NamedTuple

from ...client.protocol import limits
from ...statemachine.groups.group import Group
from ...statemachine.groups.selection import Selection
from ...statemachine.page import Page
from ...statemachine.spans import Span, common, has
from .key_line import Line, Place

BUFFER_BYTES_MAX: Final = 4 * limits.MIB
LINES_MAX: Final = limits.group_rows_max
LINE_BYTES_MAX: Final = 256 * limits.KIB
_LINE_ENTRIES_MAX: Final = 1_024
_KEPT_BYTES_MAX: Final = limits.MIB
"""Entries in memory of all keys that consumers have."""
_KEPT_ENTRIES_MAX: Final = 64
"""The same of one key."""
_PAGE_ENTRIES: Final = 384
_PAGE_BYTES: Final = limits.MIB // 2
"""A page takes 2 ms at most."""


class PageRead(NamedTuple):
    """Entries of a span of keys that the leader shall read next, in the order of seq."""

    start: bytes
    end: bytes | None
    from_seq: int
    end_seq: int
    limit: int
    bytes_max: int


class KeyRead(NamedTuple):
    """Entries of a unit, all of one key, that the leader shall read next."""

    key: bytes
    from_seq: int
    end_seq: int
    limit: int
    bytes_max: int
    unit: bytes


class _Reading:
    """How far the keys of a span are read."""

    __slots__ = ("end", "next", "start")

    def __init__(self, start: bytes, end: bytes | None, following: int) -> None:
        self.start = start
        self.end = end
        self.next = following


class Supply:
    """The lines of a group in a range whose keys lie in `span`, and on which it has begun."""

    def __init__(self, group: Group, span: Span, selection: Selection) -> None:
        self._group = group
        self.span = span
        self._selection = selection
        self.lines: dict[bytes, Line] = {}
        self.parked: dict[bytes, tuple[int, int]] = {}
        """Parked keys, which have rows and no lines: the bounds of the seqs that may be theirs at
        or above the floor, first and last."""
        self.unread: OrderedDict[bytes, None] = OrderedDict()
        """Keys of lines that wait for a read of the key."""
        self.size = 0
        """The bytes of the entries in memory."""
        self._kept = 0
        """Those of keys that consumers have."""
        self._readings: deque[_Reading] = deque(
            _Reading(*part, floor)
            for start, end, floor in group.floors.within(*span)
            for part in selection.within((start, end))
        )
        for unit, row in group.rows.items():
            if not has(span, group.key_of(unit)):
                continue
            if row.parked:
                self.parked[unit] = 0, 0
            elif group.is_behind(unit, row):
                self.revive(unit)

    # Reading in the order of seq.

    @property
    def is_full(self) -> bool:
        """Whether reading stops until consumers have taken what is there."""
        return self.size - self._kept >= BUFFER_BYTES_MAX or len(self.lines) >= LINES_MAX

    def next_page(self, next_seq: int) -> PageRead | None:
        """Return what to read next of a range whose entries end at `next_seq`."""
        if self.is_full:
            return None
        for _ in range(len(self._readings)):
            reading = self._readings[0]
            floors = self._group.floors.within(reading.start, reading.end)
            end = min(next_seq, min(floor for *_, floor in floors) + limits.group_window_max)
            if reading.next < end:
                return PageRead(
                    reading.start, reading.end, reading.next, end, _PAGE_ENTRIES, _PAGE_BYTES
                )
            self._readings.rotate(-1)
        return None

    def take_page(self, read: PageRead, page: Page) -> list[Line]:
        """Take the page of this read; return the lines that have become ready."""
        reading = self._readings[0]
        if (reading.start, reading.end, reading.next) != read[:3]:
            return []
        if page.end_key is not None:
            self._readings.insert(1, _Reading(page.end_key, reading.end, reading.next))
            reading.end = page.end_key
        reading.next = page.next if page.more else read.end_seq
        ready: list[Line] = []
        lines, parked = self.lines, self.parked
        at_ = self._selection.positions(page.keys)
        units = self._group.units(page.keys, page.seqs)
        columns = (units, page.seqs, page.timestamps, page.values)
        done = self._group.positions(units)
        for at, key, seq, timestamp_ms, value, begin in zip(
            at_, *(map(column.__getitem__, at_) for column in (*columns, done)), strict=True
        ):
            if seq < begin:
                continue
            line = lines.get(key)
            if line is None:
                if key in parked:
                    parked[key] = parked[key][0] or seq, seq
                    continue
                line = lines[key] = Line(key, seq, Place.READY)
                ready.append(line)
            elif line.place is Place.LEASED and self._may_keep(line):
                size = line.add(seq, timestamp_ms, value, page.headers.get(at))
                self.size += size
                self._kept += size
                continue
            elif (
                line.place is not Place.READY
                or line.unread_to
                or line.size > LINE_BYTES_MAX
                or len(line.seqs) == _LINE_ENTRIES_MAX
            ):
                line.unread_until(seq + 1)
                continue
            headers = page.headers.get(at) if page.headers else None
            self.size += line.add(seq, timestamp_ms, value, headers)
        return ready

    def _may_keep(self, line: Line) -> bool:
        """Whether the next entry of a leased line stays in memory."""
        is_next = line.unread_to == line.given_to and len(line.seqs) < _KEPT_ENTRIES_MAX
        return is_next and self._kept < _KEPT_BYTES_MAX

    # Reading a key.

    def next_key(self) -> KeyRead | None:
        """Return the key to read next."""
        for key in self.unread:
            line = self.lines[key]
            line.pass_to(self._group.position(key))
            return KeyRead(
                self._group.key_of(key), line.first, line.unread_to, _PAGE_ENTRIES, LINE_BYTES_MAX,
                key,
            )  # fmt: skip
        return None

    def take_key(self, read: KeyRead, page: Page) -> Line | None:
        """Take the page of this read; return the line if it has become ready."""
        line = self.lines.get(read.unit)
        if line is None or line.place is not Place.UNREAD or line.first != read.from_seq:
            return None
        del self.unread[read.unit]
        self.size += line.add_page(page)
        if not page.more and line.unread_to <= read.end_seq:
            line.all_read()
        if line.seqs:
            line.moved(Place.READY, line.seqs[0])
            return line
        if not line.unread_to:
            del self.lines[read.unit]
        else:
            line.moved(Place.UNREAD, read.end_seq)
            self.unread[read.unit] = None
        return None

    # Lines.

    def read_to(self, key: bytes) -> int:
        """Return the position up to which the entries of the unit were read, or could be."""
        found = self._group.key_of(key)
        for reading in self._readings:
            if has((reading.start, reading.end), found):
                return self._group.end_of(key, reading.next)
        return 0

    def revive(self, key: bytes) -> None:
        """Let a key that has no line be read again from its position."""
        position = self._group.position(key)
        line = self.lines[key] = Line(key, position, Place.UNREAD, self.read_to(key))
        self._wait_for_read(line)

    def leased(self, line: Line, first: int, through: int) -> None:
        """Note that a consumer has the entries from `first` up to `through`, 0: not known which.
        The entries in memory go."""
        self.size -= line.drop()
        if line.place is Place.UNREAD:
            self.unread.pop(line.key, None)
        line.given(first, through)

    def _drop(self, line: Line) -> None:
        """Forget the entries of a line in memory."""
        size = line.drop()
        self.size -= size
        if line.place is Place.LEASED:
            self._kept -= size

    def claimed(self, key: bytes) -> Line:
        """Return the line of a key that a consumer has from an earlier leader."""
        line = self.lines.get(key)
        position = self._group.position(key)
        if line is None:
            line = self.lines[key] = Line(key, position, Place.LEASED)
        self.leased(line, position, 0)
        line.unread_until(self.read_to(key))
        return line

    def delayed(self, line: Line) -> None:
        """Note that no consumer shall have the key for a while."""
        self._drop(line)
        line.moved(Place.DELAYED, self._group.position(line.key))
        line.unread_until(self.read_to(line.key))

    def free(self, line: Line, position: int) -> bool:
        """Let a key that nobody has go on at its position, unless nothing is left. Return whether
        the line is ready; otherwise the key is read first."""
        if line.seqs and self._goes_on(line, position):
            return True
        line.moved(Place.UNREAD, position)
        self._wait_for_read(line)
        return False

    def _goes_on(self, line: Line, position: int) -> bool:
        """Whether what a leased line keeps in memory comes next, so that the line is ready."""
        if line.given_to and position >= line.given_to:
            self._kept -= line.size
            if line.unread_to == line.given_to:
                line.all_read()
            self.size -= line.pass_to(position)
            if line.seqs:
                line.moved(Place.READY, line.seqs[0])
                return True
            return False
        self._drop(line)
        return False

    def _wait_for_read(self, line: Line) -> None:
        if line.unread_to > line.first:
            self.unread[line.key] = None
        else:
            del self.lines[line.key]

    def park(self, key: bytes) -> None:
        """Note that a key is parked: its line goes."""
        self.forget(key)
        self.parked[key] = self._group.position(key), self.read_to(key) - 1

    def forget(self, key: bytes) -> None:
        """Drop a line, if there is one."""
        line = self.lines.pop(key, None)
        if line is not None:
            self._drop(line)
            self.unread.pop(key, None)

    def passed(self, line: Line, position: int) -> None:
        """Note that the key's entries below the position are done."""
        self.size -= line.pass_to(position)

    def emptied(self) -> Iterator[Line]:
        """Forget all entries in memory, and yield the lines that are no longer ready."""
        for line in self.lines.values():
            if line.seqs:
                self._drop(line)
            if line.place is Place.READY:
                line.moved(Place.UNREAD)
                self.unread[line.key] = None
                yield line

    def revived(self) -> list[bytes]:
        """Return the parked keys that somebody let go on, or whose entry was removed; they have
        lines from now on."""
        rows = self._group.rows
        found = [key for key in self.parked if (row := rows.get(key)) is None or not row.parked]
        for key in found:
            del self.parked[key]
            self.revive(key)
        return found

    def read_through(self, span: Span, next_seq: int) -> int:
        """Return the position up to which all keys of the span were read."""
        return min(
            (
                reading.next for reading in self._readings
                if common((reading.start, reading.end), span) is not None
            ),
            default=next_seq,
        )  # fmt: skip
