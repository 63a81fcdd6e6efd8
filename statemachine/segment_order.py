"""The order of seq: for each seq that a segment holds, the rank of its entry by (key, seq).

It is kept in pieces of a few thousand entries, so that a read in the order of seq holds one:

    crc32c u32, size u32 of the rest when unpacked, then zstandard of: HEAD, seqs less the first
    (u32, or u64 where they need it; absent when none is left out), ranks u32
"""

import struct
from array import array
from collections.abc import Callable, Sequence
from typing import Final

import zstandard

from ..client.protocol.errors import CorruptData
from ..client.protocol.records import decompress
from .segment_format import ORDER, seal, unseal

PIECE: Final = 8_192
_HEAD: Final = struct.Struct("<QIB")
"""The first seq, the number of entries, and the form of the seqs."""
_SIZE: Final = struct.Struct("<I")
_DENSE, _NARROW, _WIDE = range(3)
_ENTRY_BYTES: Final = 4 + 8


class Piece:
    """Seqs, ascending, and the rank of each."""

    __slots__ = ("ranks", "seqs", "size")

    def __init__(self, seqs: Sequence[int], ranks: "array[int]") -> None:
        self.seqs = seqs
        self.ranks = ranks
        self.size = _ENTRY_BYTES * len(ranks)

    def encode(self, ordinal: int) -> bytes:
        """Return the bytes that are stored."""
        first, last = self.seqs[0], self.seqs[-1]
        if last - first + 1 == len(self.seqs):
            kept, column = _DENSE, b""
        else:
            kept = _NARROW if last - first <= 0xFFFFFFFF else _WIDE
            less = array("I" if kept == _NARROW else "Q", map((-first).__add__, self.seqs))
            column = less.tobytes()
        body = _HEAD.pack(first, len(self.seqs), kept) + column + self.ranks.tobytes()
        packed = zstandard.ZstdCompressor(level=1).compress(body)
        return seal(_SIZE.pack(len(body)) + packed, ORDER, ordinal)

    @classmethod
    def decode(cls, data: bytes, ordinal: int) -> "Piece":
        """Undo `encode`. Raises CorruptData."""
        packed = unseal(data, ORDER, ordinal)
        try:
            (size,) = _SIZE.unpack_from(packed)
            if size > _HEAD.size + PIECE * _ENTRY_BYTES:
                raise ValueError(f"{size} bytes")
            body = decompress(packed[_SIZE.size :], size)
            first, count, kept = _HEAD.unpack_from(body)
            less, at = array("I" if kept == _NARROW else "Q"), _HEAD.size
            if kept != _DENSE:
                at += count * less.itemsize
                less.frombytes(body[_HEAD.size : at])
            ranks = array("I", body[at:])
            if len(ranks) != count or not count or (kept != _DENSE and len(less) != count):
                raise ValueError("the columns have different lengths")
            if kept == _DENSE:
                return cls(range(first, first + count), ranks)
            return cls(array("Q", map(first.__add__, less)), ranks)
        except (struct.error, ValueError, OverflowError) as error:
            raise CorruptData(f"the seq order does not decode: {error}") from None


class OrderOutput:
    """Cuts seqs and ranks, given in the order of seq, into pieces and passes each on to `put`."""

    def __init__(self, put: Callable[[int, bytes], None]) -> None:
        self._put = put
        self._seqs = array("Q")
        self._ranks = array("I")
        self.first_seqs = array("Q")
        self.entries = 0

    def add(self, seqs: Sequence[int], ranks: Sequence[int]) -> None:
        """Append seqs and their ranks."""
        self._seqs.extend(seqs)
        self._ranks.extend(ranks)
        self.entries += len(seqs)
        self._cut(len(self._seqs) // PIECE * PIECE)

    def finish(self) -> None:
        """Pass on the remaining entries."""
        self._cut(len(self._seqs))

    def _cut(self, end: int) -> None:
        for at in range(0, end, PIECE):
            piece = Piece(self._seqs[at : at + PIECE], self._ranks[at : at + PIECE])
            self._put(len(self.first_seqs), piece.encode(len(self.first_seqs)))
            self.first_seqs.append(piece.seqs[0])
        del self._seqs[:end]
        del self._ranks[:end]
