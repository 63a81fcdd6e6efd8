"""The calls of FUSE, each passed on to the folder behind; threads of libfuse make them.

The kernel caches pages as for any file system, so that files can be mapped; written data reaches
this process before the write returns. The kernel alone handles flock, fcntl locks and mappings. A
file that is removed while it is open stays usable, except for fstat and truncation.
"""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import mfusepy

from .backing import Backing

_INVALIDATE: Final = 1 << 12
"""FUSE_CAP_AUTO_INVAL_DATA."""
_FOR_EVER_S: Final = 86_400.0
"""The folder never changes behind the kernel's back."""
_STAT: Final = (
    "st_mode", "st_ino", "st_nlink", "st_uid", "st_gid", "st_size", "st_blocks", "st_blksize",
)  # fmt: skip
_STATFS: Final = (
    "f_bavail", "f_bfree", "f_blocks", "f_bsize", "f_favail", "f_ffree", "f_files", "f_frsize",
    "f_namemax",
)  # fmt: skip


def serve(backing: Backing, mount_point: Path, mounted: Callable[[], None]) -> None:
    """Mount, and serve until the unmount; call `mounted` once the mount is there.

    Raises RuntimeError when it cannot be mounted; libfuse has written the reason to stderr.
    """
    mfusepy.FUSE(
        _Calls(backing, mounted), str(mount_point), foreground=True, fsname="lognode-powerfs",
        hard_remove=True, use_ino=True,
    )  # fmt: skip


class _Calls:
    """The calls, with mfusepy's names and arguments; a missing call is not supported."""

    use_ns = True

    def __init__(self, backing: Backing, mounted: Callable[[], None]) -> None:
        self._backing = backing
        self._mounted = mounted

    def init_with_config(self, connection: Any, config: Any) -> None:
        # Otherwise every write makes the kernel drop the file's pages, mapped ones too.
        connection.want &= ~_INVALIDATE
        config.kernel_cache = 1
        config.attr_timeout = config.entry_timeout = _FOR_EVER_S
        self._mounted()

    def getattr(self, path: str | None, fd: int | None = None) -> dict[str, int]:
        told = os.fstat(fd) if fd is not None else os.lstat(self._at(path))
        return {name: getattr(told, name) for name in _STAT} | {
            f"st_{which}time": getattr(told, f"st_{which}time_ns") for which in "amc"
        }

    def readdir(self, path: str, _: int) -> list[tuple[str, dict[str, int], int]]:
        # With inodes: libfuse takes a name without an inode for a removed one.
        folder = self._at(path)
        told = [(name, os.lstat(os.path.join(folder, name))) for name in os.listdir(folder)]
        own = os.lstat(folder)
        return [
            (name, {"st_mode": stat.st_mode, "st_ino": stat.st_ino}, 0)
            for name, stat in [(".", own), ("..", own), *told]
        ]

    def mkdir(self, path: str, mode: int) -> None:
        self._backing.make_directory(path, mode)

    def rmdir(self, path: str) -> None:
        self._backing.remove_directory(path)

    def unlink(self, path: str) -> None:
        self._backing.remove(path)

    def rename(self, old: str, new: str) -> None:
        self._backing.rename(old, new)

    def create(self, path: str, mode: int) -> int:
        return self._backing.make(path, mode)

    def open(self, path: str, flags: int) -> int:
        return self._backing.open(path, flags)

    def read(self, _: str | None, size: int, offset: int, fd: int) -> bytes:
        return self._backing.read(fd, offset, size)

    def write(self, _: str | None, data: bytes, offset: int, fd: int) -> int:
        return self._backing.write(fd, offset, data)

    def truncate(self, path: str | None, size: int) -> None:
        fd = self._backing.open(self._known(path), os.O_RDWR)
        try:
            self._backing.resize(fd, size)
        finally:
            self._backing.close(fd)

    def fallocate(self, _: str | None, mode: int, offset: int, length: int, fd: int) -> None:
        if mode:
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
        self._backing.reserve(fd, offset, length)

    def release(self, _: str | None, fd: int) -> None:
        self._backing.close(fd)

    def fsync(self, _: str | None, datasync: int, fd: int) -> None:
        self._backing.sync(fd)

    def fsyncdir(self, path: str, datasync: int, _: int) -> None:
        self._backing.sync_directory(path)

    def chmod(self, path: str | None, mode: int) -> None:
        os.chmod(self._at(path), mode)

    def utimens(self, path: str | None, times: tuple[int, int] | None = None) -> None:
        if times is None:
            os.utime(self._at(path))
        else:
            os.utime(self._at(path), ns=times)

    def statfs(self, path: str) -> dict[str, int]:
        told = os.statvfs(self._at(path))
        return {name: getattr(told, name) for name in _STATFS}

    def _at(self, path: str | None) -> str:
        return self._backing.at(self._known(path))

    def _known(self, path: str | None) -> str:
        """Return the path. Raises OSError for a file that was removed and is still open."""
        if path is None:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
        return path
