"""The keys of a batch as columns: their bytes side by side, the end of each, and their hashes.

A node looks at each key of each batch, and rarely needs one as an object. So it makes no object of
a key until somebody reads the key: `strings` unpacks all keys of the batch.
"""

from array import array
from itertools import accumulate

from . import columns
from .native import native


class KeyColumn:
    """At least one key. Nothing changes a column."""

    __slots__ = ("_packed", "_strings", "count", "data", "ends", "greatest", "hashes", "least",
                 "longest")  # fmt: skip

    count: int
    data: bytes
    """The bytes of all keys, side by side."""
    ends: bytes
    """Where each key ends in `data`, as numbers of 32 bits."""
    hashes: bytes
    """The hash of each key, Python's own, as a number of 64 bits."""
    least: bytes
    greatest: bytes
    longest: int
    """The bytes of the longest key."""

    @classmethod
    def unpack(cls, packed: bytes, count: int) -> "KeyColumn":
        """Return the columns of a packed array of `count` keys. Raises ValueError."""
        found = None if native is None else native.scan_keys(packed, count)
        if found is None:
            return cls.of(columns.column(packed, count))
        made = cls()
        made.count, made._packed, made._strings = count, packed, None
        made.data, made.ends, made.hashes, made.least, made.greatest, made.longest = found
        return made

    @classmethod
    def of(cls, keys: list[bytes]) -> "KeyColumn":
        """Return the columns of these keys. Without keys, the least key is empty."""
        made = cls()
        lengths = list(map(len, keys))
        made.count, made._packed, made._strings = len(keys), b"", keys
        made.data = b"".join(keys)
        made.ends = array("I", accumulate(lengths)).tobytes()
        made.hashes = array("q", map(hash, keys)).tobytes()
        made.least, made.greatest = min(keys, default=b""), max(keys, default=b"")
        made.longest = max(lengths, default=0)
        return made

    _packed: bytes
    _strings: list[bytes] | None

    def string(self, position: int) -> bytes:
        """Return the key at a position, 0 or more and below `count`, without an object for any
        other key."""
        if self._strings is not None:
            return self._strings[position]
        ends = memoryview(self.ends).cast("I")
        return self.data[ends[position - 1] if position else 0 : ends[position]]

    def strings(self) -> list[bytes]:
        """Return the keys as objects."""
        if self._strings is None:
            self._strings = columns.column(self._packed, self.count)
        return self._strings
