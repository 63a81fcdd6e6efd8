"""Laying out the blocks of a segment: where each ends, and its columns, from columns of entries.

`_building.c` has the same compiled: its `Layout` takes the same arguments and gives such blocks.
Each entry of an order has a position in the columns of seqs, timestamps and values; keys are those
of the order itself, each once.
"""

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..client.protocol.chunks import ABSENT
from .compiled import building
from .entries import Column, Entries
from .scattered import Scattered
from .strings import Marks, Numbers, Strings

ENTRY_BYTES: Final = 10
"""The bytes of an entry in a block besides its key, value and headers."""
ALL_BYTES: Final = 1 << 40
"""More bytes than a block has."""
_WINDOW: Final = 16_384
"""The most entries whose values are copied at a time, if no block has more."""
_WINDOW_BYTES: Final = 8 << 20
"""The same for the bytes of values."""


class Laid(NamedTuple):
    """A block that is laid out, but not compressed."""

    end: int
    """The place in the order behind the last entry. `behind`: the same among the keys."""
    entries: int
    behind: int
    keys: int
    """The number of distinct keys. `key_bytes`: their bytes."""
    key_bytes: int
    size: int
    """The bytes of the entries as `Layout.take` counts them."""
    first_key: bytes
    first_seq: int
    """The number of the first entry in the column of seqs."""
    following: bytes | None
    """The key of the entry behind the block; None without an entry."""
    head: bytes
    """The columns, and the bytes of the keys, as in `segment_block`."""
    values: bytes


class Layout:
    """The entries of a segment in their order, to be cut into blocks."""

    def __init__(
        self,
        order: Numbers,
        fresh: Marks,
        key_data: memoryview,
        key_lengths: NDArray[np.uint16],
        buffers: tuple[bytes, ...],
        places: Numbers,
        lengths: Numbers,
        seqs: Column,
        timestamps: Column,
        absent: Marks | None,
        more: Numbers | None,
    ) -> None:
        """Take the positions of entries in order, and which of them begin another key.

        `key_data` and `key_lengths` have these keys side by side; the other columns are by
        position. `buffers`, `places` and `lengths`: see `Scattered`. `absent` tells which entries
        have no value, if any. `more` has further bytes of entries, which count for a block.
        """
        self._order = order
        self._key_of = np.cumsum(fresh) - 1
        self._key_data = key_data
        self._key_lengths = key_lengths
        self._key_ends = np.concatenate(([0], np.cumsum(key_lengths, dtype=np.int64)))
        self._values = Scattered(buffers, places, lengths).together()
        self._value_ends = np.concatenate(([0], np.cumsum(lengths[order])))
        self._seqs = seqs
        self._timestamps = timestamps
        self._lengths = lengths.astype(np.uint32)
        if absent is not None:
            self._lengths[absent] = ABSENT
        sizes = key_lengths[self._key_of] + (lengths[order] + ENTRY_BYTES)
        if more is not None:
            sizes += more[order]
        self._ends = np.cumsum(sizes)
        self._at = 0
        self._window, self._window_begin, self._window_end = memoryview(b""), 0, 0

    def take(self, bytes_max: int, last: bool) -> Laid | None:
        """Return the next block, of at most `bytes_max` bytes or of one entry.

        None: no entries are left, or without `last` too few for a block.
        """
        begin, count = self._at, len(self._order)
        if begin == count:
            return None
        before = self._ends.item(begin - 1) if begin else 0
        end = max(int(self._ends.searchsorted(before + bytes_max, "right")), begin + 1)
        if end == count and not last:
            return None
        self._at = end
        first, behind = self._key_of.item(begin), self._key_of.item(end - 1) + 1
        following = None if end == count else self._key(self._key_of.item(end))
        places = self._order[begin:end]
        repeats = b""
        if behind - first != end - begin:
            counts = np.bincount(self._key_of[begin:end] - first)
            repeats = counts.astype(np.uint32).tobytes()
        keys = self._key_data[self._key_ends.item(first) : self._key_ends.item(behind)]
        head = b"".join(
            (
                self._key_lengths[first:behind].tobytes(), repeats, self._seqs[places].tobytes(),
                self._timestamps[places].tobytes(), self._lengths[places].tobytes(), keys,
            )
        )  # fmt: skip
        return Laid(
            end, end - begin, behind, behind - first, len(keys), self._ends.item(end - 1) - before,
            self._key(first), self._seqs.item(places[0]), following, head,
            self._values_of(begin, end),
        )  # fmt: skip

    def _key(self, at: int) -> bytes:
        return bytes(self._key_data[self._key_ends.item(at) : self._key_ends.item(at + 1)])

    def _values_of(self, begin: int, end: int) -> bytes:
        """Return the values of these places in the order, side by side."""
        ends = self._value_ends
        if end > self._window_end:
            self._window_begin = begin
            self._window_end = max(end, _window_end(ends, begin))
            places = self._order[begin : self._window_end]
            self._window = self._values.take(places).data.data
        first = ends.item(self._window_begin)
        return bytes(self._window[ends.item(begin) - first : ends.item(end) - first])


def _window_end(ends: Numbers, begin: int) -> int:
    """Return up to which place values are copied at a time, from `begin` on."""
    end = int(ends.searchsorted(ends[begin] + _WINDOW_BYTES, "right")) - 1
    return min(end, begin + _WINDOW)


def layout_of(
    entries: Entries, order: Numbers, fresh: Marks, keys: Strings, more: Numbers | None
) -> Any:
    """Return the `Layout` of entries, compiled where a compiler was there.

    `keys` are those of the order, each once, side by side from the begin of their buffer on.
    """
    values = entries.values
    layout = Layout if building is None else building.Layout
    return layout(
        order, fresh, keys.data.data, keys.lengths.astype(np.uint16), values.buffers,
        values.places, values.lengths, entries.seqs, entries.timestamps, entries.absent, more,
    )  # fmt: skip
