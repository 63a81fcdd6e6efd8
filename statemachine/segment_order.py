"""The order of seq: for each seq that a segment holds, the rank of its entry by (key, seq).

It is kept in pieces of a few thousand entries, so that a read in the order of seq holds one:

    crc32c u32, size u32 of the rest when unpacked, then zstandard of: HEAD, seqs less the first
    (u32, or u64 where they need it; absent when none is left out), ranks u32
"""

import struct
from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from ..client.protocol.errors import CorruptData
from ..client.protocol.records import decompress
from .segment_format import ORDER, Stored, unseal

if TYPE_CHECKING:
    from numpy.typing import NDArray

PIECE: Final = 8_192
HEAD: Final = struct.Struct("<QIB")
"""The first seq, the number of entries, and the form of the seqs."""
SIZE: Final = struct.Struct("<I")
DENSE, NARROW, WIDE = range(3)
_ENTRY_BYTES: Final = 4 + 8


class Piece:
    """Seqs, ascending, and the rank of each."""

    __slots__ = ("ranks", "seqs", "size")

    def __init__(self, seqs: Sequence[int], ranks: "array[int]") -> None:
        self.seqs = seqs
        self.ranks = ranks
        self.size = _ENTRY_BYTES * len(ranks)

    def seq_numbers(self) -> "NDArray[np.uint64]":
        """Return the seqs as an array of NumPy, made without an object for each seq."""
        if isinstance(self.seqs, range):
            return np.arange(self.seqs.start, self.seqs.stop, dtype=np.uint64)
        return np.array(self.seqs, np.uint64)

    @classmethod
    def decode(cls, data: Stored, ordinal: int) -> "Piece":
        """Undo `encode`. Raises CorruptData."""
        packed = unseal(data, ORDER, ordinal)
        try:
            (size,) = SIZE.unpack_from(packed)
            if size > HEAD.size + PIECE * _ENTRY_BYTES:
                raise ValueError(f"{size} bytes")
            body = decompress(packed[SIZE.size :], size)
            first, count, kept = HEAD.unpack_from(body)
            less, at = array("I" if kept == NARROW else "Q"), HEAD.size
            if kept != DENSE:
                at += count * less.itemsize
                less.frombytes(body[HEAD.size : at])
            ranks = array("I", body[at:])
            if len(ranks) != count or not count or (kept != DENSE and len(less) != count):
                raise ValueError("the columns have different lengths")
            if kept == DENSE:
                return cls(range(first, first + count), ranks)
            return cls(array("Q", map(first.__add__, less)), ranks)
        except (struct.error, ValueError, OverflowError) as error:
            raise CorruptData(f"the seq order does not decode: {error}") from None
