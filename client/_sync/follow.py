# Generated from client/follow.py by scripts/unasync; edit that.

"""Blocking twins of those in `client/follow.py`."""

from collections.abc import Iterator
from types import TracebackType
from typing import Self

from ..follow import AsyncFeed
from ..loop_thread import LoopThread
from ..protocol.types import Cursor, Entry, FollowBatch


class Feed:
    """An open follow: `for batch in feed`. Made by `Log.follow`; a context manager.

    Batches come in the order of seq per key. A slow caller slows the servers down; memory stays
    bounded.
    """

    def __init__(self, loop: LoopThread, twin: AsyncFeed) -> None:
        self._loop = loop
        self._twin = twin

    def open(self) -> None:
        """Find the starting positions and begin. Entering the context calls `open`.

        Raises LogNotFound, Unavailable, Timeout, and Unauthorized for keys that the client may not
        use.
        """
        self._loop.call(self._twin.open())

    def close(self) -> None:
        """End the follow; the cursor of the last batch says where to continue. The iteration
        ends for every task or thread that waits for a batch."""
        self._loop.call(self._twin.close())

    @property
    def cursor(self) -> Cursor:
        """The position after every batch taken so far."""
        return self._loop.run(lambda: self._twin.cursor)

    def commit(self, batch: FollowBatch | None = None, *, timeout: float | None = None) -> None:
        """Keep the position behind the batch in the cursor of the follow; None: behind all batches
        taken so far.

        When the call returns, a majority has the position on disk. Raises the errors of
        `KeptCursor.commit`, and InvalidArgument for a follow without `cursor`.
        """
        self._loop.call(self._twin.commit(batch, timeout=timeout))

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

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> FollowBatch:
        return self._loop.following(self._twin)

    @property
    def caught_up(self) -> bool:
        """Whether the caller has taken everything that was committed when the last pushes left.
        False while a range is followed nowhere, and while its member is cut off from the other
        members."""
        return self._loop.run(lambda: self._twin.caught_up)

    def entries(self) -> Iterator[Entry]:
        """Yield the entries of all batches."""
        for batch in self:
            yield from batch
