"""Numbers of a producer that came after higher ones, in any order, with their seqs.

Each batch asks how many of them are below a number, and there may be half a million of them. So
they lie in groups by their size: one group is searched, and the others count as a whole. The keys
of a group's dict differ in their last bits, so no numbers that a client chooses share its places.
"""

from collections.abc import Iterator, Sequence
from typing import Final

_GROUP_BITS: Final = 10


class LateNumbers:
    """Numbers, each added once. The bounds passed to `below` and `settle` never fall."""

    __slots__ = ("_count", "_groups", "_passed", "_passed_count")

    def __init__(self) -> None:
        self._count = 0
        self._groups: dict[int, dict[int, int]] = {}
        """Seqs by number, in groups that may have numbers at or above the last bound: 513 groups in
        a window."""
        self._passed: dict[int, dict[int, int]] = {}
        """All other groups."""
        self._passed_count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Yield the numbers, ascending, each with its seq."""
        for groups in (self._passed, self._groups):
            for group in sorted(groups):
                yield from sorted(groups[group].items())

    def copy(self) -> "LateNumbers":
        """Return numbers that do not change with these."""
        copy = LateNumbers()
        copy._count, copy._passed_count = self._count, self._passed_count
        copy._groups = {group: seqs.copy() for group, seqs in self._groups.items()}
        copy._passed = self._passed.copy()
        return copy

    def add(self, numbers: Sequence[int], first_seq: int) -> None:
        """Add numbers that are not below the last bound, with consecutive seqs."""
        groups = self._groups
        for seq, number in enumerate(numbers, first_seq):
            group = groups.get(number >> _GROUP_BITS)
            if group is None:
                group = groups[number >> _GROUP_BITS] = {}
            group[number] = seq
        self._count += len(numbers)

    def get(self, number: int) -> int | None:
        """Return the seq of a number, or None for an unknown number."""
        if not self._count:
            return None
        at = number >> _GROUP_BITS
        group = self._groups.get(at) or self._passed.get(at)
        return None if group is None else group.get(number)

    def below(self, low: int) -> int:
        """Return how many numbers are below `low`."""
        if not self._count:
            return 0
        last = low >> _GROUP_BITS
        for passed in [each for each in self._groups if each < last]:
            group = self._passed[passed] = self._groups.pop(passed)
            self._passed_count += len(group)
        return self._passed_count + sum(map(low.__gt__, self._groups.get(last, ())))

    def count_below(self, low: int) -> int:
        """Return the same for any number that is not below the last bound, and change nothing."""
        last = low >> _GROUP_BITS
        whole = sum(len(seqs) for group, seqs in self._groups.items() if group < last)
        return self._passed_count + whole + sum(map(low.__gt__, self._groups.get(last, ())))

    def settle(self, low: int) -> None:
        """Forget the numbers below `low`."""
        self._count -= self.below(low)
        self._passed, self._passed_count = {}, 0
        last = low >> _GROUP_BITS
        left = {n: seq for n, seq in self._groups.pop(last, {}).items() if n >= low}
        if left:
            self._groups[last] = left
