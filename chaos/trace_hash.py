"""The hash that two runs of one seed share: it covers everything that belongs to the run."""

import hashlib
from typing import Final

_HASHED_AT_ONCE: Final = 1 << 16


class TraceHash:
    """A hash of many short pieces, which are gathered before they are hashed."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=16)
        self._unhashed = bytearray()

    def add(self, data: bytes | bytearray | memoryview) -> None:
        """Add a piece: it is part of the run."""
        self._unhashed += data
        if len(self._unhashed) >= _HASHED_AT_ONCE:
            self._take_in()

    def digest(self) -> str:
        """Return the hash of all pieces so far, in hex."""
        self._take_in()
        return self._hash.hexdigest()

    def _take_in(self) -> None:
        self._hash.update(self._unhashed)
        self._unhashed.clear()
