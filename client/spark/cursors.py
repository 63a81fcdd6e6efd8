"""Kept cursors as the start of a query, and as the record of the progress of a stream.

Spark computes the start of the first micro-batch again when this micro-batch runs again. A cursor
does not move until Spark has stored the end of the first micro-batch and begun a later one, so the
start is the same each time, also when the cursor began at the latest entries.
"""

import contextlib
from collections.abc import Sequence

from ..protocol.errors import NotFound, Timeout, Unavailable
from ..protocol.types import Cursor, CursorStart, Timestamp
from ..span_positions import Position, overlay
from .options import ReadOptions
from .session import Session
from .wanted import wanted

_FIRST_SEQ = 1


class StreamCursor:
    """The cursor of one run of a streaming query, on the driver.

    The run becomes the holder at its first use of the cursor. Then the commits of an earlier run,
    and of another query with this cursor, raise Fenced.
    """

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._holder = 0

    def begin(self, session: Session) -> list[Position]:
        """Return the positions of the cursor, for the wanted keys. Keys for which the cursor does
        not exist begin at the start of the options, and keep this position from now on.

        Raises NotFound when retention may have removed entries behind a position, and Fenced when
        another reader opens the cursor at the same time.
        """
        options = self._options
        start: CursorStart = "earliest"
        if options.starting_ms is not None:
            start = Timestamp(options.starting_ms)
        elif isinstance(options.starting, int):
            start = options.starting
        elif options.starting == "latest":
            start = "latest"
        cursor = session.cursor(options, start, self._holder)
        session.call(cursor.open())
        self._holder = cursor.holder
        return _rows(session.call(cursor.position()))

    def commit(self, session: Session, end: Sequence[Position]) -> None:
        """Keep that everything below these positions is done. A later commit makes up for a commit
        that got no answer. Raises Fenced when another reader has opened the cursor."""
        # A cursor that did not exist before must not begin beyond what is done.
        cursor = session.cursor(self._options, "earliest", self._holder)
        rows = overlay(end, ((*span, None) for span in wanted(session, self._options).spans))
        spans = tuple((low, high, next_) for low, high, next_, _ in rows)
        position = Cursor(spans=spans)
        if self._options.keys is not None:
            position = Cursor(keys={key: next_ for key, _, next_ in spans})
        with contextlib.suppress(Timeout, Unavailable):
            session.call(cursor.open())
            self._holder = cursor.holder
            session.call(cursor.commit(position))


def kept(session: Session, options: ReadOptions) -> list[Position]:
    """Return the positions of the cursor that the options name, which stays as it is. Raises
    NotFound."""
    cursor = session.cursor(options, "earliest", 0)
    try:
        return _rows(session.call(cursor.position()))
    except NotFound as error:
        if error.code != NotFound.code:
            raise
        raise NotFound(
            f"option cursor: cursor {options.cursor!r} of log {options.log!r} does not exist for "
            f"all keys of the query. Create the cursor with `lognode cursor set {options.log} "
            f"{options.cursor} --to earliest`, or read with a stream, which creates the cursor"
        ) from None


def from_earliest(rows: Sequence[Position], earliest: Sequence[Position]) -> list[Position]:
    """Return the positions; a cursor at the first seq begins with the remaining entries, and
    counts none as lost."""
    return [
        (low, high, next_ if next_ > _FIRST_SEQ else first)
        for low, high, next_, first in overlay(rows, earliest)
    ]


def everywhere(rows: Sequence[Position]) -> list[Position]:
    """Return the positions with the gaps between them, which begin at the first seq."""
    found: list[Position] = []
    at: bytes | None = b""
    for low, high, next_ in rows:
        if at is not None and at < low:
            found.append((at, low, _FIRST_SEQ))
        found.append((low, high, next_))
        at = high
    if at is not None:
        found.append((at, None, _FIRST_SEQ))
    return found


def _rows(position: Cursor) -> list[Position]:
    if position.keys is not None:
        return [(key, key + b"\0", next_) for key, next_ in sorted(position.keys.items())]
    return list(position.spans)
