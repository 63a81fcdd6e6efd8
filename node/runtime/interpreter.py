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
_MMAP_BYTES: Final = 1 << 20
_TRIM_BYTES: Final = 16 << 20
_MALLOC: Final = (("M_TRIM_THRESHOLD", -1, _TRIM_BYTES), ("M_MMAP_THRESHOLD", -3, _MMAP_BYTES),
                  ("M_ARENA_MAX", -8, 1))  # fmt: skip
"""Settings of glibc: names, numbers and values, see mallopt(3)."""


def run(main: Coroutine[Any, Any, int]) -> int:
    """Run a node to its end and return its exit code. Call it after the imports."""
    _tune()
    with asyncio.Runner(loop_factory=TimedLoop) as runner:
        return runner.run(main)


def _tune() -> None:
    only_the_young()
    sys.setswitchinterval(_SWITCH_S)
    _set_malloc()


def _set_malloc() -> None:
    """Have large blocks return to the system, and batches use memory that is there already.

    glibc raises M_MMAP_THRESHOLD to the size of each freed block, up to 32 MiB. Later pages and
    frames then lie in the heap between small blocks that stay, and a node kept 450 MiB that it had
    freed. So the threshold is fixed: a larger block has pages of its own while it is in use.

    A request brings some hundred KiB, and is unpacked, written and sent within milliseconds. Such
    blocks stay in the heap, whose free end is kept up to M_TRIM_THRESHOLD. With 500 KiB and glibc's
    128 KiB the system cleared a page for every second record. One heap serves all threads, since
    they take turns at the interpreter, and what one of them frees another uses. To give 64 MiB back
    at once took the system over 20 ms of a turn, so the free end is at most 16 MiB.

    Does nothing where the C library has no mallopt.
    """
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        for _, number, value in _MALLOC:
            libc.mallopt(number, value)
