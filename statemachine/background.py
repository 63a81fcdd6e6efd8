"""Background processes of a node, which give way to all other work.

A segment that is built a second later costs nothing, while an event loop that waits for a processor
delays every call it serves. With three nodes and a client on two cores, the p90 of reads halved
beside builders that gave way (docs/performance-notes.md#polls-what-was-in-the-way).

The child has a session of its own, since the node handles Ctrl-C. Where the kernel weighs sessions
against each other before it looks at nice values (autogroup; sched(7)), that session gives way,
too. A thread's nice value can only be raised, while a session's weight can be lowered again: so a
process that gives way only sometimes has a thread for that (`CalmThread`).
"""

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

_NICE: Final = 10
"""A tenth of another process's share when both want a processor: enough to finish."""
Found = TypeVar("Found")


def spawn(module: str, *arguments: str, gives_way: bool) -> "subprocess.Popen[bytes]":
    """Run a module of lognode in a child with pipes. Raises OSError."""
    process = subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
        # numpy's library of linear algebra, which is not used, would begin a thread for each core.
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )
    if gives_way:
        os.setpriority(os.PRIO_PROCESS, process.pid, _given_way())
        _weigh_session(process.pid, _NICE)
    return process


class CalmThread:
    """A thread for work that gives way, in a child that does other work at the node's priority."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, initializer=_give_way)
        self._weighs: int | None = None

    def run(self, work: Callable[[], Found], *, gives_way: bool) -> Found:
        """Do `work` on the thread that gives way, or else here. Return its result."""
        weight = _NICE if gives_way else 0
        if weight != self._weighs and _weigh_session(os.getpid(), weight):
            self._weighs = weight
        return self._thread.submit(work).result() if gives_way else work()


def _give_way() -> None:
    os.setpriority(os.PRIO_PROCESS, 0, _given_way())  # 0: this thread


def _given_way() -> int:
    return os.getpriority(os.PRIO_PROCESS, 0) + _NICE


def _weigh_session(pid: int, weight: int) -> bool:
    """Return whether the weight was set. It fails without autogroup, and twice within 0.1 s."""
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(str(weight), "ascii")
        return True
    return False
