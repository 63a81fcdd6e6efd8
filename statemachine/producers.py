"""Idempotence: what a range remembers of the producers that wrote to it (ranges.md section 5).

A producer numbers its records 1, 2, 3... over all ranges. A range keeps the numbers that it
applied at or above `low`, the producer's smallest number not settled, since anything below can
never be sent again. Numbers run over all ranges, so the applied ones are a set, not an interval.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import filterfalse, repeat
from typing import Any, Final, NamedTuple

from ..client import limits
from ..client.errors import Fenced, LimitExceeded, LognodeError, OutOfOrder, Overloaded
from ..client.records import Batch
from .late_numbers import LateNumbers
from .number_runs import NumberRuns, united_runs
from .spans import Span, has

_SETTLED_KEPT: Final = 64
"""Settled numbers beyond what `settle` needs to be cheap; nobody asks for them any more."""
_LATE_MIN: Final = 256
_LATE_PART: Final = 8
"""Late numbers are sorted in once they are so large a part of the others."""
_SHARES: Final = 64
_FEW: Final = 2 * _SETTLED_KEPT
"""Numbers that every producer may have remembered, however full the table is."""
_SECRET: Final = hash("where record numbers lie in a table") & ((1 << 59) - 1)
"""What is added to a number before it is a key of a hash table. Python hashes an integer to itself,
so a client could choose numbers that share places: 110,000 of them in one producer's window, and
8,000 more took 1.5 s of every member whenever they were sent again. Text has a secret hash in each
process. Consecutive numbers still lie side by side."""
_ROW_FIELDS: Final = 6
"""Of a row as meta stores it, those before its elders."""


def _keys(numbers: Sequence[int]) -> Sequence[int]:
    """Numbers as keys of a hash table; nearly always a range, for which no Python runs."""
    if isinstance(numbers, range):
        return range(numbers.start + _SECRET, numbers.stop + _SECRET, numbers.step)
    return [number + _SECRET for number in numbers]


class Elder(NamedTuple):
    """What a range knew of a producer under an older epoch than its neighbour when the two were
    merged. It holds for its own keys alone, as it would if the range had learned of the newer epoch
    before: a record of these keys that it knows is a duplicate (executions 1.10), and of the
    others nothing is below its `low` (1.9)."""

    start: bytes
    end: bytes | None
    low: int
    highest: int
    numbers: NumberRuns

    def knows(self, number: int, key: bytes) -> bool:
        """Whether the record was settled or applied here."""
        return has((self.start, self.end), key) and (
            number < self.low or self.numbers.get(number) is not None
        )

    def to_wire(self) -> list[Any]:
        """As a row has it."""
        return [self.start, self.end, self.low, self.highest, self.numbers.to_wire()]

    @classmethod
    def from_wire(cls, body: Sequence[Any]) -> "Elder":
        """Undo `to_wire`."""
        start, end, low, highest, runs = body
        return cls(start, end, low, highest, NumberRuns.from_wire(runs))


@dataclass(slots=True)
class Row:
    """One producer in one range."""

    epoch: int = 0
    low: int = 1
    highest: int = 0
    applied: dict[int, int] = field(default_factory=dict)
    """Number, plus `_SECRET`, to seq: for numbers at or above `low` and some below, as far as they
    are not in `inherited`."""
    last_ms: int = 0
    fence_token: int = 0
    inherited: NumberRuns = field(default_factory=lambda: NumberRuns((), ()))
    """Those that the base had with which this replica began."""
    ordered: list[int] = field(default_factory=list)
    """The numbers in `applied`, ascending, without those in `late`."""
    late: LateNumbers = field(default_factory=LateNumbers)
    """Numbers that came after higher ones: to sort them in costs as much as all that is remembered,
    so they wait until they are many."""
    elders: list[Elder] = field(default_factory=list)
    """Of older epochs: nearly always none. `highest` is not below theirs."""

    def seq_of(self, number: int) -> int | None:
        """The seq that a number was given, None where it was not applied or is forgotten."""
        seq = self.applied.get(number + _SECRET)
        if seq is None:
            seq = self.inherited.get(number)
        for elder in self.elders if seq is None else ():
            seq = elder.numbers.get(number) if seq is None else seq
        return seq

    def knows(self, number: int, key: bytes) -> bool:
        """Whether the record was applied, or settled under an older epoch."""
        if not self.elders:
            return self.seq_of(number) is not None
        own = self.applied.get(number + _SECRET) is not None
        own = own or self.inherited.get(number) is not None
        return own or any(elder.knows(number, key) for elder in self.elders)

    @property
    def count(self) -> int:
        """How many numbers it remembers, without those of its elders."""
        return len(self.applied) + self.inherited.count

    def numbers(self) -> list[tuple[int, int]]:
        """All numbers that it remembers, ascending, each with its seq."""
        self._sort_late_in()
        own = zip(self.ordered, map(self.applied.__getitem__, _keys(self.ordered)), strict=True)
        if not self.inherited.count:
            return list(own)
        return sorted((*self.inherited.items(), *own))

    def to_wire(self) -> list[Any]:
        """The row as meta stores it."""
        runs = self.inherited
        if self.applied:
            known = self.numbers()
            runs = NumberRuns([number for number, _ in known], [seq for _, seq in known])
        elders = [elder.to_wire() for elder in self.elders]
        return [self.epoch, self.low, self.highest, runs.to_wire(), self.last_ms, self.fence_token,
                *([elders] if elders else ())]  # fmt: skip

    @classmethod
    def from_wire(cls, body: Sequence[Any]) -> "Row":
        """Undo `to_wire`."""
        epoch, low, highest, runs, last_ms, token, *rest = body
        row = cls(epoch, low, highest, {}, last_ms, token, NumberRuns.from_wire(runs))
        row.elders = [Elder.from_wire(elder) for each in rest for elder in each]
        return row

    def settle(self, low: int) -> None:
        """Nothing below `low` is ever sent again; what is remembered of it goes in bulk.

        Only when it is more than half of all, so that what is kept follows from what is under way
        in this range, however many ranges there are. That depends on the row alone, so that tables
        are the same on every replica.
        """
        self.low = max(self.low, low)
        if self.elders:
            self.elders = [e for e in self.elders if max(e.low, e.highest + 1) > self.low]
        settled = bisect_left(self.ordered, self.low) + self.late.below(self.low)
        inherited = self.inherited
        passed = inherited.below(self.low) if inherited.count else 0
        if 2 * (settled + passed) > self.count + _SETTLED_KEPT:
            self._sort_late_in()
            inherited.settle(self.low)
            deque(map(self.applied.pop, _keys(self.ordered[:settled]), repeat(None)), maxlen=0)
            del self.ordered[:settled]

    def add(self, numbers: Sequence[int], first_seq: int) -> None:
        """These, ascending and none of them known, were applied, at seqs from `first_seq` on."""
        seqs = range(first_seq, first_seq + len(numbers))
        self.applied.update(zip(_keys(numbers), seqs, strict=True))
        if numbers[0] > self.highest:
            self.ordered.extend(numbers)
        else:  # late: an earlier attempt was lost
            for number in numbers:
                self.late.add(number)
            if len(self.late) > max(_LATE_MIN, len(self.ordered) // _LATE_PART):
                self._sort_late_in()
        self.highest = max(self.highest, numbers[-1])

    def _sort_late_in(self) -> None:
        if self.late:
            at = bisect_left(self.ordered, min(self.late))
            self.ordered[at:] = sorted((*self.ordered[at:], *self.late))
            self.late.clear()


class Table(NamedTuple):
    """Of a range with that span: rows as meta stores them."""

    span: Span
    rows: Mapping[int, list[Any]]


def united_rows(left: Table, right: Table) -> Table:
    """The tables of two neighbours that are merged, as one.

    Of a producer that both know under one epoch, what either applied was applied, and what is
    settled in one is settled. Else the row of the higher epoch stays (executions 1.9), and what the
    other range knew holds on for its own keys: an opening that raises the epoch range by range may
    have come to one of the two alone.
    """
    rows = dict(left.rows)
    for producer, row in right.rows.items():
        known = rows.get(producer)
        if known is None or known == row:
            rows[producer] = row
        else:
            rows[producer] = _united((left.span, known), (right.span, row))
    return Table((left.span[0], right.span[1]), rows)


def _united(one: tuple[Span, list[Any]], other: tuple[Span, list[Any]]) -> list[Any]:
    (old_span, old), (_, new) = sorted((one, other), key=lambda each: each[1][0])
    epoch, low, highest, runs, last_ms, token = new[:_ROW_FIELDS]
    elders = [elder for row in (one[1], other[1]) for each in row[_ROW_FIELDS:] for elder in each]
    if old[0] == epoch:
        low, token, runs = max(low, old[1]), max(token, old[5]), united_runs(runs, old[3])
    else:
        elders.append([*old_span, *old[1:4]])
    different = [elder for at, elder in enumerate(elders) if elder not in elders[:at]]
    row = [epoch, low, max(highest, old[2]), runs, max(last_ms, old[4]), token]
    return [*row, different] if different else row


class Producers:
    """The table of one range. Every decision depends on the table and the batch alone."""

    def __init__(self) -> None:
        self.rows: dict[int, Row] = {}
        self.remembered = 0
        """Numbers of all rows."""

    def check(self, batch: Batch) -> "list[int] | LognodeError | None":
        """What is new in the batch.

        None: all of it, in order (the fast path). A list: the positions of the new records, the
        others are duplicates. An error: nothing of it may be applied.
        """
        fresh = self._fresh(batch)
        if self.remembered > limits.remembered_numbers_max and (fresh is None or fresh):
            return self._hoarded(batch) or fresh
        return fresh

    def _hoarded(self, batch: Batch) -> LognodeError | None:
        """The refusal of a producer that has too large a part of what the range remembers: the
        fuller it is, the smaller a part (the dynamic thresholds of Choudhury and Hahne, 1998)."""
        row = self.rows.get(batch.producer)
        own = 0 if row is None else row.count
        left = 2 * limits.remembered_numbers_max - self.remembered
        if own <= max(_FEW, left // _SHARES):
            return None
        return Overloaded(
            f"the range remembers {self.remembered} numbers of records that producers have not "
            f"settled, {own} of them of producer {batch.producer}; wait for its acknowledgements",
            retry_after=1.0,
        )

    def _fresh(self, batch: Batch) -> "list[int] | LognodeError | None":
        row = self.rows.get(batch.producer)
        if row is None:
            return self._full() or self._check_order(Row(), batch)
        if batch.epoch < row.epoch:
            return Fenced(f"producer {batch.producer} was opened again elsewhere", epoch=row.epoch)
        return self._check_order(row, batch)

    def _full(self) -> LognodeError | None:
        """The refusal of one more producer; live ones are never evicted for it."""
        if len(self.rows) < limits.producers_per_range_max:
            return None
        return Overloaded(
            f"the range has {limits.producers_per_range_max} producers; close those that are done",
            retry_after=1.0,
        )

    def _check_order(self, row: Row, batch: Batch) -> "list[int] | LognodeError | None":
        numbers, low = batch.numbers, max(row.low, batch.low)
        if numbers[-1] >= low + limits.producer_window_max:
            return LimitExceeded(
                f"record number {numbers[-1]} is {limits.producer_window_max} or more above the "
                f"oldest unsettled one, {low}: wait for acknowledgements",
                limit="producer_window_max", value=numbers[-1] - low,
                allowed=limits.producer_window_max,
            )  # fmt: skip
        prevs = batch.prevs
        applied = row.applied
        if numbers[0] > row.highest and numbers[0] >= low:
            # All new, as nearly always: few records follow one of their key that is not settled.
            end = low + limits.producer_window_max
            wanted = {prev + _SECRET for prev in prevs or () if low <= prev < end}
            # Each is looked up: to subtract `applied` would go through all that is applied.
            missing = (key - _SECRET for key in filterfalse(applied.__contains__, wanted))
            if max(prevs or (0,)) < end and None not in map(row.seq_of, missing):
                return None
        fresh: list[int] = []
        earlier: set[int] = set()
        for position, number in enumerate(numbers):
            prev = prevs[position] if prevs is not None else 0
            found = prev < low or prev + _SECRET in earlier
            if not found and not row.knows(prev, batch.keys[position]):
                return OutOfOrder(
                    f"record {prev} of the same key has not arrived here", number=prev
                )
            if number >= low:
                earlier.add(number + _SECRET)
            if number >= low and not row.knows(number, batch.keys[position]):
                fresh.append(position)
        return None if len(fresh) == len(numbers) else fresh

    def duplicate_seqs(self, batch: Batch) -> list[int | None]:
        """Per record, the seq it was given, None where that is no longer known."""
        row = self.rows.get(batch.producer)
        if row is None:
            return [None] * batch.count
        return list(map(row.seq_of, batch.numbers))

    def record(
        self, batch: Batch, numbers: Sequence[int], first_seq: int, timestamp_ms: int
    ) -> None:
        """The records with these numbers were applied, at seqs from `first_seq` on."""
        row = self.rows.get(batch.producer)
        if row is None:
            row = self.rows[batch.producer] = Row()
        before = row.count
        row.epoch = batch.epoch  # not below the row's: `check` has seen to that
        row.settle(batch.low)
        row.last_ms = timestamp_ms
        if numbers:
            row.add(numbers, first_seq)
        self.remembered += row.count - before

    def fence(
        self, producer: int, epoch: int, token: int, timestamp_ms: int
    ) -> LognodeError | None:
        """A named producer was opened: older epochs are refused from now on.

        The row's numbers stay: a resumed import goes on in the same numbering (executions 1.10).
        An error: the table is full.
        """
        full = None if producer in self.rows else self._full()
        if full is not None:
            return full
        row = self.rows.setdefault(producer, Row())
        row.epoch = max(row.epoch, epoch)
        row.fence_token = token
        row.last_ms = timestamp_ms
        return None

    def retire(self, producers: Sequence[int]) -> None:
        """Rows of producers that closed, or were unused for 24 h, by replicated command."""
        for producer in producers:
            row = self.rows.pop(producer, None)
            self.remembered -= 0 if row is None else row.count

    def told(self, producer: int) -> tuple[int, ...]:
        """What the hash of effects covers of a producer's row: its numbers are covered as they
        come, by the replies."""
        row = self.rows.get(producer)
        return () if row is None else (row.epoch, row.low, row.highest, row.fence_token, row.count)

    def to_wire(self) -> dict[int, list[Any]]:
        """The table as meta stores it: a copy, of this very moment (executions 1.16)."""
        return {producer: row.to_wire() for producer, row in self.rows.items()}

    @classmethod
    def from_wire(cls, body: dict[int, list[Any]]) -> "Producers":
        """Undo `to_wire`."""
        table = cls()
        table.rows = {producer: Row.from_wire(row) for producer, row in body.items()}
        table.remembered = sum(row.count for row in table.rows.values())
        return table
