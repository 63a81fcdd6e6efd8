"""The last number that a producer gave to each key, which its next record follows."""

from collections.abc import Iterable
from itertools import repeat
from typing import Final

from .protocol.native import packing

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

    def before(self, keys: list[bytes], low: int) -> list[int] | None:
        """Return the last number of each key: 0 or a settled number when none is unsettled.

        Return None when all are below `low`, the smallest unsettled number.
        """
        if packing is not None:
            compiled: list[int] | None = packing.before(self._young, self._old, keys, low)
            return compiled
        older = map(self._old.get, keys, repeat(0))
        found = list(map(self._young.get, keys, older))
        return found if max(found, default=0) >= low else None

    def note_all(self, keys: list[bytes], numbers: range) -> None:
        """Note consecutive numbers given to the keys."""
        if packing is None:
            self.note(zip(keys, numbers, strict=True), numbers[-1])
            return
        packing.note(self._young, keys, numbers[0])
        self._greatest = max(self._greatest, numbers[-1])

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
