"""A column of byte strings over numpy: one buffer, the start and the length of each string.

This module copies many strings with a handful of calls. A string of any length is copied in one or
two pieces whose size is a power of two, and all pieces of one size are copied together. So the
number of calls depends on the longest string, not on the number of strings.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..client.protocol.native import native

Bytes = NDArray[np.uint8]
Numbers = NDArray[np.int64]
Marks = NDArray[np.bool_]

SLACK: Final = 16
"""The bytes at the end of a buffer that belong to no string, where words or heads are read: a word
is read at any byte of a string, and two heads of msgpack where a column is cut off."""
_COPIED_MAX: Final = 4 << 20
"""The bytes that one call copies, through a buffer of that size."""


class Strings:
    """Strings in one buffer, in any order."""

    __slots__ = ("data", "lengths", "starts")

    def __init__(self, data: Bytes, starts: Numbers, lengths: Numbers) -> None:
        self.data = data
        self.starts = starts
        self.lengths = lengths

    @classmethod
    def of(cls, strings: Sequence[bytes]) -> "Strings":
        """Return the column of these strings."""
        lengths = np.fromiter(map(len, strings), np.int64, len(strings))
        data = np.frombuffer(b"".join([*strings, bytes(SLACK)]), np.uint8)
        return cls(data, np.cumsum(lengths) - lengths, lengths)

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, at: int) -> bytes:
        start = int(self.starts[at])
        return self.data[start : start + int(self.lengths[at])].tobytes()

    def __iter__(self) -> Iterator[bytes]:
        return map(self.__getitem__, range(len(self)))

    @property
    def extent(self) -> tuple[int, int]:
        """Where strings that lie side by side begin and end in the buffer."""
        if not len(self):
            return 0, 0
        return int(self.starts[0]), int(self.starts[-1] + self.lengths[-1])

    def slice(self, begin: int, end: int) -> "Strings":
        """Return the strings at these positions, in the same buffer."""
        return Strings(self.data, self.starts[begin:end], self.lengths[begin:end])

    def repeated(self, counts: Numbers) -> "Strings":
        """Return each string so many times, in the same buffer."""
        return Strings(self.data, np.repeat(self.starts, counts), np.repeat(self.lengths, counts))

    def take(self, places: Numbers) -> "Strings":
        """Return the strings at these positions, side by side in a new buffer."""
        if native is None:
            return Strings(self.data, self.starts[places], self.lengths[places])._packed()
        found = native.gather(self.data, self.starts, self.lengths, places)
        lengths = np.frombuffer(found[1], np.int64)
        return Strings(np.frombuffer(found[0], np.uint8), np.cumsum(lengths) - lengths, lengths)

    def _packed(self) -> "Strings":
        """Return the same strings side by side in a new buffer."""
        length = int(self.lengths[0]) if len(self) else 0
        if length and (self.lengths == length).all():
            data = _pieces(self.data, length)[self.starts].view(np.uint8)
            return Strings(data, np.arange(0, len(data), length), self.lengths)
        ends = np.cumsum(self.lengths)
        starts = ends - self.lengths
        data = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
        copy(self, data, starts)
        return Strings(data, starts, self.lengths)


def joined(parts: Sequence[Strings]) -> Strings:
    """Return the strings of all parts, one part after the other."""
    sizes = [len(part.data) for part in parts]
    bases = np.cumsum([0, *sizes[:-1]])
    return Strings(
        np.concatenate([part.data for part in parts]),
        np.concatenate([part.starts + base for part, base in zip(parts, bases, strict=True)]),
        np.concatenate([part.lengths for part in parts]),
    )


def copy(source: Strings, target: Bytes, places: Numbers) -> None:
    """Copy each string to its place in `target`. Nothing else there changes."""
    lengths = source.lengths
    if not len(lengths):
        return
    longest = int(lengths.max())
    if longest == lengths.min():
        _copy_pieces(source.data, source.starts, target, places, longest)
        return
    _, exponents = np.frexp(lengths)  # n has its highest bit at exponent - 1
    for exponent in range(1, longest.bit_length() + 1):
        chosen = np.flatnonzero(exponents == exponent)
        if not len(chosen):
            continue
        size = 1 << (exponent - 1)
        starts, ends = source.starts[chosen], places[chosen]
        _copy_pieces(source.data, starts, target, ends, size)
        # The second piece ends where the string ends, and may begin within the first.
        more = lengths[chosen] - size
        _copy_pieces(source.data, starts + more, target, ends + more, size)


def _copy_pieces(source: Bytes, starts: Numbers, target: Bytes, places: Numbers, size: int) -> None:
    if not size:
        return
    read, written = _pieces(source, size), _pieces(target, size)
    step = max(1, _COPIED_MAX // size)
    for begin in range(0, len(starts), step):
        written[places[begin : begin + step]] = read[starts[begin : begin + step]]


def _pieces(data: Bytes, size: int) -> NDArray[Any]:
    """Return a view of each stretch of `size` bytes, from every byte on."""
    shape = (max(0, len(data) - size + 1),)
    return np.ndarray(shape, np.dtype((np.void, size)), data, 0, (1,))


def stretches(strings: Strings, places: Numbers, at: int, size: int) -> NDArray[np.uint64]:
    """Return `size` bytes from the `at`-th on of the strings at some positions, 8 in a number.

    All these strings have so many bytes.
    """
    found = _pieces(strings.data, size)[strings.starts[places] + at]
    return found.view(np.uint64).reshape(len(places), size // 8)


def words(strings: Strings, places: Numbers, at: int) -> NDArray[np.uint64]:
    """Return the 8 bytes from the `at`-th on of the strings at some positions, as big-endian
    numbers. A string that ends earlier has zeros there. The buffer must have `SLACK`."""
    left = strings.lengths[places] - at
    starts = strings.starts[places] + at
    shortest = int(left.min()) if len(left) else 8
    if shortest < 8:
        starts = np.minimum(starts, len(strings.data) - 8)
    numbers = _pieces(strings.data, 8)[starts].view(">u8").astype(np.uint64)
    if shortest < 8:
        drop = (8 * (8 - np.clip(left, 1, 8))).astype(np.uint64)
        numbers = (numbers >> drop) << drop
        numbers[left <= 0] = 0
    return numbers
