"""The gain of using WAL files again: beginning a file, and syncing rounds into it.

    scripts/bench wal [--rounds 2000] [--bytes 4096] [--file-mib 64] [--repeats 5] [--data DIR]

A file is begun in each of four ways: grown as it is written, preallocated, written with zeros, used
again. Then rounds are written and synced into the file, one after the other. The ways take turns,
so that other work of the machine hits all of them.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

from .figures import data_directory

_ZEROS = bytes(1 << 20)


def _grown(path: Path, _: int) -> int:
    path.unlink(missing_ok=True)
    return os.open(path, os.O_RDWR | os.O_CREAT)


def _preallocated(path: Path, size: int) -> int:
    fd = _grown(path, size)
    os.posix_fallocate(fd, 0, size)
    return fd


def _zeroed(path: Path, size: int) -> int:
    fd = _grown(path, size)
    for offset in range(0, size, len(_ZEROS)):
        os.pwrite(fd, _ZEROS, offset)
    return fd


def _recycled(path: Path, size: int) -> int:
    if not path.exists() or path.stat().st_size != size:
        raise RuntimeError("there is no file to use again")
    os.replace(path, path.with_name("again"))
    os.replace(path.with_name("again"), path)
    return os.open(path, os.O_RDWR)


_WAYS: dict[str, Callable[[Path, int], int]] = {
    "grown": _grown, "preallocated": _preallocated, "zeros": _zeroed, "recycled": _recycled,
}  # fmt: skip


def _begin(way: str, path: Path, size: int) -> tuple[int, float]:
    """Return the file's descriptor, and the seconds until it was durable with a header."""
    began = time.perf_counter()
    fd = _WAYS[way](path, size)
    os.pwrite(fd, bytes(64), 0)
    os.fdatasync(fd)
    directory = os.open(path.parent, os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)
    return fd, time.perf_counter() - began


def _rounds(fd: int, data: bytes, count: int) -> list[float]:
    """Return the seconds of each write and sync."""
    taken = []
    for number in range(count):
        began = time.perf_counter()
        os.pwrite(fd, data, 64 + number * len(data))
        os.fdatasync(fd)
        taken.append(time.perf_counter() - began)
    os.close(fd)
    return taken


def main(arguments: Sequence[str]) -> int:
    """Measure and print one line a way."""
    parser = argparse.ArgumentParser(prog="scripts/bench wal", allow_abbrev=False)
    parser.add_argument("--rounds", type=int, default=2_000)
    parser.add_argument("--bytes", type=int, default=4_096)
    parser.add_argument("--file-mib", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--data", type=data_directory, default=Path())
    options = parser.parse_args(arguments)
    size, data = options.file_mib << 20, os.urandom(options.bytes)
    begins: dict[str, list[float]] = {way: [] for way in _WAYS}
    syncs: dict[str, list[float]] = {way: [] for way in _WAYS}
    with tempfile.TemporaryDirectory(dir=options.data) as directory:
        for _ in range(options.repeats):
            for way in _WAYS:  # the zeroed file is the one that is used again
                fd, seconds = _begin(way, Path(directory, "file"), size)
                begins[way].append(seconds)
                syncs[way] += _rounds(fd, data, options.rounds)
    print(f"{'':14}begin ms (worst)    sync p50 ms   p99 ms")
    for way in _WAYS:
        taken = sorted(syncs[way])
        print(
            f"{way:14}{median(begins[way]) * 1e3:8.1f} ({max(begins[way]) * 1e3:.1f})"
            f"{median(taken) * 1e3:14.3f}{taken[int(len(taken) * 0.99)] * 1e3:10.3f}"
        )
    return 0
