"""Writing a large fresh file back in small steps, so that its fsync leaves nothing to write.

At a file's fsync the kernel writes all of its pages as fast as it can, and the next fdatasync of
the WAL waits behind them. This module writes each MiB and waits for it, and then leaves the disk
alone for four times as long. A sync of the WAL then seldom meets a step, and waits for one at most
(docs/performance-notes.md#segments-and-the-wal-on-one-disk).
"""

import ctypes
import errno
import os
import threading
import time
from pathlib import Path
from typing import Final

_STEP_BYTES: Final = 1 << 20
_ALL: Final = 7
"""SYNC_FILE_RANGE_WAIT_BEFORE, _WRITE and _WAIT_AFTER of Linux."""
_PAUSE: Final = 4
"""The pause, as a multiple of the step's time."""
_PAUSE_MAX_S: Final = 0.1
_UNKNOWN_HERE: Final = frozenset({errno.ENOSYS, errno.EINVAL, errno.ESPIPE})


def write_back(path: Path, given_up: threading.Event | None = None) -> None:
    """Write the file's pages to the disk. This makes nothing durable; an fsync has to follow.

    It takes about five times as long as the disk needs: call it where nobody waits. It does nothing
    where the system has no such call. Raises OSError when a page cannot be written, and
    InterruptedError, which is an OSError, between two steps once `given_up` is set.
    """
    call = getattr(ctypes.CDLL(None, use_errno=True), "sync_file_range", None)
    if call is None:
        return
    call.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(fd).st_size
        for offset in range(0, size, _STEP_BYTES):
            began = time.monotonic()
            if call(fd, offset, _STEP_BYTES, _ALL):
                number = ctypes.get_errno()
                if number in _UNKNOWN_HERE:
                    return
                raise OSError(number, os.strerror(number), str(path))
            if offset + _STEP_BYTES < size:
                pause = min(_PAUSE * (time.monotonic() - began), _PAUSE_MAX_S)
                if given_up is None:
                    time.sleep(pause)
                elif given_up.wait(pause):
                    raise InterruptedError(errno.EINTR, "nobody needs the file any more", str(path))
    finally:
        os.close(fd)
