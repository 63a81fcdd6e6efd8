"""Decoded batches of memtables: what reads need of them, kept in bounded memory.

Within a turn of the loop (see `turns`) a read decodes a bounded number of bytes: a key's entries
may lie in as many batches as the key has entries, each of a MiB.
"""

from collections import OrderedDict
from typing import Final

from ..client.protocol import limits
from ..client.protocol.records import decode_batch
from ..client.protocol.types import Headers
from .turn_limits import Turns

_BATCH_COST: Final = 2 * limits.KIB
"""The least that decoding a batch counts for in a turn: 4 us."""
_RECORD_BYTES: Final = 2 * (8 + 33)
"""Memory of the key and the value of a record, beside their bytes."""
_HEADER_BYTES: Final = 100
"""Memory of a header, or of the map of a record's headers, beside its bytes."""


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
        """Bytes of memory, about."""
        if self.headers is not None:
            maps = list(filter(None, self.headers))
            self.size += len(batch.packed_headers or b"")
            self.size += _HEADER_BYTES * (len(maps) + sum(map(len, maps)))


class ColumnCache:
    """Decoded batches of a node's memtables, least recently used out first, bounded in bytes."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.bytes = 0
        self._columns: OrderedDict[int, Columns] = OrderedDict()
        self.turns: Turns | None = None
        """Of the read that is going on, where it must not decode as much as it likes."""

    def columns(self, data: bytes) -> Columns:
        """Return the batch's columns. Raises TurnOver: decode them in another turn."""
        key = id(data)  # of no other object, for as long as its columns hold it
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
