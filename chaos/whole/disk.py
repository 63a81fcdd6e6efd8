"""The WAL's disk of a node, real files that a loss of power can cut back to what was synced.

Each write keeps the bytes that it replaced until the file is synced. A loss of power undoes the
unsynced writes, newest first. It keeps some of them, drawn, since a disk writes in any order. Names
of files and LMDB's files are not lost: LMDB syncs its own pages, in calls that this class does not
see. The fast mode simulates the loss of names as well (`chaos/sim/disk.py`).
"""

import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from ...raft.os_disk import OsDisk


class _Write(NamedTuple):
    offset: int
    before: bytes
    """What the write replaced, without what was beyond the end of the file."""
    length: int


class PowerDisk(OsDisk):
    """A disk that can lose power after its process has ended."""

    def __init__(self, directory: Path, *, open_max: int) -> None:
        super().__init__(directory, open_max=open_max)
        self._folder = directory
        self._unsynced_writes: dict[str, list[_Write]] = {}
        self.before: Callable[[], None] = _nothing
        """Called before each write and each sync; it may end the process."""

    def write(self, name: str, offset: int, buffers: Sequence[bytes]) -> None:
        self.before()
        length = sum(map(len, buffers))
        before = self.read(name, offset, length)
        self._unsynced_writes.setdefault(name, []).append(_Write(offset, before, length))
        super().write(name, offset, buffers)

    def sync(self, name: str) -> None:
        self.before()
        super().sync(name)
        self._unsynced_writes.pop(name, None)

    def rename(self, old: str, new: str) -> None:
        super().rename(old, new)
        if old in self._unsynced_writes:
            self._unsynced_writes[new] = self._unsynced_writes.pop(old)

    def delete(self, name: str) -> None:
        super().delete(name)
        self._unsynced_writes.pop(name, None)

    def spare(self) -> None:
        """Call nothing before the next writes and syncs."""
        self.before = _nothing

    def lose_power(self, rng: random.Random) -> int:
        """Undo unsynced writes, each or a part of it as drawn; return the number of lost bytes."""
        lost = 0
        for name, writes in self._unsynced_writes.items():
            path = self._folder / name
            if not path.exists():
                continue
            keeps = rng.random() * 0.5
            with open(path, "r+b") as file:
                for write in reversed(writes):
                    if rng.random() >= keeps:
                        lost += _undo(file.fileno(), write, rng)
        self._unsynced_writes.clear()
        return lost


def _nothing() -> None:
    return


def _undo(fd: int, write: _Write, rng: random.Random) -> int:
    kept = int(rng.random() * write.length) if rng.random() < 0.3 else 0
    before = write.before + bytes(write.length - len(write.before))
    os.pwrite(fd, before[kept:], write.offset + kept)
    return write.length - kept
