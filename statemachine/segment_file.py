"""Reading the bytes of one segment file, on the event loop only bytes that are in memory.

The event loop must not wait for a disk. Within `SegmentStore.on_hand`, a read of bytes that the
kernel does not have in memory raises NotPrepared. A thread then reads these bytes, and the loop
tries again.
"""

import errno
import os
from pathlib import Path
from typing import Final, Protocol

from ..client.protocol.errors import CorruptData
from .block_cache import BlockCache
from .turn_limits import NotPrepared, Place

_IN_MEMORY: Final[int] = getattr(os, "RWF_NOWAIT", 0)
"""The flag of a read that does not wait for the disk; 0 where the system has none."""
_NO_SUCH_READ: Final = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)
"""Errors of a file system that does not know the flag."""


class SegmentBytes(Protocol):
    """The bytes of one segment file, wherever the file is.

    `cache`: as in `SegmentFile`.
    """

    size: int
    cache: BlockCache | None

    def read(self, offset: int, count: int) -> memoryview:
        """Return these bytes. Raises CorruptData, OSError, and NotPrepared when the loop reads."""

    def close(self) -> None:
        """Close the file."""


class SegmentFile:
    """An open file of this machine. Raises OSError when the file cannot be opened or read.

    A file that is cut or deleted while it is open does no harm: the reads of cut bytes raise
    CorruptData.
    """

    def __init__(self, path: Path, content_id: str) -> None:
        self._content_id = content_id
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._asks = bool(_IN_MEMORY)
        self.cache: BlockCache | None = None
        """The cache, which knows the turns of the loop's current read.

        None while a thread opens the file: a thread may wait.
        """
        self.size = os.fstat(self._fd).st_size

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        fd, self._fd = getattr(self, "_fd", -1), -1
        if fd >= 0:
            os.close(fd)

    def read(self, offset: int, count: int) -> memoryview:
        """Return these bytes. Raises CorruptData when the file ends before.

        Raises NotPrepared for bytes that only the disk has, when the loop reads.
        """
        if offset + count > self.size:
            raise CorruptData(f"the file has {self.size} bytes, and ends too early")
        data = memoryview(bytearray(count))
        turns = None if self.cache is None else self.cache.turns
        if turns is not None and self._asks:
            place = Place(self._content_id, offset, count)
            if place not in turns.fetched:
                if self._in_memory(offset, data):
                    return data
                if self._asks:
                    raise NotPrepared(self._content_id, place)
        got = 0
        while got < count:
            some = os.preadv(self._fd, [data[got:]], offset + got)
            if not some:
                raise CorruptData(f"the file was cut after {offset + got} bytes")
            got += some
        return data

    def _in_memory(self, offset: int, data: memoryview) -> bool:
        """Fill `data` if the kernel has all of the bytes in memory; return whether it has."""
        try:
            return os.preadv(self._fd, [data], offset, _IN_MEMORY) == len(data)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno not in _NO_SUCH_READ:
                raise
            self._asks = False
            return False
