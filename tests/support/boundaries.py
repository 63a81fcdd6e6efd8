"""Every step that a process makes on its disk, counted from outside the program.

The functions of `os` and the transactions of `lmdb` that change files are wrapped in the process
under test, which has no switches for it. At the chosen boundary the process kills itself with
SIGKILL, before the call; so killing at each boundary in turn is killing between any two steps.

A boundary is a label and how often it was reached: two threads write, so that a count over all
labels would name another boundary in the next run.
"""

import os
import re
import signal
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lmdb

_BY_FD = ("pwritev", "pwrite", "fdatasync", "fsync", "ftruncate")
_CONTENT_ID = re.compile("[0-9a-f]{64}")
_PROCESS = re.compile(r"\bmerge-\d+-")
"""The name of a file that a merge writes has the number of its process."""
_BY_PATH = ("unlink", "rename", "replace")


class Boundaries:
    """Wraps what changes files under `root`. `told(label, nth)` is called before each such call.

    `kill_at` is a label and its occurrence, counted from 1; an occurrence of "" is of any label.
    """

    def __init__(
        self,
        root: Path,
        *,
        kill_at: tuple[str, int] = ("", 0),
        told: Callable[[str, int], None] = lambda label, nth: None,
    ) -> None:
        self._root = f"{root.resolve()}{os.sep}"
        self._kill_at = kill_at
        self._told = told
        self._lock = threading.Lock()
        self._reached: Counter[str] = Counter()

    def install(self) -> None:
        """From now on, for the rest of the process."""
        for name in _BY_FD:
            setattr(os, name, self._around_fd(name, getattr(os, name)))
        for name in _BY_PATH:
            setattr(os, name, self._around_path(name, getattr(os, name)))
        os.open = self._around_open(os.open)
        real_lmdb_open = lmdb.open

        def lmdb_open(path: str, *args: Any, **options: Any) -> Any:
            if options.get("readonly"):
                return real_lmdb_open(path, *args, **options)
            self.reached(f"lmdb open {self._name(path)}")
            return _Environment(self, self._name(path), real_lmdb_open(path, *args, **options))

        setattr(lmdb, "open", lmdb_open)  # noqa: B010  its type is that of a class

    def reached(self, label: str) -> None:
        """A boundary. Files elsewhere are not ours."""
        with self._lock:
            self._reached[label] += 1
            self._reached[""] += 1
            self._told(label, self._reached[label])
            if self._kill_at in ((label, self._reached[label]), ("", self._reached[""])):
                os.kill(os.getpid(), signal.SIGKILL)

    def _name(self, path: Any) -> str:
        name = f"{os.path.abspath(os.fspath(path))}{os.sep}".removeprefix(self._root) or "."
        return _PROCESS.sub("merge-PROCESS-", _CONTENT_ID.sub("CONTENT", name.rstrip(os.sep)))

    def _ours(self, path: Any) -> bool:
        return f"{os.path.abspath(os.fspath(path))}{os.sep}".startswith(self._root)

    def _around_fd(self, name: str, real: Any) -> Any:
        def call(fd: int, *args: Any) -> Any:
            path = os.readlink(f"/proc/self/fd/{fd}")
            if self._ours(path):
                self.reached(f"{name} {self._name(path)}")
            return real(fd, *args)

        return call

    def _around_path(self, name: str, real: Any) -> Any:
        def call(path: Any, *args: Any, **options: Any) -> Any:
            if not options and self._ours(path):
                names = [self._name(given) for given in (path, *args)]
                self.reached(f"{name} {' to '.join(names)}")
            return real(path, *args, **options)

        return call

    def _around_open(self, real: Any) -> Any:
        def call(path: Any, flags: int, *args: Any, **options: Any) -> int:
            if flags & os.O_CREAT and self._ours(path):
                self.reached(f"create {self._name(path)}")
            return int(real(path, flags, *args, **options))

        return call


class _Environment:
    """An LMDB environment whose write transactions begin and end at boundaries."""

    def __init__(self, boundaries: Boundaries, name: str, real: Any) -> None:
        self._boundaries = boundaries
        self._name = name
        self._real = real

    def begin(self, *args: Any, **options: Any) -> Any:
        real = self._real.begin(*args, **options)
        if not options.get("write"):
            return real
        return _Transaction(self._boundaries, self._name, real)

    def sync(self, *args: Any) -> None:
        self._boundaries.reached(f"lmdb sync {self._name}")
        self._real.sync(*args)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class _Transaction:
    def __init__(self, boundaries: Boundaries, name: str, real: Any) -> None:
        self._boundaries = boundaries
        self._name = name
        self._real = real

    def __enter__(self) -> "_Transaction":
        self._boundaries.reached(f"lmdb begin {self._name}")
        self._real.__enter__()
        return self

    def __exit__(self, *raised: Any) -> Any:
        self._boundaries.reached(f"lmdb commit {self._name}")
        result = self._real.__exit__(*raised)
        self._boundaries.reached(f"lmdb committed {self._name}")
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)
