"""Strings in the buffers in which they came: values on their way into a segment.

Values are most of the bytes of a segment. Nothing copies a value between the batch or block in
which the value came and the block that it goes into.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from .strings import Numbers, Strings

PLACE_BITS: Final = 40
"""The low bits of a place: where the string begins in its buffer. The others are the buffer."""
_BEGINS: Final = (1 << PLACE_BITS) - 1


class Scattered:
    """Strings in any order. A place has the number of the string's buffer, and where the string
    begins there."""

    __slots__ = ("buffers", "lengths", "places")

    @classmethod
    def side_by_side(cls, buffer: bytes, lengths: Numbers) -> "Scattered":
        """Return the strings of these lengths in one buffer."""
        return cls((buffer,), np.cumsum(lengths) - lengths, lengths)

    def __init__(self, buffers: tuple[bytes, ...], places: Numbers, lengths: Numbers) -> None:
        self.buffers = buffers
        self.places = places
        self.lengths = lengths

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, at: int) -> bytes:
        place = self.places.item(at)
        begin = place & _BEGINS
        return self.buffers[place >> PLACE_BITS][begin : begin + self.lengths.item(at)]

    def slice(self, begin: int, end: int) -> "Scattered":
        """Return the strings at these positions, in the same buffers."""
        return Scattered(self.buffers, self.places[begin:end], self.lengths[begin:end])

    def chosen(self, places: Numbers) -> "Scattered":
        """Return the strings at any positions, in the same buffers."""
        return Scattered(self.buffers, self.places[places], self.lengths[places])

    def together(self) -> Strings:
        """Return the strings in one buffer, which has the bytes of all buffers."""
        sizes = [len(buffer) for buffer in self.buffers]
        begins = np.cumsum([0, *sizes])[self.places >> PLACE_BITS]
        data = np.frombuffer(b"".join(self.buffers), np.uint8)
        return Strings(data, begins + (self.places & _BEGINS), self.lengths)


def joined(parts: Sequence[Scattered]) -> Scattered:
    """Return the strings of all parts, at least one, one part after the other."""
    places, buffers = [], 0
    for part in parts:
        places.append(part.places + (buffers << PLACE_BITS))
        buffers += len(part.buffers)
    return Scattered(
        tuple(buffer for part in parts for buffer in part.buffers),
        np.concatenate(places), np.concatenate([part.lengths for part in parts]),
    )  # fmt: skip
