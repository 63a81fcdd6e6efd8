"""Letting the kernel forget the pages of segment files that are no longer new.

What a process writes stays in the page cache until other pages need the room. So a node that writes
without a pause takes a page of fresh memory for each page that it writes, and under a hypervisor
that takes free memory back a fresh page costs more than all other work on the page
(docs/performance-notes.md#pages-of-written-files). The newest files keep their pages, for
readers that are a little behind. The pages of an older file are forgotten once, and the kernel uses
them for the next files. A read brings pages back, and then they stay. A file larger than a memtable
makes was merged of older ones: the process that writes it forgets its pages.

RocksDB keeps the output of flushes and compactions out of the page cache by O_DIRECT
(`use_direct_io_for_flush_and_compaction`).
"""

import os
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Final

from ..client.protocol import limits

KEPT_BYTES: Final = 256 * limits.MIB
"""The bytes of the newest files of a node that keep their pages: about four memtables."""
NEW_BYTES_MAX: Final = 64 * limits.MIB
"""A larger file has mostly older entries."""
_LEAST: Final = 64 * limits.KIB
"""A smaller file counts as much, so at most 4,096 files are noted."""


class RecentPages:
    """The newest files of a directory, by the order of `written`: together they have at most
    `kept_bytes` (None: KEPT_BYTES)."""

    def __init__(self, kept_bytes: int | None = None) -> None:
        self._kept_bytes = KEPT_BYTES if kept_bytes is None else kept_bytes
        self._files: deque[tuple[Path, int]] = deque()
        self._bytes = 0

    def written(self, path: Path) -> None:
        """Note a new file, which is synced, and forget the pages of those that are new no longer.
        A file of over NEW_BYTES_MAX changes nothing.

        This takes milliseconds: call it on a thread. A file that is gone, or cannot be opened, is
        left to the kernel: its pages cost memory alone.
        """
        try:
            size = max(_LEAST, path.stat().st_size)
        except OSError:
            return
        if size > NEW_BYTES_MAX:
            return
        self._files.append((path, size))
        self._bytes += size
        while self._bytes > self._kept_bytes:
            old, size = self._files.popleft()
            self._bytes -= size
            with suppress(OSError):
                forget_pages(old)


def forget_pages(path: Path, *, sync: bool = False) -> None:
    """Let the kernel drop the pages of a file, so that the next read is of the disk. `sync`: write
    pages to the disk first that are not yet there; the kernel keeps them otherwise. Raises OSError.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if sync:
            os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)
