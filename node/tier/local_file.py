"""A segment file of this node, read in parts that are checked on their way to the tier.

The file is hashed as a whole before its first part leaves, and each part again as it leaves: a file
that rots in between is noticed. The file stays readable when the node deletes it meanwhile, so no
deletion waits for the store.
"""

import hashlib
import os
import threading
from pathlib import Path
from typing import Final

import google_crc32c

from ...client.protocol import limits
from ...client.protocol.errors import CorruptData

PART_BYTES: Final = 8 * limits.MIB


def parts_of(size: int) -> int:
    """Return how many parts a file of this size has."""
    return max(1, -(-size // PART_BYTES))


def part_size(size: int, at: int) -> int:
    """Return the bytes of a part of a file of this size."""
    return min(PART_BYTES, size - at * PART_BYTES)


class LocalFile:
    """An open file. All methods block: call them in a thread, one at a time."""

    def __init__(self, path: Path, content_id: str, size: int) -> None:
        """Raises OSError."""
        self._content_id = content_id
        self._size = size
        self._sums: list[int] = []
        self._lock = threading.Lock()
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def close(self) -> None:
        """Close the file. A later read fails."""
        with self._lock:
            fd, self._fd = self._fd, -1
            os.close(fd)

    def check(self) -> None:
        """Hash the file. Raises CorruptData, which names the segment; OSError."""
        digest = hashlib.sha256()
        for at in range(parts_of(self._size)):
            content = self._read(at)
            digest.update(content)
            self._sums.append(google_crc32c.value(content))
        if os.fstat(self._fd).st_size != self._size or digest.hexdigest() != self._content_id:
            raise self._damage(f"its SHA-256 is {digest.hexdigest()}")

    def part(self, at: int) -> bytes:
        """Return a part, after `check`. Raises CorruptData, OSError."""
        content = self._read(at)
        if google_crc32c.value(content) != self._sums[at]:
            raise self._damage(f"part {at} has changed")
        return content

    def _read(self, at: int) -> bytes:
        with self._lock:
            return os.pread(self._fd, part_size(self._size, at), at * PART_BYTES)

    def _damage(self, why: str) -> CorruptData:
        text = f"segment {self._content_id} is damaged: {why}"
        return CorruptData(text, segment=self._content_id)
