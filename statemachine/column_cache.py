"""Decoded batches of memtables, for reads, in bounded memory.

Within a turn of the loop (see `turns`) a read decodes a bounded number of bytes: each entry of a
key may lie in another batch, of up to a MiB.
"""

from collections import OrderedDict
from typing import Final

from ..client.protocol import limits
from ..client.protocol.records import decode_batch
from ..client.protocol.types import Headers
from .turn_limits import Turns

_BATCH_COST: Final = 2 * limits.KIB
"""The least cost of decoding a batch in a turn: 4 us."""
_RECORD_BYTES: Final = 2 * (8 + 33)
"""The memory of a record's key and value objects, besides their bytes."""
_HEADER_BYTES: Final = 100
"""The memory of a header, or of the map of a record's headers, besides its bytes."""


class Columns:
    """A decoded batch."""

    __slots__ = ("data", "headers", "keys", "size", "snapshots", "values")

    def __init__(self, data: bytes) -> None:
        batch = decode_batch(data)
        self.data = data
        self.keys: list[bytes] = batch.keys
        self.values: list[bytes | None] = batch.values()
        self.headers: list[Headers | None] | None = batch.headers()
        self.snapshots: frozenset[int] = batch.snapshots
        self.size = len(data) + batch.values_size + _RECORD_BYTES * batch.count
        """The approximate bytes of memory."""
        if self.headers is not None:
            maps = list(filter(None, self.headers))
            self.size += len(batch.packed_headers or b"")
            self.size += _HEADER_BYTES * (len(maps) + sum(map(len, maps)))


class ColumnCache:
    """Decoded batches of a node's memtables, bounded in bytes; the oldest use goes first."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.bytes = 0
        self._columns: OrderedDict[int, Columns] = OrderedDict()
        self.turns: Turns | None = None
        """The turns of the current read, if it is limited in what it may decode."""

    def columns(self, data: bytes) -> Columns:
        """Return the batch's columns. Raises TurnOver: decode them in another turn."""
        key = id(data)  # unique while its columns hold the data
        found = self._columns.get(key)
        if found is not None:
            self._columns.move_to_end(key)
            return found
        turns, part = self.turns, ("batch", b"", key)
        if turns is not None:
            kept: Columns | None = turns.kept.get(part)
            if kept is not None:
                return kept
            turns.check()
        columns = Columns(data)
        if turns is not None:
            turns.decoded(part, columns, cost_min=_BATCH_COST)
        self._columns[key] = columns
        self.bytes += columns.size
        while self.bytes > self._bytes_max and len(self._columns) > 1:
            _, old = self._columns.popitem(last=False)
            self.bytes -= old.size
        return columns
