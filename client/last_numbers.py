"""What each record of a producer follows: the last number that was given to its key."""

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Final

_TURN_KEYS: Final = 4_096
"""A generation that has fewer is kept: what it takes is little, whatever is settled."""


class LastNumbers:
    """Per key the last number, for as long as it may not be settled.

    In two generations, and the old one goes whole once all of it is settled. So a lookup is among
    about as many keys as are under way, which the processor's cache holds, and nothing is copied.
    """

    def __init__(self) -> None:
        self._young: dict[bytes, int] = {}
        self._old: dict[bytes, int] = {}
        self._greatest = 0
        self._old_greatest = 0

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def before(self, keys: Sequence[bytes]) -> list[int]:
        """The last number of each key; 0, or one that was settled long ago, where none counts."""
        older = map(self._old.get, keys, repeat(0))
        return list(map(self._young.get, keys, older))

    def note(self, records: Iterable[tuple[bytes, int]], greatest: int) -> None:
        """The keys were given these numbers, up to `greatest`. Those of a key only ever rise."""
        self._young.update(records)
        self._greatest = max(self._greatest, greatest)

    def settle(self, low: int) -> None:
        """Nothing below `low` counts any more."""
        if self._old_greatest < low and len(self._young) >= _TURN_KEYS:
            self._old, self._young = self._young, {}
            self._old_greatest = self._greatest
