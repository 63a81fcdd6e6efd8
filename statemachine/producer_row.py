"""A range's row for one producer, in the table of `producers`.

A row may have half a million numbers, so it is copied in C, and stored in steps.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from heapq import merge
from itertools import islice, repeat
from typing import Any, Final, NamedTuple

from .late_numbers import LateNumbers
from .number_runs import STEP_NUMBERS, NumberRuns, RunsMaker, done
from .spans import has

SETTLED_KEPT: Final = 64
"""Settled numbers that are kept so that `settle` is cheap; nobody asks for them any more."""
_LATE_MIN: Final = 256
_LATE_PART: Final = 8
"""Late numbers are sorted in once their count exceeds this fraction of the others."""
SECRET: Final = hash("where record numbers lie in a table") & ((1 << 59) - 1)
"""An offset that is added to a number before it is a key of a hash table. Python hashes an integer
to itself, so a client could choose numbers that share places: with 110,000 of them in one
producer's window, 8,000 more took 1.5 s of every member whenever they were sent again. The hash of
a text is secret in each process. Consecutive numbers still lie side by side.
"""


def _keys(numbers: Sequence[int]) -> Sequence[int]:
    """Return numbers as keys of a hash table.

    A range, the usual case, needs no Python per number.
    """
    if isinstance(numbers, range):
        return range(numbers.start + SECRET, numbers.stop + SECRET, numbers.step)
    return [number + SECRET for number in numbers]


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
    applied: dict[int, int] = field(default_factory=dict)
    """Maps number plus `SECRET` to seq, for numbers at or above `low` and some below that are not
    in `inherited`."""
    last_ms: int = 0
    fence_token: int = 0
    inherited: NumberRuns = field(default_factory=lambda: NumberRuns((), ()))
    """The numbers in the base with which this replica began."""
    ordered: list[int] = field(default_factory=list)
    """The numbers in `applied`, ascending, without those in `late`."""
    late: LateNumbers = field(default_factory=LateNumbers)
    """Numbers that came after higher ones. Sorting them in costs as much as all remembered numbers,
    so they wait until they are many."""
    elders: list[Elder] = field(default_factory=list)
    """The states of older epochs, nearly always empty. `highest` is not below theirs."""

    def seq_of(self, number: int) -> int | None:
        """Return the seq of a number; None if the number was not applied or is forgotten."""
        seq = self.applied.get(number + SECRET)
        if seq is None:
            seq = self.inherited.get(number)
        for elder in self.elders if seq is None else ():
            seq = elder.numbers.get(number) if seq is None else seq
        return seq

    def knows(self, number: int, key: bytes) -> bool:
        """Whether the record was applied, or settled under an older epoch."""
        if not self.elders:
            return self.seq_of(number) is not None
        own = self.applied.get(number + SECRET) is not None
        own = own or self.inherited.get(number) is not None
        return own or any(elder.knows(number, key) for elder in self.elders)

    @property
    def count(self) -> int:
        """The count of remembered numbers, without those of its elders."""
        return len(self.applied) + self.inherited.count

    def numbers(self) -> list[tuple[int, int]]:
        """Return all remembered numbers, ascending, each with its seq."""
        return list(self._known())

    def _known(self) -> Iterator[tuple[int, int]]:
        late = sorted(self.late)
        parts: list[Iterator[tuple[int, int]]] = [
            zip(numbers, map(self.applied.__getitem__, map(SECRET.__add__, numbers)), strict=True)
            for numbers in (self.ordered, late)
            if numbers
        ]
        if self.inherited.count:
            parts.append(self.inherited.items())
        return parts[0] if len(parts) == 1 else merge(*parts)

    def copy(self) -> "Row":
        """Return a row that does not change with this one.

        Half a million numbers take some 5 ms.
        """
        return replace(
            self, applied=self.applied.copy(), inherited=self.inherited.copy(),
            ordered=self.ordered.copy(), late=self.late.copy(), elders=self.elders.copy(),
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
        return [self.epoch, self.low, self.highest, runs, self.last_ms, self.fence_token,
                *([elders] if elders else ())]  # fmt: skip

    def _runs_steps(self) -> Generator[None, None, list[list[int]]]:
        if not self.applied:
            return (yield from self.inherited.wire_steps())
        maker = RunsMaker()
        known = self._known()
        while some := list(islice(known, STEP_NUMBERS)):
            maker.add(*zip(*some, strict=True))
            yield
        return maker.to_wire()

    @classmethod
    def from_wire(cls, body: Sequence[Any]) -> "Row":
        """Undo `to_wire`."""
        epoch, low, highest, runs, last_ms, token, *rest = body
        row = cls(epoch, low, highest, {}, last_ms, token, NumberRuns.from_wire(runs))
        row.elders = [Elder.from_wire(elder) for each in rest for elder in each]
        return row

    def settle(self, low: int) -> None:
        """Note that no number below `low` is ever sent again, and forget such numbers in bulk.

        Numbers are forgotten only when they are more than half of all. So the remembered count
        follows from the records in progress in this range, however many ranges there are. The
        decision depends on the row alone, so that tables are the same on every replica.
        """
        self.low = max(self.low, low)
        if self.elders:
            self.elders = [e for e in self.elders if max(e.low, e.highest + 1) > self.low]
        settled = bisect_left(self.ordered, self.low) + self.late.below(self.low)
        inherited = self.inherited
        passed = inherited.below(self.low) if inherited.count else 0
        if 2 * (settled + passed) > self.count + SETTLED_KEPT:
            self._sort_late_in()
            inherited.settle(self.low)
            deque(map(self.applied.pop, _keys(self.ordered[:settled]), repeat(None)), maxlen=0)
            del self.ordered[:settled]

    def add(self, numbers: Sequence[int], first_seq: int) -> None:
        """Add ascending new numbers, applied at seqs from `first_seq` on."""
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
