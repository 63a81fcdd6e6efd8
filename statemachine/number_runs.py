"""Numbers of a producer with their seqs, in little room: runs of both that rise by one together.

What a base holds of a producer is kept so. Each child of a split has all of its parent's numbers,
of which few will ever be asked for: half a million of them in a dict take 50 MB a range; where a
producer wrote them in a row they are one run, of 24 bytes.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import compress, count, groupby, islice
from operator import itemgetter, ne, sub


class NumberRuns:
    """Immutable but for `settle`. Numbers and seqs are below 2**63."""

    __slots__ = ("_firsts", "_ranks", "_seqs")

    def __init__(self, numbers: Sequence[int], seqs: Sequence[int]) -> None:
        """Of numbers, ascending, with their seqs. Loops in C: there may be half a million."""
        offsets = list(zip(map(sub, numbers, count()), map(sub, seqs, count()), strict=True))
        begins = list(compress(count(1), map(ne, offsets, islice(offsets, 1, None))))
        if numbers:
            begins.insert(0, 0)
        self._firsts = array("Q", map(numbers.__getitem__, begins))
        self._seqs = array("Q", map(seqs.__getitem__, begins))
        self._ranks = array("Q", [*begins, len(numbers)])
        """How many numbers come before each run, and before the end."""

    def to_wire(self) -> list[list[int]]:
        """As tables have it: the first numbers and seqs of runs, and where each begins and the last
        one ends, counted in numbers."""
        before = self._ranks[0]
        return [self._firsts.tolist(), self._seqs.tolist(), [rank - before for rank in self._ranks]]

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
