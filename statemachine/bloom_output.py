"""Making Bloom filters (`bloom`) for stretches of keys that come in ascending order."""

from collections.abc import Callable

import numpy as np

from .bloom import BITS_MAX, BITS_MIN, BITS_PER_KEY, KEYS_MAX
from .key_hashes import Hashes, hash_keys
from .strings import Strings


class FilterOutput:
    """Makes a filter of every `KEYS_MAX` distinct keys and passes it on to `put`.

    The caller gives some keys with `begin`, adds them from the first on with `add`, and gives
    others after `end`.
    """

    def __init__(self, put: Callable[[int, bytes], None]) -> None:
        self._put = put
        self._keys = Strings.of(())
        self._hashes: Hashes = np.empty(0, np.uint64)
        self._at = 0
        """The first of the given keys that is in no filter. `_behind`: the first not added."""
        self._behind = 0
        self._carried: Hashes = np.empty(0, np.uint64)
        """The hashes of keys that were given before and are in no filter."""
        self.last_key = b""
        self.first_keys: list[bytes] = []
        """The first key of each filter, the unfinished filter included."""
        self.keys = 0

    def begin(self, keys: Strings) -> None:
        """Take keys that follow. The first may be the last key that was added."""
        self._keys, self._hashes = keys, hash_keys(keys)
        self._at = self._behind = int(keys[0] == self.last_key)
        self.keys -= self._at

    def add(self, behind: int) -> None:
        """Add the given keys up to a position."""
        while behind - self._at + len(self._carried) >= KEYS_MAX:
            self._carry(self._at + KEYS_MAX - len(self._carried))
            self.finish()
        self._behind = max(self._behind, behind)

    def end(self) -> None:
        """Forget the given keys that were not added."""
        self._carry(self._behind)
        self.keys += self._behind
        if self._behind:
            self.last_key = self._keys[self._behind - 1]

    def finish(self) -> None:
        """Pass on the filter of the remaining keys."""
        if len(self._carried):
            self._put(len(self.first_keys) - 1, build_filter(self._carried))
            self._carried = self._carried[:0]

    def _carry(self, behind: int) -> None:
        if behind > self._at:
            if not len(self._carried):
                self.first_keys.append(self._keys[self._at])
            self._carried = np.concatenate((self._carried, self._hashes[self._at : behind]))
            self._at = behind


def build_filter(hashes: Hashes) -> bytes:
    """Return the filter of the keys with these hashes."""
    size = BITS_MIN
    while size < min(BITS_MAX, len(hashes) * BITS_PER_KEY):
        size *= 2
    bits = np.zeros(size, np.bool_)
    bits[hashes.view(np.uint16) & (size - 1)] = True  # four probes: the quarters of each number
    return np.packbits(bits, bitorder="little").tobytes()
