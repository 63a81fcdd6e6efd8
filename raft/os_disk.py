"""The `Disk` of a real node: one directory, some descriptors kept open, every call blocking.

Small files or a slow follower make many files. Only the files used last stay open, since a node has
a limit of descriptors.
"""

import errno
import os
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path

from .types import Disk

_BUFFERS_MAX = 512
"""Below IOV_MAX (1024 on Linux)."""
_ZEROS = bytes(1 << 20)
_OPEN_MAX = 64


class OsDisk(Disk):
    """Files directly in `directory`. Errors are OSError and name the file.

    `readonly`: the disk rejects all changes. `open_max`: the number of descriptors that stay open.
    Beyond them, each call in progress and each file with unsynced writes keeps one; these are few.
    Two threads may call this disk, as long as no two change the same file.
    """

    def __init__(
        self, directory: Path, *, readonly: bool = False, open_max: int = _OPEN_MAX
    ) -> None:
        self._directory = directory
        self._flags = (os.O_RDONLY if readonly else os.O_RDWR) | os.O_CLOEXEC
        self._open_max = open_max
        self._lock = threading.Lock()
        """Guards the tables below and the opening of files, not the calls that wait for a disk."""
        self._open: OrderedDict[str, int] = OrderedDict()
        self._lent: Counter[str] = Counter()
        """Calls in progress per file; the descriptors of these files stay open."""
        self._unsynced: set[str] = set()
        """Files with unsynced writes. Only a descriptor that was open reports a failed write, so
        these stay open, too."""
        self._timing: Callable[[], AbstractContextManager[object]] = nullcontext

    def watch_syncs(self, timing: Callable[[], AbstractContextManager[object]]) -> None:
        """Run each sync of a file in a context that `timing` makes."""
        self._timing = timing

    def names(self) -> list[str]:
        return sorted(entry.name for entry in os.scandir(self._directory) if entry.is_file())

    def create(self, name: str, size: int) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        fd = os.open(self._directory / name, flags, 0o600)
        with self._lock:
            self._open[name] = fd
            self._unsynced.add(name)
        try:
            # Written, not fallocated: an unwritten extent would cost a metadata commit per sync.
            for offset in range(0, size, len(_ZEROS)):
                self.write(name, offset, [_ZEROS[: size - offset]])
        except OSError:
            with suppress(OSError):  # half a file would only keep the disk full
                self.delete(name)
            raise

    def size(self, name: str) -> int:
        with self._descriptor(name) as fd:
            return os.fstat(fd).st_size

    def read(self, name: str, offset: int, length: int) -> bytes:
        parts = []
        with self._descriptor(name) as fd:
            while length > 0:
                part = os.pread(fd, length, offset)
                if not part:
                    break
                parts.append(part)
                offset += len(part)
                length -= len(part)
        return b"".join(parts)

    def write(self, name: str, offset: int, buffers: Sequence[bytes]) -> None:
        with self._descriptor(name, changes=True) as fd:
            for first in range(0, len(buffers), _BUFFERS_MAX):
                chunk = list(buffers[first : first + _BUFFERS_MAX])
                total = sum(map(len, chunk))
                written = os.pwritev(fd, chunk, offset)
                if written < total:  # a signal or a full disk; write the rest in one piece
                    _write_rest(fd, b"".join(chunk)[written:], offset + written)
                offset += total

    def truncate(self, name: str, size: int) -> None:
        with self._descriptor(name, changes=True) as fd:
            os.ftruncate(fd, size)

    def rename(self, old: str, new: str) -> None:
        os.rename(self._directory / old, self._directory / new)
        with self._lock:
            if old in self._open:
                self._open[new] = self._open.pop(old)
            if old in self._unsynced:
                self._unsynced.remove(old)
                self._unsynced.add(new)

    def delete(self, name: str) -> None:
        os.unlink(self._directory / name)
        with self._lock:
            self._unsynced.discard(name)
            fd = self._open.pop(name, None)
        if fd is not None:
            os.close(fd)

    def sync(self, name: str) -> None:
        with self._descriptor(name) as fd, self._timing():
            os.fdatasync(fd)
        with self._lock:
            self._unsynced.discard(name)

    def lend_open(self, name: str) -> int | None:
        """Return the descriptor of an open file for one write. Call `written` at its end.

        Return None, without waiting, if the file is not open or another thread uses the tables.
        """
        if not self._lock.acquire(blocking=False):
            return None
        try:
            fd = self._open.get(name)
            if fd is not None:
                self._open.move_to_end(name)
                self._lent[name] += 1
                self._unsynced.add(name)
            return fd
        finally:
            self._lock.release()

    def written(self, name: str, *, synced: bool) -> None:
        """Note the end of the write that `lend_open` has begun. `synced`: fdatasync succeeded."""
        with self._lock:
            if synced:
                self._unsynced.discard(name)
            self._return(name)

    def path(self, name: str) -> str:
        """Return the path of a file, for errors."""
        return str(self._directory / name)

    def sync_directory(self) -> None:
        fd = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with _naming(self._directory):
                os.fsync(fd)
        finally:
            os.close(fd)

    def close(self) -> None:
        """Close all descriptors."""
        with self._lock:
            descriptors = list(self._open.values())
            self._open.clear()
        for fd in descriptors:
            os.close(fd)

    def _descriptor(self, name: str, *, changes: bool = False) -> "_Lent":
        """Return a context that keeps the file's descriptor open, and has it."""
        return _Lent(self, name, changes)

    def _lend(self, name: str, changes: bool) -> int:
        with self._lock:
            fd = self._open.get(name)
            if fd is None:
                fd = self._open[name] = os.open(self._directory / name, self._flags)
            self._open.move_to_end(name)
            self._lent[name] += 1
            if changes:
                self._unsynced.add(name)
            self._close_oldest()
            return fd

    def _take_back(self, name: str) -> None:
        with self._lock:
            self._return(name)

    def _return(self, name: str) -> None:
        self._lent[name] -= 1
        if not self._lent[name]:
            del self._lent[name]

    def _close_oldest(self) -> None:
        if len(self._open) <= self._open_max:
            return
        for name in list(self._open):
            if name not in self._lent and name not in self._unsynced:
                os.close(self._open.pop(name))
                if len(self._open) <= self._open_max:
                    return


class _Lent:
    """A descriptor while a call uses it. Each WAL round enters two: generators as contexts take
    five times as long."""

    __slots__ = ("_changes", "_disk", "_name")

    def __init__(self, disk: OsDisk, name: str, changes: bool) -> None:
        self._disk = disk
        self._name = name
        self._changes = changes

    def __enter__(self) -> int:
        return self._disk._lend(self._name, self._changes)

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        self._disk._take_back(self._name)
        if isinstance(error, OSError):
            # A call on a descriptor fails without a file name.
            error.filename = str(self._disk._directory / self._name)


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Name the file in an OSError: a call on a descriptor fails without a file name."""
    try:
        yield
    except OSError as error:
        error.filename = str(path)
        raise


def _write_rest(fd: int, rest: bytes, offset: int) -> None:
    view = memoryview(rest)
    while view:
        count = os.pwrite(fd, view, offset)
        if count == 0:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        view, offset = view[count:], offset + count
