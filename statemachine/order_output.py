"""Writing the order of seq in pieces (`segment_order`)."""

from collections.abc import Callable

import numpy as np
import zstandard
from numpy.typing import NDArray

from .segment_format import ORDER, seal
from .segment_order import DENSE, HEAD, NARROW, PIECE, SIZE, WIDE

Seqs = NDArray[np.uint64]
Ranks = NDArray[np.uint32]


class OrderOutput:
    """Cuts seqs and ranks, given in the order of seq, into pieces and passes each on to `put`."""

    def __init__(self, put: Callable[[int, bytes], None]) -> None:
        self._put = put
        self._seqs: Seqs = np.empty(0, np.uint64)
        self._ranks: Ranks = np.empty(0, np.uint32)
        self.first_seqs: list[int] = []
        self.entries = 0

    def add(self, seqs: Seqs, ranks: Ranks) -> None:
        """Append seqs and their ranks."""
        self._seqs = np.concatenate((self._seqs, seqs))
        self._ranks = np.concatenate((self._ranks, ranks))
        self.entries += len(seqs)
        self._cut(len(self._seqs) // PIECE * PIECE)

    def finish(self) -> None:
        """Pass on the remaining entries."""
        self._cut(len(self._seqs))

    def _cut(self, end: int) -> None:
        for at in range(0, end, PIECE):
            seqs, ordinal = self._seqs[at : at + PIECE], len(self.first_seqs)
            self._put(ordinal, encode_piece(seqs, self._ranks[at : at + PIECE], ordinal))
            self.first_seqs.append(int(seqs[0]))
        self._seqs, self._ranks = self._seqs[end:], self._ranks[end:]


def encode_piece(seqs: Seqs, ranks: Ranks, ordinal: int) -> bytes:
    """Return the stored bytes of a piece of at most `PIECE` entries."""
    first, last = int(seqs[0]), int(seqs[-1])
    if last - first + 1 == len(seqs):
        kept, column = DENSE, b""
    else:
        kept = NARROW if last - first <= 0xFFFFFFFF else WIDE
        column = (seqs - seqs[0]).astype(np.uint32 if kept == NARROW else np.uint64).tobytes()
    body = HEAD.pack(first, len(seqs), kept) + column + ranks.tobytes()
    packed = zstandard.ZstdCompressor(level=1).compress(body)
    return seal(SIZE.pack(len(body)) + packed, ORDER, ordinal)
