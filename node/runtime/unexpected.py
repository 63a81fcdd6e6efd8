"""Bugs: errors that no part of a node expects. A bug ends the node.

Otherwise a loop, a timer or a task without a waiting caller would be gone with no more than a line
in the log, and the node would continue without it.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path

from ...client.protocol.errors import LognodeError
from ...client.protocol.invariants import DiskFailure

OnBroken = Callable[[BaseException], None]
"""Ends the node."""


def is_bug(error: BaseException) -> bool:
    """Whether the error is neither an error of lognode nor of the operating system."""
    return not isinstance(error, LognodeError | OSError)


def guarded(call: Callable[[], None], on_broken: OnBroken) -> Callable[[], None]:
    """Wrap a call for a timer or the end of a turn: any exception ends the node."""

    def guard() -> None:
        try:
            call()
        except Exception as error:
            on_broken(error)

    return guard


def ended(task: "asyncio.Task[None]", on_broken: OnBroken) -> BaseException | None:
    """End the node after a bug in a finished task; return an expected error, or None."""
    error = None if task.cancelled() else task.exception()
    if error is not None and is_bug(error):
        on_broken(error)
        return None
    return error


def advice(error: BaseException, data: Path) -> str:
    """Return what to do after an error that ends a node at once; `data`: its directory."""
    if not isinstance(error, DiskFailure):
        return "this is a bug: report the log of the node"
    return (
        "the node tries nothing again, since after a failed write or fsync the content of "
        f"the disk is unknown. Free space in {data} or replace the disk, then start the "
        "node again: the disks of a majority have all acknowledged records"
    )
