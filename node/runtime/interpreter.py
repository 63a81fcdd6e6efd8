"""What a node wants of its Python interpreter and of its C library, set once at the start."""

import asyncio
import contextlib
import ctypes
import sys
from collections.abc import Coroutine
from typing import Any, Final

from .garbage import only_the_young
from .turn_time import TimedLoop

_SWITCH_S: Final = 0.0005
"""How long a thread that comes from the disk waits for the interpreter while the loop is busy. With
CPython's 5 ms each round of the WAL waited up to four times as long: to begin, to write, to sync,
and to tell (Beazley, "Understanding the Python GIL", 2010: the convoy effect)."""
_M_MMAP_THRESHOLD: Final = -3
_MMAP_BYTES: Final = 500 * 1024


def run(main: Coroutine[Any, Any, int]) -> int:
    """Run a node to its end and return its exit code. Call it after the imports."""
    _tune()
    with asyncio.Runner(loop_factory=TimedLoop) as runner:
        return runner.run(main)


def _tune() -> None:
    only_the_young()
    sys.setswitchinterval(_SWITCH_S)
    _give_memory_back()


def _give_memory_back() -> None:
    """Let what is large have pages of its own, which the system gets back when it is freed.

    glibc raises its threshold to the size of whatever was freed (mallopt(3), M_MMAP_THRESHOLD), up
    to 32 MiB: from then on batches, pages and frames lie in the heap between what is small and
    stays, and a node kept 450 MiB that it had freed. Nothing where the C library knows no mallopt.
    """
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, _MMAP_BYTES)
