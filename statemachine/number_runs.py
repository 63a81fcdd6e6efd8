"""Numbers of a producer with their seqs, in little room: runs of both that rise by one together.

What a base holds of a producer is kept so. Each child of a split has all of its parent's numbers,
of which few will ever be asked for: half a million of them in a dict take 50 MB a range; where a
producer wrote them in a row they are one run, of 24 bytes.

There may be half a million numbers, so that loops are in C, and runs are made and stored in steps.
"""

from array import array
from bisect import bisect_right
from collections.abc import Generator, Iterator, Sequence
from itertools import chain, compress, count, groupby
from operator import itemgetter, ne, sub
from typing import Final, TypeVar

T = TypeVar("T")
STEP_NUMBERS: Final = 4_096
"""Numbers of one step: 2 ms."""


class RunsMaker:
    """Makes runs of numbers that are given some at a time, ascending, with their seqs."""

    __slots__ = ("_count", "_firsts", "_last", "_ranks", "_seqs")

    def __init__(self) -> None:
        self._count = 0
        self._firsts: list[int] = []
        self._seqs: list[int] = []
        self._ranks: list[int] = []
        self._last: tuple[int, int] | None = None
        """What the last number and its seq have in common with the next ones of their run."""

    def add(self, numbers: Sequence[int], seqs: Sequence[int]) -> None:
        """These come next."""
        at = self._count
        places = zip(map(sub, numbers, count(at)), map(sub, seqs, count(at)), strict=True)
        offsets = list(places)
        begins = list(compress(count(), map(ne, offsets, chain((self._last,), offsets))))
        self._firsts += map(numbers.__getitem__, begins)
        self._seqs += map(seqs.__getitem__, begins)
        self._ranks += map(at.__add__, begins)
        self._count += len(offsets)
        self._last = offsets[-1] if offsets else self._last

    def to_wire(self) -> list[list[int]]:
        """All of them, as tables have it: the first numbers and seqs of runs, and where each begins
        and the last one ends, counted in numbers. Nothing can be added any more."""
        self._ranks.append(self._count)
        return [self._firsts, self._seqs, self._ranks]


class NumberRuns:
    """Immutable but for `settle`. Numbers and seqs are below 2**63."""

    __slots__ = ("_firsts", "_ranks", "_seqs")

    def __init__(self, numbers: Sequence[int], seqs: Sequence[int]) -> None:
        """Of numbers, ascending, with their seqs."""
        maker = RunsMaker()
        maker.add(numbers, seqs)
        self._firsts, self._seqs, self._ranks = (array("Q", each) for each in maker.to_wire())

    def copy(self) -> "NumberRuns":
        """Runs that do not change with these."""
        runs = NumberRuns((), ())
        runs._firsts, runs._seqs, runs._ranks = self._firsts[:], self._seqs[:], self._ranks[:]
        return runs

    def to_wire(self) -> list[list[int]]:
        """As tables have it, see `RunsMaker.to_wire`."""
        return done(self.wire_steps())

    def wire_steps(self) -> Generator[None, None, list[list[int]]]:
        """The same in steps, of runs that do not change meanwhile."""
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
        """How many numbers there are."""
        return self._ranks[-1] - self._ranks[0]

    def get(self, number: int) -> int | None:
        """The seq of a number, None where it is not among them."""
        at = bisect_right(self._firsts, number) - 1
        if at < 0 or number - self._firsts[at] >= self._length(at):
            return None
        return self._seqs[at] + number - self._firsts[at]

    def items(self) -> Iterator[tuple[int, int]]:
        """Numbers, ascending, with their seqs."""
        for at, (first, seq) in enumerate(zip(self._firsts, self._seqs, strict=True)):
            length = self._length(at)
            yield from zip(range(first, first + length), range(seq, seq + length), strict=True)

    def below(self, low: int) -> int:
        """How many numbers are below it."""
        at = bisect_right(self._firsts, low - 1) - 1
        if at < 0:
            return 0
        passed = min(self._length(at), low - self._firsts[at])
        return self._ranks[at] - self._ranks[0] + passed

    def settle(self, low: int) -> None:
        """Forget the numbers below."""
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
    """The numbers of two tables, as these have them, with their seqs: a number that both have,
    since a split, has the same seq in both."""
    if one == other or not other[0]:
        return one
    if not one[0]:
        return other
    # No dict: a client may have chosen the numbers so that a dict takes seconds (`producers`).
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
