# Generated from client/cursor.py by scripts/unasync; edit that.

"""Blocking twins of those in `client/cursor.py`."""

from collections.abc import Mapping
from types import TracebackType
from typing import Self

from ..cursor import AsyncKeptCursor
from ..loop_thread import LoopThread
from ..protocol.types import Cursor, CursorStart, FollowBatch
from ..span_positions import Position


class KeptCursor:
    """A position that the ranges keep for one reader at a time; made by `Log.cursor`.

    The first use opens the cursor, and so does entering the context: this reader is the holder from
    then on. The commits of an older holder raise Fenced. A position is the next seq wanted, for
    each span of keys and for single keys, and never goes back by a commit. It follows its keys
    through splits, merges and moves. Reading the keys of a cursor is the only permission that a
    cursor needs.

    Every method takes `timeout`, seconds, the log's by default. All raise LogNotFound, Unavailable,
    Timeout, Unauthorized, and Unsupported below feature level 4.
    """

    def __init__(self, loop: LoopThread, twin: AsyncKeptCursor) -> None:
        self._loop = loop
        self._twin = twin

    def __repr__(self) -> str:
        return repr(self._twin).replace("AsyncKeptCursor", "KeptCursor")

    @property
    def name(self) -> str:
        """The name of the cursor."""
        return self._twin.name

    @property
    def holder(self) -> int:
        """The number of this reader, or 0 before it has opened the cursor."""
        return self._twin.holder

    def __enter__(self) -> Self:
        self._loop.call(self._twin.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._loop.call(self._twin.__aexit__(kind, error, traceback))

    def open(self, *, timeout: float | None = None) -> None:
        """Become the holder, unless this reader has opened the cursor before.

        Keys for which the cursor does not exist begin at the `start` of `Log.cursor`. Raises
        Fenced when another reader opens the cursor at the same time and wins, and LimitExceeded
        when a range has too many cursors.
        """
        self._loop.call(self._twin.open(timeout=timeout))

    def position(self, *, timeout: float | None = None) -> Cursor:
        """Return the positions that the ranges keep, for `start` of `Log.follow`.

        A cursor of keys has a position per key, another cursor one per span. Raises NotFound for a
        cursor that does not exist for some of its keys.
        """
        return self._loop.call(self._twin.position(timeout=timeout))

    def rows(
        self, *, timeout: float | None = None
    ) -> tuple[list[Position], list[tuple[bytes, int]]]:
        """Return the positions as the ranges keep them: spans (start, end, next seq), and keys
        with a higher position of their own (key, next seq), each in the order of keys. Raises
        NotFound as `position` does."""
        return self._loop.call(self._twin.rows(timeout=timeout))

    def commit(
        self,
        position: FollowBatch | Cursor | Mapping[bytes, int] | Mapping[str, int],
        *,
        timeout: float | None = None,
    ) -> None:
        """Keep a position: everything below it is done.

        `position`: a batch of a follow, a cursor of such a batch, or {key: next seq}. When the call
        returns, a majority has it on disk. A position below the kept one changes nothing. A call
        goes only to the ranges whose positions have changed since the last call; after an error
        some ranges may have kept theirs. Raises Fenced when another reader has opened the cursor,
        NotFound when it was deleted, and LimitExceeded.
        """
        self._loop.call(self._twin.commit(position, timeout=timeout))

    def set(self, start: CursorStart, *, timeout: float | None = None) -> None:
        """Set the position of all keys, forwards or back; the present holder is fenced.

        `start`: a seq, "earliest", "latest" or Timestamp(ms). A cursor that does not exist begins
        to exist. This reader does not become the holder.
        """
        self._loop.call(self._twin.set(start, timeout=timeout))

    def delete(self, *, timeout: float | None = None) -> None:
        """Forget the cursor. A commit of its holder then raises NotFound. A failed call may be made
        again."""
        self._loop.call(self._twin.delete(timeout=timeout))
