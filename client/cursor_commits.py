"""The cursor of a follow: where the follow begins, and the commits of what its caller has done."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final

from .cursor import AsyncKeptCursor
from .follow_span import FollowSpan
from .protocol.errors import InvalidArgument, LognodeError, Timeout, Unavailable
from .protocol.types import Cursor

commit_every_ms_min: Final = 10
"""A commit is a write of each range whose position has moved."""
_LAST_COMMIT_S: Final = 1.0
"""Time limit for the commit when a follow is closed."""


class CursorCommits:
    """Commits the positions of one follow. `every_ms`: the time between commits of what the caller
    has done; None: only the caller commits. `fail` gets the error that ends the commits."""

    def __init__(
        self,
        cursor: AsyncKeptCursor,
        every_ms: int | None,
        fail: Callable[[LognodeError], Awaitable[None]],
    ) -> None:
        if every_ms is not None and every_ms < commit_every_ms_min:
            raise InvalidArgument(
                f"commit_every_ms is {every_ms!r}; give at least {commit_every_ms_min}, or None",
                what="commit_every_ms",
            )
        self.cursor = cursor
        self._every_ms = every_ms
        self._fail = fail
        self._done: Cursor | None = None
        """The position behind the batches that the caller has done; None: committed."""
        self._task: asyncio.Task[None] | None = None
        self._ended = False

    async def begin(self, timeout: float) -> list[FollowSpan] | dict[bytes, int]:
        """Open the cursor; return the position of each key, or the spans to follow."""
        await self.cursor.open(timeout=timeout)
        if self.cursor.keys is not None:
            position = await self.cursor.position(timeout=timeout)
            return dict(position.keys or {})
        spans, keys = await self.cursor.rows(timeout=timeout)
        found = []
        for start, end, next_ in spans:
            span = FollowSpan(start, end, next_, reached=next_)
            span.ahead = [(key, key + b"\0", ahead) for key, ahead in keys
                          if start <= key and (end is None or key < end)]  # fmt: skip
            found.append(span)
        return found

    def done(self, position: Cursor) -> None:
        """Note that the caller has done everything below the position: it asks for more."""
        if self._every_ms is None or self._ended:
            return
        self._done = position
        if self._task is None:
            self._task = asyncio.create_task(self._run(self._every_ms / 1000))

    async def end(self) -> None:
        """Commit what the caller has done, as far as that takes a second, and commit no more."""
        self._ended = True
        task, self._task = self._task, None
        if task is None:
            return
        task.cancel()
        await asyncio.wait([task])
        with contextlib.suppress(LognodeError):
            await self._commit(_LAST_COMMIT_S)

    async def _run(self, every_s: float) -> None:
        while True:
            await asyncio.sleep(every_s)
            try:
                await self._commit(None)
            except (Unavailable, Timeout):
                continue  # the position of the next time is committed, or this one again
            except LognodeError as error:
                await self._fail(error)
                return

    async def _commit(self, timeout: float | None) -> None:
        position = self._done
        if position is not None:
            await self.cursor.commit(position, timeout=timeout)
            if self._done is position:
                self._done = None
