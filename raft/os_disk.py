"""The `Disk` of a real node: one directory, descriptors kept open, every call blocking."""

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from .types import Disk

_BUFFERS_MAX = 512
"""Below IOV_MAX (1024 on Linux)."""
_ZEROS = bytes(1 << 20)


class OsDisk(Disk):
    """Files directly in `directory`. Errors are OSError and name the file.

    `readonly`: nothing can be changed through it.
    """

    def __init__(self, directory: Path, *, readonly: bool = False) -> None:
        self._directory = directory
        self._flags = (os.O_RDONLY if readonly else os.O_RDWR) | os.O_CLOEXEC
        self._open: dict[str, int] = {}

    def names(self) -> list[str]:
        return sorted(entry.name for entry in os.scandir(self._directory) if entry.is_file())

    def create(self, name: str, size: int) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        fd = os.open(self._directory / name, flags, 0o600)
        self._open[name] = fd
        try:
            # Written, not fallocated: an unwritten extent would cost a metadata commit per sync.
            for offset in range(0, size, len(_ZEROS)):
                self.write(name, offset, [_ZEROS[: size - offset]])
        except OSError:
            with suppress(OSError):  # half of it would only keep the disk full
                self.delete(name)
            raise

    def size(self, name: str) -> int:
        with _naming(self._directory / name):
            return os.fstat(self._fd(name)).st_size

    def read(self, name: str, offset: int, length: int) -> bytes:
        fd = self._fd(name)
        parts = []
        while length > 0:
            with _naming(self._directory / name):
                part = os.pread(fd, length, offset)
            if not part:
                break
            parts.append(part)
            offset += len(part)
            length -= len(part)
        return b"".join(parts)

    def write(self, name: str, offset: int, buffers: Sequence[bytes]) -> None:
        fd = self._fd(name)
        for first in range(0, len(buffers), _BUFFERS_MAX):
            chunk = list(buffers[first : first + _BUFFERS_MAX])
            total = sum(map(len, chunk))
            with _naming(self._directory / name):
                written = os.pwritev(fd, chunk, offset)
                if written < total:  # a signal or a full disk; the rest in one piece
                    _write_rest(fd, b"".join(chunk)[written:], offset + written)
            offset += total

    def truncate(self, name: str, size: int) -> None:
        os.ftruncate(self._fd(name), size)

    def rename(self, old: str, new: str) -> None:
        os.rename(self._directory / old, self._directory / new)
        if old in self._open:
            self._open[new] = self._open.pop(old)

    def delete(self, name: str) -> None:
        os.unlink(self._directory / name)
        fd = self._open.pop(name, None)
        if fd is not None:
            os.close(fd)

    def sync(self, name: str) -> None:
        with _naming(self._directory / name):
            os.fdatasync(self._fd(name))

    def sync_directory(self) -> None:
        fd = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with _naming(self._directory):
                os.fsync(fd)
        finally:
            os.close(fd)

    def close(self) -> None:
        """Close all descriptors."""
        for fd in self._open.values():
            os.close(fd)
        self._open.clear()

    def _fd(self, name: str) -> int:
        fd = self._open.get(name)
        if fd is None:
            fd = os.open(self._directory / name, self._flags)
            self._open[name] = fd
        return fd


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """A call on a descriptor fails without saying on which file."""
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
