"""Sets up a run: the loop, the machines, a directory, the log, and what replaces the machine."""

import contextlib
import gc
import logging
import random
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from .additions import NONE, Additions
from .clock import replaced_machine
from .loop import SimLoop
from .nodes import Machines
from .process import OWNER
from .trace import Trace

_SHM: Final = Path("/dev/shm")
"""A file system in memory, where there is one: syncs take no time there."""


@dataclass(frozen=True, slots=True)
class Stage:
    """The parts that each run needs."""

    loop: SimLoop
    machines: Machines
    root: Path


@contextlib.contextmanager
def stage(seed: int, nodes: int, trace: Trace, additions: Additions = NONE) -> Iterator[Stage]:
    """Set up a run of a seed with so many machines; nothing of it is left afterwards."""
    loop = SimLoop(random.Random(f"{seed}/loop"), trace)
    folder = str(_SHM) if _SHM.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="lognode-whole-", dir=folder) as name, _quiet(trace):
        root = Path(name)
        machines = Machines(nodes, root, loop, random.Random(f"{seed}/disks"), additions)
        try:
            with replaced_machine(loop):
                yield Stage(loop, machines, root)
        finally:
            _bury(machines, loop)


@contextlib.contextmanager
def _quiet(trace: Trace) -> Iterator[None]:
    """Send the nodes' log to the trace, without its hash; collect no garbage meanwhile.

    A collection would close coroutines and files at times that depend on the machine. The nodes
    collect by the number of earlier collections of this process (`node/runtime/garbage.py`): the
    collection here sets that number to 0.
    """
    log = logging.getLogger("lognode")
    handler = _ToTrace(trace)
    before = log.level, log.propagate, gc.isenabled()
    log.setLevel(logging.INFO if trace.sink is not None else logging.WARNING)
    log.propagate = False
    log.addHandler(handler)
    gc.disable()
    gc.collect()
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(before[0])
        log.propagate = before[1]
        if before[2]:
            gc.enable()


class _ToTrace(logging.Handler):
    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self._trace = trace

    def emit(self, record: logging.LogRecord) -> None:
        process = OWNER.get(None)
        fields: Mapping[str, Any] = getattr(record, "fields", {})
        told = f"{record.levelname} {record.getMessage()} {dict(fields)}"
        if record.exc_info is not None and record.exc_info[1] is not None:
            told += f" {record.exc_info[1]!r}"
        self._trace.note("?" if process is None else process.name, told)


def _bury(machines: Machines, loop: SimLoop) -> None:
    """End everything that is left, and free its memory.

    The interpreter closes the coroutines of ended processes now. Their last words mean nothing:
    they wait for a loop that does not run.
    """
    machines.end()
    loop.close()
    unraisable, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # coroutines that never began
            for _ in range(2):  # last words leave callbacks
                loop.bury()
                gc.collect()
    finally:
        sys.unraisablehook = unraisable
