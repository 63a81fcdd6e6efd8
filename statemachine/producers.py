"""Idempotence: what a range remembers of the producers that wrote to it (ranges.md section 5).

A producer numbers its records 1, 2, 3... over all ranges. A range keeps the numbers that it
applied at or above `low`, the producer's smallest number not settled, since anything below can
never be sent again. Numbers run over all ranges, so the applied ones are a set, not an interval.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from operator import itemgetter
from typing import Any, Final

from ..client import limits
from ..client.errors import Fenced, LimitExceeded, LognodeError, OutOfOrder, Overloaded
from ..client.records import Batch
from .number_runs import NumberRuns, united_runs

_SETTLED_KEPT: Final = 64
"""Settled numbers beyond what `settle` needs to be cheap; nobody asks for them any more."""


@dataclass(slots=True)
class Row:
    """One producer in one range."""

    epoch: int = 0
    low: int = 1
    highest: int = 0
    applied: dict[int, int] = field(default_factory=dict)
    """Number to seq, for numbers at or above `low` and some below, as far as they are not in
    `inherited`."""
    last_ms: int = 0
    fence_token: int = 0
    inherited: NumberRuns = field(default_factory=lambda: NumberRuns((), ()))
    """Those that the base had with which this replica began."""
    ordered: list[int] = field(default_factory=list)
    """The numbers in `applied`, ascending."""

    def seq_of(self, number: int) -> int | None:
        """The seq that a number was given, None where it was not applied or is forgotten."""
        seq = self.applied.get(number)
        return self.inherited.get(number) if seq is None else seq

    def numbers(self) -> dict[int, int]:
        """All that it remembers, ascending, with their seqs."""
        own = zip(self.ordered, map(self.applied.__getitem__, self.ordered), strict=True)
        if not self.inherited.count:
            return dict(own)
        return dict(sorted((*self.inherited.items(), *own)))

    def to_wire(self) -> list[Any]:
        """The row as meta stores it."""
        runs = self.inherited
        if self.ordered:
            known = self.numbers()
            runs = NumberRuns(list(known), list(known.values()))
        return [self.epoch, self.low, self.highest, runs.to_wire(), self.last_ms, self.fence_token]

    @classmethod
    def from_wire(cls, body: Sequence[Any]) -> "Row":
        """Undo `to_wire`."""
        epoch, low, highest, runs, last_ms, token = body
        return cls(epoch, low, highest, {}, last_ms, token, NumberRuns.from_wire(runs))

    def settle(self, low: int) -> None:
        """Nothing below `low` is ever sent again; what is remembered of it goes in bulk.

        Only when it is more than half of all, so that what is kept follows from what is under way
        in this range, however many ranges there are. That depends on the row alone, so that tables
        are the same on every replica.
        """
        self.low = max(self.low, low)
        settled = bisect_left(self.ordered, self.low)
        inherited = self.inherited
        passed = inherited.below(self.low) if inherited.count else 0
        if 2 * (settled + passed) > len(self.ordered) + inherited.count + _SETTLED_KEPT:
            inherited.settle(self.low)
            deque(map(self.applied.pop, self.ordered[:settled], repeat(None)), maxlen=0)
            del self.ordered[:settled]

    def add(self, numbers: Sequence[int], first_seq: int) -> None:
        """These, ascending and none of them known, were applied, at seqs from `first_seq` on."""
        seqs = range(first_seq, first_seq + len(numbers))
        self.applied.update(zip(numbers, seqs, strict=True))
        if numbers[0] > self.highest:
            self.ordered.extend(numbers)
        else:  # late: an earlier attempt was lost
            at = bisect_left(self.ordered, numbers[0])
            self.ordered[at:] = sorted((*self.ordered[at:], *numbers))
        self.highest = max(self.highest, numbers[-1])


def united_rows(
    one: Mapping[int, list[Any]], other: Mapping[int, list[Any]]
) -> dict[int, list[Any]]:
    """The tables of two ranges that are merged, as meta stores them, as one.

    Of a producer that both know, the row of the higher epoch stays and nothing of the other's: its
    numbers may mean other records (executions 1.9). Of one epoch, what either applied was applied,
    and what is settled in one is settled.
    """
    rows = dict(one)
    for producer, row in other.items():
        known = rows.get(producer)
        rows[producer] = row if known is None or known == row else _united(known, row)
    return rows


def _united(one: list[Any], other: list[Any]) -> list[Any]:
    epoch, low, highest, runs, last_ms, token = max(one, other, key=itemgetter(0))
    last_ms = max(one[4], other[4])
    if one[0] == other[0]:
        low, highest, token = max(low, other[1]), max(highest, other[2]), max(token, other[5])
        runs = united_runs(runs, other[3])
    return [epoch, low, highest, runs, last_ms, token]


class Producers:
    """The table of one range. Every decision depends on the table and the batch alone."""

    def __init__(self) -> None:
        self.rows: dict[int, Row] = {}

    def check(self, batch: Batch) -> "list[int] | LognodeError | None":
        """What is new in the batch.

        None: all of it, in order (the fast path). A list: the positions of the new records, the
        others are duplicates. An error: nothing of it may be applied.
        """
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
            wanted = {prev for prev in set(prevs or ()) if prev >= low}
            if wanted <= applied.keys() or None not in map(row.seq_of, wanted):
                return None
        fresh: list[int] = []
        earlier: set[int] = set()
        for position, number in enumerate(numbers):
            prev = prevs[position] if prevs is not None else 0
            if prev >= low and prev not in earlier and row.seq_of(prev) is None:
                return OutOfOrder(
                    f"record {prev} of the same key has not arrived here", number=prev
                )
            earlier.add(number)
            if number >= low and row.seq_of(number) is None:
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
        row.epoch = batch.epoch  # not below the row's: `check` has seen to that
        row.settle(batch.low)
        row.last_ms = timestamp_ms
        if numbers:
            row.add(numbers, first_seq)

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
            self.rows.pop(producer, None)

    def to_wire(self) -> dict[int, list[Any]]:
        """The table as meta stores it: a copy, of this very moment (executions 1.16)."""
        return {producer: row.to_wire() for producer, row in self.rows.items()}

    @classmethod
    def from_wire(cls, body: dict[int, list[Any]]) -> "Producers":
        """Undo `to_wire`."""
        table = cls()
        table.rows = {producer: Row.from_wire(row) for producer, row in body.items()}
        return table
