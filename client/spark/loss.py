"""Loss of unread entries by retention: reported on the driver, before a task starts."""

from collections.abc import Sequence

from ..protocol.errors import NotFound
from ..span_positions import Position, overlay
from .offsets import lost
from .planning import Task, hull
from .session import Session


def check_loss(session: Session, tasks: Sequence[Task], log: str, why: str, allow: str) -> None:
    """Raise NotFound when retention may have removed entries that the tasks read.

    `why` describes the requested start, with `{first}` for its seq, and `allow` the option that
    accepts the loss.
    """
    spans = sorted(piece.span[:2] for task in tasks for piece in task.pieces)
    if not spans:
        return
    found = lost(tasks, session.positions("earliest", hull(spans)))
    if found is not None:
        raise lost_entries(log, *found, why, allow)


def lost_entries(log: str, start: bytes, first: int, seq: int, why: str, allow: str) -> NotFound:
    """Return the error of a read from the seq `first` on, of keys from `start` on, where the
    entries below `seq` are gone."""
    return NotFound(
        f"retention has removed unread entries of log {log!r}: for keys from {start!r} on, "
        f"the entries below seq {seq} are gone, and {why.format(first=first)}. Give {allow} "
        "to continue without them"
    )


def maybe_from(begins: Sequence[Position], earliest: Sequence[Position]) -> list[Position]:
    """Return the first seqs that may hold entries from a time on. `begins` has the first such
    seqs among the remaining entries. Where no remaining entry is older than the time, removed
    entries may also be from the time on, so the seq is 1."""
    return [
        (start, end, seq if seq > first else 1)
        for start, end, seq, first in overlay(begins, earliest)
    ]
