"""The keys of a memtable by position, in one buffer: no object for a key until somebody reads it.

A key takes its own bytes and four more, where a bytes object takes 41 more.
"""

from array import array
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np

from ..client.protocol.key_column import KeyColumn
from .compiled import memtables

if TYPE_CHECKING:
    from numpy.typing import NDArray

_END_BYTES: Final = 4


class KeyStore:
    """The key at position p is `data[ends[p] : ends[p + 1]]`; loops do that without a call."""

    __slots__ = ("data", "ends")

    def __init__(self) -> None:
        self.data = bytearray()
        self.ends = array("I", [0])

    def __len__(self) -> int:
        return len(self.ends) - 1

    @property
    def size(self) -> int:
        """The bytes of memory."""
        return len(self.data) + _END_BYTES * len(self.ends)

    def add(self, column: KeyColumn) -> None:
        """Append the keys of the column."""
        if memtables is not None:
            self.ends.frombytes(memtables.shifted(column.ends, len(self.data)))
        else:
            ends = np.frombuffer(column.ends, np.uint32) + np.uint32(len(self.data))
            self.ends.frombytes(ends.tobytes())
        self.data += column.data

    def __getitem__(self, position: int) -> bytes:
        return bytes(self.data[self.ends[position] : self.ends[position + 1]])

    def prefixes(self, begin: int) -> tuple["NDArray[np.int64]", "NDArray[np.int64]"]:
        """Return the first two bytes, as a number, and the position of each key from `begin` on.
        Keys of fewer bytes are left out."""
        ends = np.array(self.ends[begin:], np.int64)
        data = np.frombuffer(self.data[int(ends[0]) :], np.uint8)
        found = np.flatnonzero(np.diff(ends) > 1)
        at = ends[:-1][found] - ends[0]
        return data[at].astype(np.int64) * 256 + data[at + 1], found + begin

    def between(self, begin: int, end: int) -> list[bytes]:
        """Return the keys at these positions."""
        ends = self.ends[begin : end + 1]
        data = bytes(self.data[ends[0] : ends[-1]])
        first = ends[0]
        return [data[low - first : high - first] for low, high in pairwise(ends)]

    def clear(self) -> None:
        """Free all keys."""
        self.data = bytearray()
        self.ends = array("I", [0])
