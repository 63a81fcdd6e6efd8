"""The newest position of each key in a memtable: a direct-mapped table, as a cache of a processor.

This table serves installations without a compiler, which have no `newest_table`.

A place has the newest position of the hashes that are equal modulo the size of the table. An empty
place says that a key has no entry; a place with the position of another key says nothing. So the
conditions of a batch need one look-up in C over all its keys, and one comparison for each key that
may have an entry. A search in the sorted runs of `seq_index` takes ten times as long.

The table takes 16 to 32 bytes an entry. Only memtables that are asked for last seqs have a table.
"""

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_PLACES_MIN: Final = 64
_SHARE: Final = 4
"""The least places for each entry: then at most a fifth of the absent keys meet another key."""
_PLACE_BYTES: Final = 4


class NewestPositions:
    """See the module. Positions are added in ascending order for each hash."""

    __slots__ = ("_places", "count")

    def __init__(self, count: int) -> None:
        """Create an empty table that is to have `count` entries, and half as many more."""
        least = max(_PLACES_MIN, _SHARE * count)
        self._places: NDArray[np.int32] = np.zeros(1 << least.bit_length(), np.int32)
        self.count = 0
        """How many entries were added."""

    @property
    def size(self) -> int:
        """The bytes of memory."""
        return _PLACE_BYTES * len(self._places)

    def has_room(self, count: int) -> bool:
        """Return whether the table is large enough for `count` entries."""
        return _SHARE * count <= len(self._places)

    def add(self, hashes: "NDArray[np.int64]", positions: "NDArray[np.int32] | int") -> None:
        """Add entries at these positions, or at consecutive positions from that one on."""
        if isinstance(positions, int):
            positions = np.arange(positions, positions + len(hashes), dtype=np.int32)
        # NumPy assigns the last of several that belong to one place.
        self._places[hashes & (len(self._places) - 1)] = positions + 1
        self.count += len(hashes)

    def of(self, hashes: "NDArray[np.int64]") -> "NDArray[np.int32]":
        """Return for each hash one more than the newest position at its place, or 0."""
        found: NDArray[np.int32] = self._places[hashes & (len(self._places) - 1)]
        return found
