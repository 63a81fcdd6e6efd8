"""`scripts/bench writeback`: what the WAL's syncs wait for while segments go to the same disk.

A small file is written and synced repeatedly, like the WAL. Beside it, several files of the size of
a segment are written and synced: by an fsync at their end, or in steps before it, as the builder
does. The ways take turns, so that a noisy machine spoils both alike.
"""

import os
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from lognode.statemachine.write_back import write_back

from . import harness
from .figures import environment, quantile

_MIB = 1 << 20
_ROUND_BYTES = 64 << 10
_PAUSE_S = 0.005
_WAL_BYTES = 16 * _MIB


def main(arguments: Sequence[str]) -> int:
    """Run all ways in turn and print the figures."""
    parser = harness.parser("writeback", __doc__)
    parser.add_argument("--repeats", type=int)
    parser.add_argument("--files", type=int, default=3, help="segments written at once")
    parser.add_argument("--file-mib", type=int)
    options = parser.parse_args(arguments)
    repeats: int = options.repeats or (1 if options.quick else 6)
    mib: int = options.file_mib or (4 if options.quick else 64)
    around = environment()
    ways: dict[str, Callable[[Path], None] | None] = {
        "nothing beside it": None,
        "fsync at the end": lambda path: None,
        "in steps, then fsync": write_back,
    }
    found: dict[str, list[float]] = {name: [] for name in ways}
    took: dict[str, list[float]] = {name: [] for name in ways}
    with tempfile.TemporaryDirectory(dir=options.data) as directory:
        for _ in range(repeats):
            for name, way in ways.items():
                beside = _Wal(Path(directory) / "wal")
                began = time.perf_counter()
                if way is None:
                    time.sleep(0.2 if options.quick else 1.0)
                else:
                    _segments(Path(directory), options.files, mib, way)
                took[name].append(time.perf_counter() - began)
                found[name] += beside.stop()
    rows = [
        {
            "beside it": name,
            "syncs": len(seconds),
            **{
                f"{quantity}_ms": round(quantile(seconds, fraction) * 1e3, 2)
                for quantity, fraction in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))
            },
            "slowest_ms": round(max(seconds) * 1e3, 2),
            "took_s": round(quantile(took[name], 0.5), 2),
        }
        for name, seconds in found.items()
    ]
    harness.show(options, around, rows)
    return 0


class _Wal:
    """A thread that writes and syncs until it is stopped."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        for offset in range(0, _WAL_BYTES, _MIB):  # as a file used again: no block to allocate
            os.pwrite(self._fd, os.urandom(_MIB), offset)
        os.fsync(self._fd)
        self._seconds: list[float] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def _write(self) -> None:
        data, offset = os.urandom(_ROUND_BYTES), 0
        while not self._over.wait(_PAUSE_S):
            began = time.perf_counter()
            os.pwrite(self._fd, data, offset)
            os.fdatasync(self._fd)
            self._seconds.append(time.perf_counter() - began)
            offset = (offset + _ROUND_BYTES) % _WAL_BYTES

    def stop(self) -> list[float]:
        """Return the seconds of each write and sync."""
        self._over.set()
        self._thread.join()
        os.close(self._fd)
        return self._seconds


def _segments(directory: Path, files: int, mib: int, way: Callable[[Path], None]) -> None:
    threads = [
        threading.Thread(target=_segment, args=(directory / f"segment-{number}", mib, way))
        for number in range(files)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _segment(path: Path, mib: int, way: Callable[[Path], None]) -> None:
    data = os.urandom(_MIB)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        for at in range(mib):
            os.pwrite(fd, data, at * _MIB)
        way(path)
        os.fsync(fd)
    finally:
        os.close(fd)
