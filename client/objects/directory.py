"""A directory as a store: an object is a file.

A file appears whole or not at all: it is written beside its place under a name that begins with
`.`, synced, and linked to its place. The directory is synced before `put` returns.

A writer that is killed leaves the file beside the place. `clear` removes such files. A writer holds
a lock (flock) on the file while it writes, and the kernel ends the lock with the writer, so `clear`
removes only files whose lock it gets. Between the creation of the file and its lock, and on file
systems without locks or with locks of one machine only, `clear` may take the file of a living
writer: then the writer does not find the file when it links the file, and writes the file again.
"""

import errno
import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from ..protocol.errors import Unavailable
from .store import Listed, ObjectStore, check_name, check_range, is_name

_WITHOUT_LINKS: Final = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
"""Errors with which a file system refuses hard links."""
_BESIDE: Final = re.compile(r"[.].+[.]part")
_TRIES: Final = 3
"""How often a file is written whose place another process has cleared."""


class DirectoryStore(ObjectStore):
    """A directory, which `put` creates. The contract is that of the folder."""

    def __init__(self, root: Path) -> None:
        self.place = str(root)
        self._root = root

    def put(self, name: str, content: bytes, *, replace: bool = False) -> bool:
        path = self._root / check_name(name)
        with self._errors():
            if not replace and path.exists():
                return False
            for _ in range(_TRIES - 1):
                with suppress(FileNotFoundError):  # `clear` has taken the file
                    return self._written(path, content, replace=replace)
            return self._written(path, content, replace=replace)

    def get(self, name: str, bytes_max: int) -> bytes | None:
        with self._errors():
            try:
                with (self._root / check_name(name)).open("rb") as file:
                    found = file.read(bytes_max + 1)
            except FileNotFoundError:
                return None
        if len(found) > bytes_max:
            raise self.too_large(name, bytes_max)
        return found

    def get_range(self, name: str, begin: int, end: int) -> bytes | None:
        check_range(begin, end)
        with self._errors():
            try:
                with (self._root / check_name(name)).open("rb") as file:
                    file.seek(begin)
                    found = file.read(end - begin)
            except FileNotFoundError:
                return None
        if len(found) < end - begin:
            raise self.too_short(name, end)
        return found

    def objects(self, folder: str = "") -> Iterator[Listed]:
        if folder:
            check_name(folder)
        yield from self._below(folder)

    def _below(self, folder: str) -> Iterator[Listed]:
        with self._errors():
            try:
                found = list(os.scandir(self._root / folder))
            except FileNotFoundError:
                return
        # Files and folders in the order of the whole names: `a-b` comes before `a/b`.
        named = {f"{entry.name}/" if entry.is_dir() else entry.name: entry for entry in found}
        for key, entry in sorted(named.items()):
            name = f"{folder}/{entry.name}" if folder else entry.name
            if not is_name(name):
                continue
            if key.endswith("/"):
                yield from self._below(name)
                continue
            with self._errors():
                try:
                    size = entry.stat().st_size
                except FileNotFoundError:
                    continue
            yield Listed(name, size)

    def delete(self, name: str) -> None:
        path = self._root / check_name(name)
        with self._errors(), suppress(FileNotFoundError):
            path.unlink()
            _sync(path.parent)

    def clear(self) -> int:
        count = 0
        for folder, _, names in os.walk(self._root):
            for name in filter(_BESIDE.fullmatch, names):
                with suppress(OSError), Path(folder, name).open("r+b") as file:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    Path(folder, name).unlink()
                    count += 1
        return count

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn errors of the disk into Unavailable."""
        try:
            yield
        except OSError as error:
            text = f"{error.strerror or error}. Check the disk and the rights of the directory"
            raise self.failed(Unavailable, text) from None

    def _written(self, path: Path, content: bytes, *, replace: bool) -> bool:
        """Write a file beside the path, and give the file its name. Return False for a path that
        exists, without `replace`."""
        _make(path.parent)
        beside = path.with_name(f".{path.name}.{os.urandom(8).hex()}.part")
        try:
            with beside.open("wb") as file:
                with suppress(OSError):  # a file system without locks, or `clear` is at the file
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
                if replace:
                    beside.replace(path)
                elif not self._linked(beside, path):
                    return False
        finally:
            beside.unlink(missing_ok=True)
        _sync(path.parent)
        return True

    def _linked(self, beside: Path, path: Path) -> bool:
        """Give the file its name, unless a file has the name."""
        try:
            os.link(beside, path)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in _WITHOUT_LINKS:
                raise
            self.conditional = False
            if path.exists():
                return False
            beside.replace(path)
        return True


def _make(folder: Path) -> None:
    """Create the folder and its parents, durably."""
    if folder.is_dir():
        return
    _make(folder.parent)
    folder.mkdir(exist_ok=True)
    _sync(folder.parent)


def _sync(folder: Path) -> None:
    directory = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
