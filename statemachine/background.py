"""Processes that work for the node behind its back, and give way to everybody else.

A segment that is built a second later costs nobody anything, while an event loop that has to wait
for a processor costs every call it serves: with three nodes and a client on two cores, the p90 of
reads halved beside builders that gave way (docs/performance.md, "Polls beside 20 MB/s").

The child has a session of its own, since Ctrl-C is the node's to handle. Where the kernel weighs
sessions against each other before it looks at how nice a process is (autogroup; sched(7)), that
session gives way too.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

_NICE: Final = 10
"""A tenth of another's share where both want a processor: enough to come to an end."""


def spawn(module: str, *arguments: str, gives_way: bool) -> "subprocess.Popen[bytes]":
    """Run a module of ours in a child with pipes. Raises OSError."""
    process = subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    if gives_way:
        own = os.getpriority(os.PRIO_PROCESS, 0)
        os.setpriority(os.PRIO_PROCESS, process.pid, own + _NICE)
        _weigh_session(process.pid)
    return process


def _weigh_session(pid: int) -> None:
    """Nothing where sessions are not weighed."""
    try:
        Path(f"/proc/{pid}/autogroup").write_text(str(_NICE), "ascii")
    except OSError:
        return
