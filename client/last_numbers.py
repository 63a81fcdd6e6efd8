"""The last number that a producer gave to each key, which its next record follows."""

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Final

_TURN_KEYS: Final = 4_096
"""A generation with fewer keys is kept: its memory is small."""


class LastNumbers:
    """The last number per key, for as long as that number may be unsettled.

    The numbers are in two generations. The old generation is dropped whole once all its numbers are
    settled. So a lookup searches about as many keys as are in flight, which fit the processor's
    cache, and nothing is copied.
    """

    def __init__(self) -> None:
        self._young: dict[bytes, int] = {}
        self._old: dict[bytes, int] = {}
        self._greatest = 0
        self._old_greatest = 0

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def before(self, keys: Sequence[bytes]) -> list[int]:
        """Return the last number of each key: 0 or a number settled long ago when none is
        unsettled."""
        older = map(self._old.get, keys, repeat(0))
        return list(map(self._young.get, keys, older))

    def note(self, records: Iterable[tuple[bytes, int]], greatest: int) -> None:
        """Note the numbers given to the keys, at most `greatest`. The numbers of a key only
        rise."""
        self._young.update(records)
        self._greatest = max(self._greatest, greatest)

    def settle(self, low: int) -> None:
        """Drop the old generation when all its numbers are below `low`, the smallest unsettled
        number."""
        if self._old_greatest < low and len(self._young) >= _TURN_KEYS:
            self._old, self._young = self._young, {}
            self._old_greatest = self._greatest
