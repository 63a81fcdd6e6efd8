"""The newest position of each key in a memtable, exactly: a compiled table with open addressing.

A slot has 32 bits of a key's hash and the newest position of the key, in 8 bytes. Two keys with
the same 32 bits are told apart by their bytes in the memtable's store of keys. So the conditions of
a batch need one call of C. Without a compiler `newest_positions` does this work, with NumPy.

The table takes 16 to 32 bytes for each different key. Only memtables that are asked for last seqs
have a table.
"""

from typing import TYPE_CHECKING, Final

from .compiled import memtables
from .key_store import KeyStore

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_SLOTS_MIN: Final = 64
_SLOTS_EACH: Final = 2
"""The least slots for each key: then a look-up passes two or three slots."""
_SLOT_BYTES: Final = 8


class NewestTable:
    """See the module. The store has the keys of all positions that are added."""

    __slots__ = ("_held", "_keys", "_slots", "count")

    def __init__(self, keys: KeyStore) -> None:
        self._keys = keys
        self._slots = bytearray(_SLOTS_MIN * _SLOT_BYTES)
        self._held = 0
        """The count of different keys."""
        self.count = 0
        """How many entries were added."""

    def has_room(self, count: int) -> bool:
        """Return True: the table grows by itself."""
        return True

    @property
    def size(self) -> int:
        """The bytes of memory."""
        return len(self._slots)

    def add(self, hashes: "NDArray[np.int64]", positions: "NDArray[np.int32] | int") -> None:
        """Add entries at these positions, or at consecutive positions from that one on."""
        self._make_room(len(hashes))
        keys = self._keys
        self._held += memtables.note(self._slots, keys.data, keys.ends, hashes, positions)
        self.count += len(hashes)

    def lasts(self, keys: list[bytes], before: int) -> list[int]:
        """Return `before` and one more than the newest position of each key, or 0 without one."""
        own = self._keys
        found: list[int] = memtables.lasts(self._slots, own.data, own.ends, keys, before)
        return found

    def _make_room(self, count: int) -> None:
        """Let the table have slots for so many more keys."""
        least = _SLOTS_EACH * (self._held + count) * _SLOT_BYTES
        if least <= len(self._slots):
            return
        slots = bytearray(1 << (least - 1).bit_length())
        memtables.move(self._slots, slots)
        self._slots = slots
