"""The driver of a query: the process whose life the leases of its snapshots follow. No pyspark.

Spark plans a query in a Python worker, which ends soon after. The driver is the JVM that has
started the worker: the nearest ancestor that runs Java. Outside of Spark, the driver is this
process.
"""

import os
import subprocess
from pathlib import Path
from typing import Final, NamedTuple

_PROC: Final = Path("/proc")
_JAVA: Final = "java"
_OF_WORKERS: Final = "SPARK_JOB_ARTIFACT_UUID"
"""Spark sets this variable for the Python workers of a driver."""
_ANCESTORS_MAX: Final = 64


class Process(NamedTuple):
    """A process. Another process may get the same number later, but not the same start."""

    pid: int
    parent: int
    name: str
    started: str


def driver() -> Process:
    """Return the driver of this process. Raises OSError when the driver is not visible."""
    own = found = _process(os.getpid())
    for _ in range(_ANCESTORS_MAX):
        if found is None:
            break
        if found.name == _JAVA:
            return found
        found = _process(found.parent)
    if own is None:
        raise OSError("neither /proc nor ps lists the processes of this machine")
    if _OF_WORKERS in os.environ:
        raise OSError("no ancestor of this worker of Spark runs Java")
    return own


def lives(pid: int, started: str) -> bool:
    """Return whether the process still runs."""
    found = _process(pid)
    return found is not None and found.started == started


def _process(pid: int) -> Process | None:
    """Return the process, or None if the process has ended."""
    if pid <= 0:
        return None
    return _from_proc(pid) if (_PROC / "self" / "stat").exists() else from_ps(pid)


def _from_proc(pid: int) -> Process | None:
    try:
        text = (_PROC / str(pid) / "stat").read_text("utf-8", "replace")
    except OSError:
        return None
    name, _, rest = text.partition("(")[2].rpartition(")")
    state, parent, *more = rest.split()
    return None if state in "ZX" else Process(pid, int(parent), name, more[17])


def from_ps(pid: int) -> Process | None:
    """Return the process as `ps` lists it, on systems without /proc."""
    asked = ["ps", "-o", "stat=", "-o", "ppid=", "-o", "lstart=", "-o", "comm=", "-p", str(pid)]
    made = subprocess.run(
        asked, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"}
    )
    words = made.stdout.split()
    if len(words) < 8 or words[0][0] in "ZX":
        return None
    parent, start, name = words[1], words[2:7], " ".join(words[7:])
    return Process(pid, int(parent), Path(name).name, "-".join(start).replace(":", ""))
