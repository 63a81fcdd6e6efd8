"""What counts as a bug: an error that no part of a node expects. It ends the node.

A loop, a timer or a task that nobody waits for would otherwise be gone with no more than a line in
the log, and the node would go on without it.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path

from ...client.protocol.errors import LognodeError
from ...client.protocol.invariants import DiskFailure

OnBroken = Callable[[BaseException], None]
"""Ends the node."""


def is_bug(error: BaseException) -> bool:
    """Whether it is neither one of lognode's own errors nor one of the operating system's."""
    return not isinstance(error, LognodeError | OSError)


def guarded(call: Callable[[], None], on_broken: OnBroken) -> Callable[[], None]:
    """The call for a timer or the end of a turn: whatever it raises ends the node."""

    def guard() -> None:
        try:
            call()
        except Exception as error:
            on_broken(error)

    return guard


def ended(task: "asyncio.Task[None]", on_broken: OnBroken) -> BaseException | None:
    """Of a task that nobody waits for: a bug ends the node, an expected error is returned."""
    error = None if task.cancelled() else task.exception()
    if error is not None and is_bug(error):
        on_broken(error)
        return None
    return error


def advice(error: BaseException, data: Path) -> str:
    """Return what to do after an error that ends a node at once; `data`: its directory."""
    if not isinstance(error, DiskFailure):
        return "this is a bug: report it with the log"
    return (
        "nothing is tried again, since after a failed write or fsync nobody knows what is on the "
        f"disk; free space in {data} or replace the disk, then start the node again: whatever it "
        "acknowledged is on the disks of a majority"
    )
