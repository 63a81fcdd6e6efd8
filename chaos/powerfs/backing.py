"""The folder behind the file system: every call is applied to it at once, and noted.

Paths start at the mount point and begin with a slash; errors are OSError. Any thread may call. An
fsync takes as long as that of the folder's own disk, and longer while the disk is slow (`pace`). It
covers what was there when it began: a product that acknowledges too early loses what was written
later.
"""

import errno
import itertools
import os
import random
import shutil
import stat
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from .files import HOW, Unsynced
from .names import Change, Names
from .pace import Pace

DATA: Final = "data"
"""The mounted tree, in the folder."""
_SPARES: Final = "spares"
"""Files whose removal no fsync has covered, in the folder."""


@dataclass(frozen=True, slots=True)
class Lost:
    """The losses of a power cut: the number of files with unsynced content, and of names."""

    files: int
    names: int


@dataclass(slots=True)
class _Dirty:
    """A file with unsynced content. `fd` is our own, since the file's names may change."""

    fd: int
    unsynced: Unsynced = field(default_factory=Unsynced)

    def size(self) -> int:
        return os.fstat(self.fd).st_size

    def read(self, offset: int, length: int) -> bytes:
        return os.pread(self.fd, length, offset)

    def write(self, offset: int, data: bytes) -> None:
        write_all(self.fd, data, offset)

    def resize(self, size: int) -> None:
        os.ftruncate(self.fd, size)


class Backing:
    """The tree in `folder`/data, which is made if it is missing.

    Everything in the tree counts as synced at first.
    """

    def __init__(self, folder: Path) -> None:
        self.root = folder / DATA
        self.pace = Pace()
        """How slow the disk is."""
        self._spares = folder / _SPARES
        self.root.mkdir(parents=True, exist_ok=True)
        if self._spares.exists():
            shutil.rmtree(self._spares)
        self._spares.mkdir()
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._cut = False
        self._names = Names()
        self._dirty: dict[int, _Dirty] = {}
        """By inode."""

    def at(self, path: str) -> str:
        """Return the path in the folder, for calls that change neither names nor content.

        Raises OSError after a cut, as all calls do.
        """
        self._check()
        return f"{self.root}{path}"

    # Content.

    def make(self, path: str, mode: int) -> int:
        """Make a new file and return its descriptor."""
        with self._lock:
            fd = os.open(self.at(path), os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
            self._names.changed(Change(None, path))
            return fd

    def open(self, path: str, flags: int) -> int:
        """Return a descriptor; one for writing can also read, since replaced bytes are kept."""
        reading = flags & os.O_ACCMODE == os.O_RDONLY
        fd = os.open(self.at(path), (os.O_RDONLY if reading else os.O_RDWR) | os.O_CLOEXEC)
        if flags & os.O_TRUNC:
            self.resize(fd, 0)
        return fd

    def read(self, fd: int, offset: int, length: int) -> bytes:
        """Read the bytes, fewer at the end of the file."""
        self._check()
        return os.pread(fd, length, offset)

    def write(self, fd: int, offset: int, data: bytes) -> int:
        """Write all bytes."""
        self.pace.write()
        with self._lock:
            file = self._dirtied(fd)
            file.unsynced.will_write(file, offset, len(data))
            write_all(fd, data, offset)
            return len(data)

    def resize(self, fd: int, size: int) -> None:
        """Cut the file, or add zeros."""
        with self._lock:
            file = self._dirtied(fd)
            file.unsynced.will_resize(file, size)
            os.ftruncate(fd, size)

    def reserve(self, fd: int, offset: int, length: int) -> None:
        """Reserve space, as posix_fallocate does."""
        with self._lock:
            file = self._dirtied(fd)
            file.unsynced.will_resize(file, max(file.size(), offset + length))
            os.posix_fallocate(fd, offset, length)

    def sync(self, fd: int) -> None:
        """Make everything written before durable."""
        with self._lock:
            self._check()
            inode = os.fstat(fd).st_ino
            file = self._dirty.get(inode)
            count = 0 if file is None else file.unsynced.count
        os.fdatasync(fd)
        self.pace.sync()
        with self._lock:
            self._check()
            if file is not None:
                file.unsynced.synced(count)
                if not file.unsynced and self._dirty.get(inode) is file:
                    self._forget(inode)

    def close(self, fd: int) -> None:
        """Close the descriptor; written data stays unsynced."""
        with self._lock:
            told = os.fstat(fd)
            if not told.st_nlink:
                self._forget(told.st_ino)
            os.close(fd)

    # Names.

    def make_directory(self, path: str, mode: int) -> None:
        """Make a directory, as mkdir does."""
        with self._lock:
            os.mkdir(self.at(path), mode)
            self._names.changed(Change(None, path, directory=True))

    def remove_directory(self, path: str) -> None:
        """Remove a directory, as rmdir does."""
        with self._lock:
            os.rmdir(self.at(path))
            self._names.changed(Change(path, None, directory=True))

    def remove(self, path: str) -> None:
        """Remove a file; it is kept apart until its removal is durable."""
        with self._lock:
            self._names.changed(Change(path, None, self._set_aside(path)))

    def rename(self, old: str, new: str) -> None:
        """Rename a file, also over another file.

        Raises ENOTSUP for a directory: nodes rename none.
        """
        with self._lock:
            if stat.S_ISDIR(os.lstat(self.at(old)).st_mode):
                raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP), old)
            spare = self._set_aside(new) if os.path.lexists(self.at(new)) else None
            os.rename(self.at(old), self.at(new))
            self._names.changed(Change(old, new, spare))

    def sync_directory(self, path: str) -> None:
        """Make the present names of the directory, and earlier removals, durable."""
        with self._lock:
            before = self._names.now()
            fd = os.open(self.at(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
        self.pace.sync()
        with self._lock:
            self._check()
            for change in self._names.synced(path, before):
                if change.spare is not None:
                    self._forget(os.stat(change.spare).st_ino)
                    os.unlink(change.spare)

    # End.

    def cut_power(self, rng: random.Random) -> Lost:
        """Stop all calls, and undo some of the unsynced changes."""
        with self._lock:
            self._check()
            self._cut = True
            dirty = list(self._dirty)
            for inode in dirty:
                file = self._dirty[inode]
                file.unsynced.lose(file, rng.choice(HOW), rng)
                self._forget(inode)
            lost = self._names.lose(rng)
            for change in lost:
                self._undo(change)
            return Lost(len(dirty), len(lost))

    def _check(self) -> None:
        if self._cut:
            raise OSError(errno.EIO, "the power was cut")

    def _dirtied(self, fd: int) -> _Dirty:
        self._check()
        inode = os.fstat(fd).st_ino
        file = self._dirty.get(inode)
        if file is None:
            file = self._dirty[inode] = _Dirty(os.dup(fd))
        return file

    def _forget(self, inode: int) -> None:
        """Forget a file whose content is durable, or that is gone."""
        file = self._dirty.pop(inode, None)
        if file is not None:
            os.close(file.fd)

    def _set_aside(self, path: str) -> str:
        """Keep a file apart. Raises IsADirectoryError."""
        if stat.S_ISDIR(os.lstat(self.at(path)).st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        spare = str(self._spares / str(next(self._numbers)))
        os.rename(self.at(path), spare)
        return spare

    def _undo(self, change: Change) -> None:
        old = None if change.old is None else f"{self.root}{change.old}"
        new = None if change.new is None else f"{self.root}{change.new}"
        if new is not None:
            if old is not None:
                os.rename(new, old)
            elif change.directory:
                os.rmdir(new)
            else:
                os.unlink(new)
        elif old is not None and change.directory:
            os.mkdir(old)
        place = old if new is None else new
        if change.spare is not None and place is not None:
            os.rename(change.spare, place)


def write_all(fd: int, data: bytes, offset: int) -> None:
    """Write all data: a single write may be short."""
    view = memoryview(data)
    while view:
        count = os.pwrite(fd, view, offset)
        view, offset = view[count:], offset + count
