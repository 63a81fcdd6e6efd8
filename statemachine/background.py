"""Processes that work for the node behind its back, and give way to everybody else.

A segment that is built a second later costs nobody anything, while an event loop that has to wait
for a processor costs every call it serves: with three nodes and a client on two cores, the p90 of
reads halved beside builders that gave way (docs/performance-notes.md#polls-what-was-in-the-way).

The child has a session of its own, since Ctrl-C is the node's to handle. Where the kernel weighs
sessions against each other before it looks at how nice a process is (autogroup; sched(7)), that
session gives way too. How nice a thread is can only be raised, and the weight of a session can be
lowered again: so a process that gives way sometimes has a thread for that (`CalmThread`).
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
"""A tenth of another's share where both want a processor: enough to come to an end."""
Found = TypeVar("Found")


def spawn(module: str, *arguments: str, gives_way: bool) -> "subprocess.Popen[bytes]":
    """Run a module of ours in a child with pipes. Raises OSError."""
    process = subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    if gives_way:
        os.setpriority(os.PRIO_PROCESS, process.pid, _given_way())
        _weigh_session(process.pid, _NICE)
    return process


class CalmThread:
    """For what gives way, in a child that does other things at the priority of the node."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, initializer=_give_way)
        self._weighs: int | None = None

    def run(self, work: Callable[[], Found], *, gives_way: bool) -> Found:
        """What `work` returns or raises, done on the thread where it gives way, else here."""
        weight = _NICE if gives_way else 0
        if weight != self._weighs and _weigh_session(os.getpid(), weight):
            self._weighs = weight
        return self._thread.submit(work).result() if gives_way else work()


def _give_way() -> None:
    os.setpriority(os.PRIO_PROCESS, 0, _given_way())  # 0: this thread


def _given_way() -> int:
    return os.getpriority(os.PRIO_PROCESS, 0) + _NICE


def _weigh_session(pid: int, weight: int) -> bool:
    """Whether it was done: not where sessions are not weighed, nor twice within 0.1 s."""
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(str(weight), "ascii")
        return True
    return False
