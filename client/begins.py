"""Where a read of one key begins and ends, as the caller says it."""

from typing import Any

from .protocol.errors import InvalidArgument
from .protocol.types import End, Start, Tail, Timestamp


def begin_of(start: Start) -> int | Any:
    """Return the seq where a read begins, or the question that a range answers with the seq.

    Raises InvalidArgument for a start that no read has.
    """
    if start == "earliest":
        return 1
    if isinstance(start, int):
        return max(1, start)
    if isinstance(start, Tail):
        return ["tail", start.n]
    if isinstance(start, Timestamp):
        return ["ts", start.ms]
    if start in ("latest", "snapshot"):
        return start
    raise InvalidArgument(
        f"start is {start!r}; give a seq, 'earliest', 'latest', 'snapshot', Tail or Timestamp",
        what="start",
    )


def checked_end(end: End) -> int | None:
    """Return the seq before which a read ends; None: no end. Raises InvalidArgument for any other
    type; a Timestamp must have been resolved before."""
    if end is not None and not isinstance(end, int):
        raise InvalidArgument(f"end is {end!r}; give a seq or Timestamp", what="end")
    return end
