"""A range's row for one producer, in the table of `producers`.

A row may have half a million numbers, so it is copied in C, and stored in steps.
"""

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from heapq import merge
from itertools import chain, islice
from typing import Any, Final, NamedTuple

from .late_numbers import LateNumbers
from .number_blocks import NumberBlocks
from .number_runs import STEP_NUMBERS, NumberRuns, RunsMaker, done
from .spans import has

ROW_FIELDS: Final = 6
"""The fields of a stored row before its elders and what it counts."""
SETTLED_KEPT: Final = 64
"""Settled numbers that are kept so that `settle` is cheap; nobody asks for them any more."""


class Elder(NamedTuple):
    """A range's knowledge of a producer at a merge, when its neighbour knew a newer epoch.

    It holds for the range's own keys alone, as if the range had learned of the newer epoch before
    the merge. A known record of these keys is a duplicate (x10). No unknown record of these keys is
    below `low` (x9).
    """

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

    def wire_steps(self) -> Generator[None, None, list[Any]]:
        """Return the elder in the form of a row, in steps."""
        numbers = yield from self.numbers.wire_steps()
        return [self.start, self.end, self.low, self.highest, numbers]

    @classmethod
    def from_wire(cls, body: Sequence[Any]) -> "Elder":
        """Undo `wire_steps`."""
        start, end, low, highest, runs = body
        return cls(start, end, low, highest, NumberRuns.from_wire(runs))


@dataclass(slots=True)
class Row:
    """One producer in one range."""

    epoch: int = 0
    low: int = 1
    highest: int = 0
    applied: NumberBlocks = field(default_factory=NumberBlocks)
    """The numbers at or above `low`, and some below, without those in `inherited` and `late`."""
    last_ms: int = 0
    fence_token: int = 0
    inherited: NumberRuns = field(default_factory=lambda: NumberRuns((), ()))
    """The numbers in the base with which this replica began."""
    late: LateNumbers = field(default_factory=LateNumbers)
    """Numbers that came after higher ones: an earlier attempt was lost."""
    elders: list[Elder] = field(default_factory=list)
    """The states of older epochs, nearly always empty. `highest` is not below theirs."""
    weighed: int | None = None
    """What the numbers count of the range's memory; None: each number counts (`weigh`)."""

    def seq_of(self, number: int) -> int | None:
        """Return the seq of a number; None if the number was not applied or is forgotten."""
        seq = self._own(number)
        for elder in self.elders if seq is None else ():
            seq = elder.numbers.get(number) if seq is None else seq
        return seq

    def seqs_of(self, numbers: Sequence[int]) -> list[int | None]:
        """Return the same for each of some ascending numbers."""
        seqs = self.applied.of_one_block(numbers)
        if seqs is not None:
            return list(seqs)
        return list(map(self.seq_of if self.elders else self._own, numbers))

    def _own(self, number: int) -> int | None:
        """Return the seq of a number that was applied under this epoch."""
        seq = self.applied.get(number)
        if seq is None:
            seq = self.late.get(number)
        return self.inherited.get(number) if seq is None else seq

    def knows(self, number: int, key: bytes) -> bool:
        """Whether the record was applied, or settled under an older epoch."""
        if not self.elders:
            return self.seq_of(number) is not None
        own = self._own(number) is not None
        return own or any(elder.knows(number, key) for elder in self.elders)

    @property
    def count(self) -> int:
        """The count of remembered numbers, without those of its elders."""
        return len(self.applied) + len(self.late) + self.inherited.count

    @property
    def weight(self) -> int:
        """What the numbers count of the range's memory."""
        return self.count if self.weighed is None else self.weighed

    def weight_above(self, low: int) -> int:
        """Return what the numbers will count once those below `low` are forgotten."""
        low, count = max(low, self.low), self.count
        settled = self.applied.below(low) + self.late.count_below(low) + self.inherited.below(low)
        return _part(self.weight, count - settled, count)

    def numbers(self) -> list[tuple[int, int]]:
        """Return all remembered numbers, ascending, each with its seq."""
        return list(self._known())

    def _known(self) -> Iterator[tuple[int, int]]:
        parts: list[Iterable[tuple[int, int]]] = [self.applied]
        if self.late:
            parts.append(self.late)
        if self.inherited.count:
            parts.append(self.inherited.items())
        return iter(self.applied) if len(parts) == 1 else merge(*parts)

    def copy(self) -> "Row":
        """Return a row that does not change with this one."""
        return replace(
            self, applied=self.applied.copy(), inherited=self.inherited.copy(),
            late=self.late.copy(), elders=self.elders.copy(),
        )  # fmt: skip

    def to_wire(self) -> list[Any]:
        """Return the row as meta stores it."""
        return done(self.wire_steps())

    def wire_steps(self) -> Generator[None, None, list[Any]]:
        """Do the same in steps of a few milliseconds; the row must not change meanwhile."""
        runs = yield from self._runs_steps()
        elders = []
        for elder in self.elders:
            elders.append((yield from elder.wire_steps()))
        row = [self.epoch, self.low, self.highest, runs, self.last_ms, self.fence_token]
        return with_rest(row, elders, self.weighed)

    def _runs_steps(self) -> Generator[None, None, list[list[int]]]:
        if not self.applied and not self.late:
            return (yield from self.inherited.wire_steps())
        maker, runs = RunsMaker(), self._runs()
        while some := list(islice(runs, STEP_NUMBERS)):
            for run in some:
                maker.add_run(*run)
            yield
        return maker.to_wire()

    def _runs(self) -> Iterator[tuple[int, int, int]]:
        """Yield all remembered numbers in runs, as `RunsMaker.add_run` takes them."""
        if self.late:
            return ((number, seq, 1) for number, seq in self._known())
        # The numbers of the base are lower than all that were applied since then.
        return chain(self.inherited.runs(), self.applied.runs())

    @classmethod
    def from_wire(cls, body: Sequence[Any]) -> "Row":
        """Undo `to_wire`."""
        epoch, low, highest, runs, last_ms, token = body[:ROW_FIELDS]
        row = cls(epoch, low, highest, last_ms=last_ms, fence_token=token)
        elders, row.weighed = rest_of(body)
        row.inherited = NumberRuns.from_wire(runs)
        row.elders = [Elder.from_wire(elder) for elder in elders]
        return row

    def weigh(self) -> None:
        """Count batches of consecutive numbers less from now on, by the rules of level 5."""
        if self.weighed is None:
            self.weighed = self.count

    def settle(self, low: int) -> None:
        """Note that no number below `low` is ever sent again, and forget such numbers in bulk.

        Numbers are forgotten only when they are more than half of all. So the remembered count
        follows from the records in progress in this range, however many ranges there are. The
        decision depends on the row alone, so that tables are the same on every replica.
        """
        self.low = max(self.low, low)
        if self.elders:
            self.elders = [e for e in self.elders if max(e.low, e.highest + 1) > self.low]
        inherited = self.inherited
        passed = inherited.below(self.low) if inherited.count else 0
        settled = self.applied.below(self.low) + self.late.below(self.low) + passed
        many = 2 * settled - SETTLED_KEPT
        if many <= 0 or many <= self.count:  # the count takes longer than the comparison
            return
        if self.weighed is not None:
            self.weighed = _part(self.weighed, self.count - settled, self.count)
        for numbers in (self.applied, self.late, inherited):
            numbers.settle(self.low)

    def add(self, numbers: Sequence[int], first_seq: int, weight_max: int | None = None) -> None:
        """Add ascending new numbers, applied at seqs from `first_seq` on. Consecutive numbers above
        all others count `weight_max` at most."""
        count, is_last = len(numbers), numbers[0] > self.highest
        if self.weighed is not None:
            is_light = is_last and numbers[-1] - numbers[0] == count - 1
            self.weighed += min(count, weight_max or count) if is_light else count
        if is_last:
            self.applied.add(numbers, first_seq)
        else:
            self.late.add(numbers, first_seq)
        self.highest = max(self.highest, numbers[-1])


def _part(weight: int, left: int, count: int) -> int:
    """Return the weight of the numbers that are left of so many: their share, rounded up."""
    return -(-weight * left // count) if count else 0


def with_rest(row: list[Any], elders: list[Any], weighed: int | None) -> list[Any]:
    """Return the first fields of a stored row with the others that it needs."""
    if weighed is not None:
        return [*row, elders, weighed]
    return [*row, elders] if elders else row


def rest_of(row: Sequence[Any]) -> tuple[list[Any], int | None]:
    """Return the elders of a stored row, and what it counts if it is weighed."""
    rest = row[ROW_FIELDS:]
    return rest[0] if rest else [], rest[1] if len(rest) > 1 else None
