"""Numbers of a producer that came after higher ones, in any order.

Each batch asks how many of them are below a number, and there may be 65,536 of them. So they lie in
groups by their size: one group is searched, and the others count as a whole.
"""

from collections.abc import Iterator
from itertools import chain
from typing import Final

_GROUP_BITS: Final = 10


class LateNumbers:
    """A set of numbers, each added once. The bounds passed to `below` never fall."""

    __slots__ = ("_count", "_groups", "_passed")

    def __init__(self) -> None:
        self._count = 0
        self._groups: dict[int, list[int]] = {}
        """Groups that may have numbers at or above the last `low`: 513 groups in a window."""
        self._passed: list[int] = []
        """All other numbers."""

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[int]:
        return chain(self._passed, *self._groups.values())

    def copy(self) -> "LateNumbers":
        """Return a set that does not change with this one."""
        copy = LateNumbers()
        copy._count = self._count
        copy._groups = {group: numbers.copy() for group, numbers in self._groups.items()}
        copy._passed = self._passed.copy()
        return copy

    def add(self, number: int) -> None:
        """Add a number that is not below the last `low`."""
        self._count += 1
        group = number >> _GROUP_BITS
        found = self._groups.get(group)
        if found is None:
            self._groups[group] = [number]
        else:
            found.append(number)

    def below(self, low: int) -> int:
        """Return how many numbers are below `low`, which never falls."""
        if not self._count:
            return 0
        group = low >> _GROUP_BITS
        for passed in [each for each in self._groups if each < group]:
            self._passed += self._groups.pop(passed)
        return len(self._passed) + sum(map(low.__gt__, self._groups.get(group, ())))

    def clear(self) -> None:
        """Remove all numbers."""
        self._count = 0
        self._groups.clear()
        self._passed.clear()
