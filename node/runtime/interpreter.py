"""Settings of the Python interpreter and the C library, made once at the start of a node."""

import asyncio
import contextlib
import ctypes
import sys
from collections.abc import Coroutine
from typing import Any, Final

from .garbage import only_the_young
from .turn_time import TimedLoop

_SWITCH_S: Final = 0.0005
"""How long a thread that returns from the disk waits for the interpreter while the loop is busy.
With CPython's 5 ms each WAL round waited up to four times as long: to begin, to write, to sync, and
to report (Beazley, "Understanding the Python GIL", 2010: the convoy effect)."""
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
    """Give large blocks pages of their own, which return to the system when they are freed.

    glibc raises its threshold to the size of each freed block (mallopt(3), M_MMAP_THRESHOLD), up to
    32 MiB. Later batches, pages and frames then lie in the heap between small blocks that stay, and
    a node kept 450 MiB that it had freed. Do nothing where the C library has no mallopt.
    """
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, _MMAP_BYTES)
