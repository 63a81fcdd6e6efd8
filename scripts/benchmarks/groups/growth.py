"""How the members of a turn grow while a group goes through many keys: their memory, their files.

The counted files are the meta environments of lognode, which have the rows of the groups; other
systems have none.
"""

import contextlib
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from ..processor import resident

_EVERY_S: Final = 0.5


class Growth:
    """Samples of the members with these process ids and this directory."""

    def __init__(self, pids: Sequence[int], directory: Path) -> None:
        self._pids = pids
        self._directory = directory
        self._marks: dict[str, tuple[int, int]] = {}
        self._most = (0, 0)

    def mark(self, name: str) -> None:
        """Note what the members have now."""
        self._marks[name] = self._now()

    @contextlib.contextmanager
    def while_it_grows(self) -> Iterator[None]:
        """Look for the most that the members have during the block."""
        over = threading.Event()

        def look() -> None:
            while not over.wait(_EVERY_S):
                memory, files = self._now()
                self._most = max(self._most[0], memory), max(self._most[1], files)

        thread = threading.Thread(target=look, name="growth", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def report(self, keys: int) -> dict[str, Any]:
        """Return MiB of a member at the marks and at most, and bytes a key that were added."""
        count = len(self._pids)
        begun, ended = self._marks["appended"], self._marks["done"]
        return {
            "MiB before": _mib(begun[0] / count),
            "MiB at most": _mib(self._most[0] / count),
            "MiB after": _mib(ended[0] / count),
            "bytes a key": round((self._most[0] - begun[0]) / count / keys, 1),
            "meta MiB before": _mib(begun[1] / count),
            "meta MiB at most": _mib(self._most[1] / count),
            "meta MiB after": _mib(ended[1] / count),
        }

    def _now(self) -> tuple[int, int]:
        return resident(self._pids), sum(map(_size, self._directory.glob("*/meta.mdb")))


def _size(path: Path) -> int:
    """Return the bytes that the file takes on the disk; none if it was removed meanwhile."""
    try:
        return path.stat().st_blocks * 512
    except FileNotFoundError:
        return 0


def _mib(count: float) -> float:
    return round(count / (1 << 20), 1)
