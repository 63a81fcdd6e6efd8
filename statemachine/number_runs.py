"""Numbers of a producer with their seqs, in little room: runs in which both rise by one.

A base stores a producer's numbers so. Each child of a split has all of its parent's numbers, of
which few will ever be asked for. Half a million of them in a dict take 50 MB a range; numbers that
a producer wrote in sequence are one run, of 24 bytes.

There may be half a million numbers, so the loops are in C, and runs are made and stored in steps.
"""

from array import array
from bisect import bisect_right
from collections.abc import Generator, Iterator, Sequence
from itertools import chain, compress, count, groupby
from operator import itemgetter, ne, sub
from typing import Final, TypeVar

T = TypeVar("T")
STEP_NUMBERS: Final = 4_096
"""The numbers of one step: 2 ms."""


class RunsMaker:
    """Makes runs of ascending numbers and their seqs, which are given some at a time."""

    __slots__ = ("_count", "_firsts", "_last", "_ranks", "_seqs")

    def __init__(self) -> None:
        self._count = 0
        self._firsts: list[int] = []
        self._seqs: list[int] = []
        self._ranks: list[int] = []
        self._last: tuple[int, int] | None = None
        """The offsets of the last number and its seq, which all numbers of a run share."""

    def add(self, numbers: Sequence[int], seqs: Sequence[int]) -> None:
        """Append numbers with their seqs."""
        at = self._count
        places = zip(map(sub, numbers, count(at)), map(sub, seqs, count(at)), strict=True)
        offsets = list(places)
        begins = list(compress(count(), map(ne, offsets, chain((self._last,), offsets))))
        self._firsts += map(numbers.__getitem__, begins)
        self._seqs += map(seqs.__getitem__, begins)
        self._ranks += map(at.__add__, begins)
        self._count += len(offsets)
        self._last = offsets[-1] if offsets else self._last

    def add_run(self, first: int, first_seq: int, length: int) -> None:
        """Append consecutive numbers with consecutive seqs, some."""
        offsets = first - self._count, first_seq - self._count
        if offsets != self._last:
            self._firsts.append(first)
            self._seqs.append(first_seq)
            self._ranks.append(self._count)
        self._count += length
        self._last = offsets

    def to_wire(self) -> list[list[int]]:
        """Return all runs as tables store them. Nothing can be added afterwards.

        The columns are the first numbers and seqs of the runs, and where each run begins and the
        last ends, counted in numbers.
        """
        self._ranks.append(self._count)
        return [self._firsts, self._seqs, self._ranks]


class NumberRuns:
    """Runs of numbers, immutable but for `settle`. Numbers and seqs are below 2**63."""

    __slots__ = ("_firsts", "_ranks", "_seqs")

    def __init__(self, numbers: Sequence[int], seqs: Sequence[int]) -> None:
        """Make the runs of ascending numbers with their seqs."""
        maker = RunsMaker()
        maker.add(numbers, seqs)
        self._firsts, self._seqs, self._ranks = (array("Q", each) for each in maker.to_wire())

    def copy(self) -> "NumberRuns":
        """Return runs that do not change with these."""
        runs = NumberRuns((), ())
        runs._firsts, runs._seqs, runs._ranks = self._firsts[:], self._seqs[:], self._ranks[:]
        return runs

    def to_wire(self) -> list[list[int]]:
        """Return the runs as tables store them, see `RunsMaker.to_wire`."""
        return done(self.wire_steps())

    def wire_steps(self) -> Generator[None, None, list[list[int]]]:
        """Do the same in steps; the runs must not change meanwhile."""
        before = self._ranks[0]
        columns: list[list[int]] = []
        for source in (self._firsts, self._seqs, self._ranks):
            column: list[int] = []
            for begin in range(0, len(source), STEP_NUMBERS):
                column += source[begin : begin + STEP_NUMBERS]
                yield
            columns.append(column)
        if before:
            ranks = columns[-1]
            for begin in range(0, len(ranks), STEP_NUMBERS):
                part = slice(begin, begin + STEP_NUMBERS)
                ranks[part] = [rank - before for rank in ranks[part]]
                yield
        return columns

    @classmethod
    def from_wire(cls, body: Sequence[Sequence[int]]) -> "NumberRuns":
        """Undo `to_wire`."""
        runs = cls((), ())
        runs._firsts, runs._seqs, runs._ranks = (array("Q", column) for column in body)
        return runs

    @property
    def count(self) -> int:
        """The count of numbers."""
        return self._ranks[-1] - self._ranks[0]

    def get(self, number: int) -> int | None:
        """Return the seq of a number, or None for an unknown number."""
        at = bisect_right(self._firsts, number) - 1
        if at < 0 or number - self._firsts[at] >= self._length(at):
            return None
        return self._seqs[at] + number - self._firsts[at]

    def items(self) -> Iterator[tuple[int, int]]:
        """Yield the numbers, ascending, with their seqs."""
        for first, seq, length in self.runs():
            yield from zip(range(first, first + length), range(seq, seq + length), strict=True)

    def runs(self) -> Iterator[tuple[int, int, int]]:
        """Yield the first number of each run, the seq of this number, and the length of the run."""
        lengths = map(sub, self._ranks[1:], self._ranks)
        return zip(self._firsts, self._seqs, lengths, strict=True)

    def below(self, low: int) -> int:
        """Return how many numbers are below `low`."""
        at = bisect_right(self._firsts, low - 1) - 1
        if at < 0:
            return 0
        passed = min(self._length(at), low - self._firsts[at])
        return self._ranks[at] - self._ranks[0] + passed

    def settle(self, low: int) -> None:
        """Forget the numbers below `low`."""
        gone = bisect_right(self._firsts, low - 1)
        if gone and low - self._firsts[gone - 1] < self._length(gone - 1):
            gone -= 1
            passed = low - self._firsts[gone]
            for column in (self._firsts, self._seqs, self._ranks):
                column[gone] += passed
        for column in (self._firsts, self._seqs, self._ranks):
            del column[:gone]

    def _length(self, at: int) -> int:
        return self._ranks[at + 1] - self._ranks[at]


def united_runs(one: list[list[int]], other: list[list[int]]) -> list[list[int]]:
    """Return the numbers of two tables with their seqs, in the form of tables.

    A number in both tables, since a split, has the same seq in both.
    """
    if one == other or not other[0]:
        return one
    if not one[0]:
        return other
    # No dict: a client may choose numbers with which a dict takes seconds (`producers`).
    pairs = (*NumberRuns.from_wire(one).items(), *NumberRuns.from_wire(other).items())
    by_number = groupby(sorted(pairs, key=itemgetter(0)), itemgetter(0))
    known = [list(same)[-1] for _, same in by_number]
    return NumberRuns([number for number, _ in known], [seq for _, seq in known]).to_wire()


def done(steps: Generator[None, None, T]) -> T:
    """Do all steps at once and return their result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: T = end.value
            return found
