"""One group in a range: the floors of spans, and the rows of keys that are elsewhere.

The unit of this class is the key (`units`); `entry_group` has groups whose unit is the entry. Every
method has checked everything before it changes anything. A method that takes many keys
refuses the keys that do not fit and takes the others; it returns the refused places, each with the
position of that key.
"""

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from operator import attrgetter
from typing import Any, Final, Self

from ...client.protocol import limits
from ...client.protocol.errors import Conflict, Fenced, LognodeError, Overloaded
from ..span_map import Steps
from ..spans import Span, has
from .forms import LOST, RESET, RETRY
from .row import Decision, Row, plain_rows

Refused = list[tuple[int, int]]
Letter = tuple[bytes, int, int, int]
"""A parked key, its position, the seq of its next entry, and the number of the entry's copies."""
Step = tuple[bytes, int, int]
"""A key, the position that is expected, and the next position."""


class Group:
    """The state of a group in a range."""

    by_entry = False
    """Whether each entry is a unit of its own."""

    def __init__(self) -> None:
        self.fence = 0
        """Rises when a leader begins to lease, and with a reset: older leases acknowledge nothing.
        """
        self.waits = False
        """Whether trims by retention wait for this group."""
        self.floors: Steps[int] = Steps([b""], [0])
        self.rows: dict[bytes, Row] = {}
        self.decisions: deque[Decision] = deque(maxlen=limits.group_decisions_max)

    # Units.

    def unit(self, key: bytes, seq: int) -> bytes:
        """Return the unit of an entry."""
        return key

    def units(self, keys: Sequence[bytes], seqs: Sequence[int]) -> Sequence[bytes]:
        """Return the units of entries."""
        return keys

    def key_of(self, unit: bytes) -> bytes:
        """Return the key of a unit."""
        return unit

    def keys_of(self, units: Sequence[bytes]) -> Sequence[bytes]:
        """Return the keys of units."""
        return units

    def seq_of(self, unit: bytes) -> int:
        """Return the seq of the entry of a unit; 0: the unit is a key."""
        return 0

    def end_of(self, unit: bytes, end: int) -> int:
        """Return the position behind all entries of a unit in a range that ends at seq `end`."""
        return end

    def rest(self, unit: bytes) -> int:
        """Return the position of a unit without a row; 0: not begun."""
        return self.floors.at(unit)

    def position(self, unit: bytes) -> int:
        """Return the seq of the next entry that the group wants of the unit; 0: not begun."""
        row = self.rows.get(unit)
        return self.rest(unit) if row is None else row.done

    def rows_of(self, keys: Collection[bytes]) -> list[bytes]:
        """Return the units of the keys that have rows."""
        return [key for key in keys if key in self.rows]

    def is_behind(self, unit: bytes, row: Row) -> bool:
        """Whether the row is below the floor, so that the unit may have an undone entry there."""
        return row.done < self.floors.at(unit)

    def waiting_below(self, before: int) -> list[tuple[bytes, int]]:
        """Return the keys of rows whose position is below a seq, and the positions."""
        return [(key, row.done) for key, row in self.rows.items() if row.done < before]

    def positions(self, keys: Sequence[bytes]) -> list[int]:
        """Return the same for many keys."""
        floor = self._common_floor(keys)
        if floor is None:
            return list(map(self.position, keys))
        return [floor if row is None else row[0] for row in map(self.rows.get, keys)]

    def _common_floor(self, keys: Sequence[bytes]) -> int | None:
        """Return the floor of the keys; None: the keys may have several floors."""
        floors = self.floors.over(min(keys), max(keys)) if keys else self.floors.values
        return floors[0] if len(floors) == 1 else None

    def check_fence(self, fence: int) -> LognodeError | None:
        """Return the error of a command that an earlier leader's lease caused."""
        if fence == self.fence:
            return None
        return Fenced(
            f"the lease has fence {fence}, and the group is at {self.fence}: the group was reset "
            "or has another leader; take the key again",
            epoch=self.fence,
        )

    # Commands.

    def open(self, begin: int, waits: bool, spans: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Begin to lease: raise the fence, and begin at `begin` where the group had not begun."""
        self.fence += 1
        self.waits = waits
        for start, end in spans:
            floors = self.floors
            for first, last, floor in list(floors.within(start, end)):
                if not floor:
                    self.floors = self.floors.raised(first, last, begin, max)

    def ack(
        self, keys: Sequence[bytes], expected: list[int], through: Sequence[int], next_seq: int
    ) -> Refused:
        """Move keys from the expected positions to the next."""
        if self.moves_all(keys, expected, through, next_seq):
            self.rows.update(zip(keys, plain_rows(through), strict=True))
            return []
        refused: Refused = []
        for at, (key, begin, to) in enumerate(zip(keys, expected, through, strict=True)):
            if not self._takes(key, begin, to, next_seq) or not self._put(key, Row(to)):
                refused.append((at, self.position(key)))
        return refused

    def moves_all(
        self, keys: Sequence[bytes], expected: list[int], through: Sequence[int], next_seq: int
    ) -> bool:
        """Whether an acknowledgement moves all keys, and each of them to a row.

        Most acknowledgements do, and no Python runs for each of their keys.
        """
        floor = self._common_floor(keys)
        if not floor:
            return False
        rows = list(map(self.rows.get, keys))
        return (
            [floor if row is None else row[0] for row in rows] == expected
            and len(set(keys)) == len(keys)
            and max(through) <= min(next_seq, floor + limits.group_window_max)
            and floor not in through
            and not any(map(_is_parked, filter(None, rows)))
            and len(self.rows) + rows.count(None) <= limits.group_rows_max
        )

    def ack_all(self, acks: Sequence[Step], next_seq: int) -> Refused:
        """Move all keys, each named once, or change nothing if a key does not fit."""
        refused = [
            (at, self.position(key))
            for at, (key, expected, through) in enumerate(acks)
            if not self._takes(key, expected, through, next_seq)
        ]
        if not refused:  # a key without a row is at the floor, and needs a row
            left = max(0, limits.group_rows_max - len(self.rows))
            fresh = [at for at, (key, *_) in enumerate(acks) if key not in self.rows]
            refused = [(at, self.position(acks[at][0])) for at in fresh[left:]]
        if not refused:
            for key, _, through in acks:
                self._put(key, Row(through))
        return refused

    def _takes(self, key: bytes, expected: int, through: int, next_seq: int) -> bool:
        """Whether a key may be acknowledged from one position to the next, if there is a row."""
        row = self.rows.get(key)
        return (
            expected == self.position(key)
            and through <= self._highest(key, next_seq)
            and not (row is not None and row.parked)
        )

    def _highest(self, unit: bytes, next_seq: int) -> int:
        """Return the highest position that a unit may be given."""
        return min(next_seq, self.floors.at(self.key_of(unit)) + limits.group_window_max)

    def note(
        self, notes: Sequence[tuple[bytes, int, int, int, str]], who: str, at_ms: int
    ) -> Refused:
        """Note failed deliveries of next entries, and park keys, which a decision records."""
        refused: Refused = []
        for at, (key, expected, deliveries, parked, error) in enumerate(notes):
            row = self.rows.get(key)
            if (
                not expected
                or expected != self.position(key)
                or (row is not None and row.parked)
                or not self._put(key, Row(expected, deliveries, bool(parked), error))
            ):
                refused.append((at, self.position(key)))
            elif parked:
                self.decide(at_ms, parked, who, key, expected, expected + 1, error)
        return refused

    def letter(self, producer: int, letters: Sequence[Letter], next_seq: int) -> Refused:
        """Give copies of the next entries of parked keys a producer and numbers.

        The position of such a key moves up to its next entry: nothing is passed.
        """
        refused: Refused = []
        for at, (key, expected, seq, number) in enumerate(letters):
            row = self.rows.get(key)
            if (
                row is None
                or not row.parked
                or row.number
                or row.done != expected
                or seq >= self._highest(key, next_seq)
            ):
                refused.append((at, self.position(key)))
            else:
                self.rows[key] = row._replace(done=seq, producer=producer, number=number)
        return refused

    def copied(self, copies: Sequence[tuple[bytes, int]], what: int, at_ms: int) -> Refused:
        """Move parked keys past the entries of their letters, which decisions record."""
        refused: Refused = []
        for at, (key, seq) in enumerate(copies):
            row = self.rows.get(key)
            is_named = row is not None and (row.number > 0 or (self.by_entry and what == LOST))
            if row is None or not row.parked or not is_named or row.done != seq:
                refused.append((at, self.position(key)))
            else:
                self._put(key, Row(seq + 1))
                self.decide(at_ms, what, "", key, seq, seq + 1, row.error)
        return refused

    def retry(self, keys: Sequence[bytes], who: str, at_ms: int) -> Refused:
        """Let parked keys go on with the entry at which they stopped."""
        refused: Refused = []
        for at, key in enumerate(keys):
            row = self.rows.get(key)
            if row is None or not row.parked:
                refused.append((at, self.position(key)))
                continue
            self._put(key, Row(row.done))
            self.decide(at_ms, RETRY, who, key, row.done, row.done, row.error)
        return refused

    def skip(
        self, skips: Sequence[Step], next_seq: int, *, what: int, who: str, why: str, at_ms: int
    ) -> Refused:
        """Move keys, parked or not, without an acknowledgement; a decision records each."""
        refused: Refused = []
        for at, (key, expected, through) in enumerate(skips):
            if (
                expected != self.position(key)
                or through > self._highest(key, next_seq)
                or not self._put(key, Row(through))
            ):
                refused.append((at, self.position(key)))
                continue
            self.decide(at_ms, what, who, key, expected, through, why)
        return refused

    def reset(
        self,
        spans: Sequence[tuple[bytes, bytes | None, int]],
        keys: Sequence[tuple[bytes, int]],
        *,
        who: str,
        at_ms: int,
        spans_max: int,
    ) -> LognodeError | None:
        """Set the positions of spans, then of single keys, to these seqs; raise the fence."""
        floors = self.floors
        for start, end, to in spans:
            floors = floors.raised(start, end, to, _second)
        rows = {
            unit: row
            for unit, row in self.rows.items()
            if not any(has((start, end), self.key_of(unit)) for start, end, _ in spans)
        }
        rows.update((key, Row(to)) for key, to in keys)
        if not self.by_entry:
            rows = {key: row for key, row in rows.items() if row != Row(floors.at(key))}
        error = self._check_spans(floors, spans_max)
        if len(rows) > limits.group_rows_max:
            error = _full()
        if any(not floors.at(key) for key, _ in keys):
            error = Conflict("the group has not begun at a key; reset the span of the key too")
        if error is not None:
            return error
        self.floors = floors
        self.rows = rows
        self.fence += 1
        for start, end, to in spans:
            self.decisions.append(Decision(at_ms, RESET, who, start, end, to, to, ""))
        for key, to in keys:
            self.decide(at_ms, RESET, who, key, to, to, "")
        return None

    def raise_floor(
        self,
        span: tuple[bytes, bytes | None],
        bounds: tuple[int, int],
        pinned: Sequence[bytes],
        finished: Sequence[bytes],
        *,
        spans_max: int,
    ) -> LognodeError | None:
        """Raise the floor of a span by a claim about its entries in [bounds); see `claim`.

        Pinned keys get a row at their position first. Rows go if the claim says that they have
        nothing to do below the floor.
        """
        begin, to = bounds
        for _, _, floor in self.floors.within(*span):
            if not begin <= floor:
                return Conflict(f"the floor is at {floor}; the claim begins at {begin}")
        fresh = {
            unit: Row(position)
            for unit in pinned
            if unit not in self.rows and (position := self.rest(unit)) < to
        }
        floors = self.floors.raised(*span, to, max)
        error = self._check_spans(floors, spans_max)
        if fresh and len(self.rows) + len(fresh) > limits.group_rows_max:
            error = _full()
        if error is not None:
            return error
        self.rows.update(fresh)
        self.floors = floors
        self.drop_passed(span, (begin, to), frozenset(pinned), frozenset(finished))
        return None

    def drop_passed(
        self, span: Span, bounds: tuple[int, int], kept: Collection[bytes], ended: Collection[bytes]
    ) -> None:
        """Drop the rows that have nothing to do below the new floor, or move them up to it."""
        begin, to = bounds
        start, end = span
        for key in [
            key
            for key, (done, _, parked, *_) in self.rows.items()
            if done <= to
            and not parked
            and (key in ended or (done >= begin and (done == to or key not in kept)))
            and key >= start
            and (end is None or key < end)
        ]:
            if self.floors.at(key) == to:
                del self.rows[key]  # the floor says the same
            else:
                self._put(key, Row(to))

    # Removal.

    def pass_lost(self, start: bytes, end: bytes | None, before: int, at_ms: int) -> None:
        """Raise the positions of a span's keys to `before`: retention removed what is below."""
        raised = self.floors
        for first, last, floor in list(self.floors.within(start, end)):
            if 0 < floor < before:
                self.decisions.append(Decision(at_ms, LOST, "", first, last, floor, before, ""))
                raised = raised.raised(first, last, before, max)
        self.floors = raised
        for unit in [unit for unit, row in self.rows.items() if row.done < before]:
            if has((start, end), self.key_of(unit)):
                self.pass_removed(unit, before, at_ms)
        for unit in [unit for unit, row in self.rows.items() if row == Row(before)]:
            self._put(unit, Row(before))

    def pass_removed(self, key: bytes, before: int, at_ms: int) -> None:
        """Move a row to `before`, since its key's entries below are removed; a decision records it.

        The next entry is another entry: what was known of the removed entry goes.
        """
        row = self.rows[key]
        if row.done < before:
            self._put(key, Row(before))
            self.decide(at_ms, LOST, "", key, row.done, before, row.error)

    # Rows.

    def decide(
        self, at_ms: int, what: int, who: str, unit: bytes, begin: int, through: int, why: str
    ) -> None:
        """Record a decision about one unit."""
        key = self.key_of(unit)
        end = key + b"\0"
        self.decisions.append(Decision(at_ms, what, who, key, end, begin, through, why))

    def _put(self, key: bytes, row: Row) -> bool:
        """Store a row, or drop it where the floor says the same. False: no room for a new row."""
        rest = self.rest(key)
        if not rest:
            return False
        if row.done == rest and row.is_plain:
            self.rows.pop(key, None)
            return True
        if key not in self.rows and len(self.rows) >= limits.group_rows_max:
            return False
        self.rows[key] = row
        return True

    def _check_spans(self, floors: Steps[int], spans_max: int) -> LognodeError | None:
        """Return the error of floors with more spans than may be, unless a merge brought them."""
        if len(floors.starts) > max(spans_max, len(self.floors.starts)):
            return Overloaded(
                f"the group would have floors of {len(floors.starts)} spans; the limit is "
                f"{spans_max}. Reset wider spans.",
                retry_after=60.0,
            )
        return None

    # In tables.

    def to_wire(self) -> list[Any]:
        """Return a copy of the present state as tables store it (x16)."""
        return [self.fence, self.waits, self.floors.to_wire(), dict(self.rows),
                list(self.decisions)]  # fmt: skip

    @classmethod
    def from_wire(cls, body: Sequence[Any]) -> Self:
        """Undo `to_wire` of this class."""
        group = cls()
        group.fence, group.waits, floors, rows, decisions = body[:5]
        group.floors = Steps(*floors)
        group.rows = {key: Row(*row) for key, row in rows.items()}
        group.decisions.extend(Decision(*each) for each in decisions)
        return group


_is_parked: Final = attrgetter("parked")


def _second(_: int, to: int) -> int:
    return to


def _full() -> Overloaded:
    return Overloaded(
        f"the group has {limits.group_rows_max} keys in the range that wait, failed or are done "
        "above the floor, the limit; retry or skip parked keys",
        retry_after=1.0,
    )
