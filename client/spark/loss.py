"""What retention has removed before it was read: said on the driver, before a task starts."""

from collections.abc import Sequence

from ..protocol.errors import NotFound
from .offsets import lost
from .planning import Position, Task, hull, overlay
from .session import Session


def check_loss(session: Session, tasks: Sequence[Task], log: str, why: str, allow: str) -> None:
    """Raises NotFound where retention may have removed some of what the tasks read.

    `why` says of `{first}`, the seq from which on they read there, that it was to be read, and
    `allow` what to give to go on without it.
    """
    spans = sorted(piece.span[:2] for task in tasks for piece in task.pieces)
    if not spans:
        return
    found = lost(tasks, session.positions("earliest", hull(spans)))
    if found is not None:
        start, first, seq = found
        raise NotFound(
            f"retention has removed entries of log {log!r} that were not read: of the keys from "
            f"{start!r} on those below seq {seq}, and {why.format(first=first)}; give {allow} to "
            "go on without them"
        )


def maybe_from(begins: Sequence[Position], earliest: Sequence[Position]) -> list[Position]:
    """From which seqs on entries may be from a time or later, by where that time begins in what is
    left: where nothing left is older, whatever retention has removed may have been from it on."""
    return [
        (start, end, seq if seq > first else 1)
        for start, end, seq, first in overlay(begins, earliest)
    ]
