"""Lines on a terminal that say how far a long verb is; no output anywhere else.

`Progress` draws a line. `watched` draws a line while a verb waits for the cluster, and `counted`
while a verb writes rows to a file.
"""

import asyncio
import os
import stat
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, Final, NamedTuple, TextIO, TypeVar

from ..protocol.errors import LognodeError

_WIDTH: Final = 30
_EVERY_S: Final = 0.1
_LOOK_EVERY_S: Final = 1.0
_COLUMNS: Final = 80
"""The width of a terminal that does not tell its width."""

T = TypeVar("T")


class Step(NamedTuple):
    """How far something is. `part`: 0 to 1; None: unknown. `told` is in words."""

    part: float | None
    told: str


class Progress:
    """One line on stderr that is redrawn at most ten times a second."""

    def __init__(self, what: str, out: TextIO | None = None) -> None:
        self._what = what
        self._out = out or sys.stderr
        self.shown = self._out.isatty()
        self._started = time.monotonic()
        self._drawn_at = 0.0
        self._length = 0
        self._left: tuple[float | None, int] | None = None
        """What `update` got and did not draw."""

    def update(self, part: float | None, count: int) -> None:
        """Show that `part` of the work is done, 0 to 1 or None, with `count` things so far."""
        now = time.monotonic()
        self._left = (part, count)
        if self.shown and now - self._drawn_at >= _EVERY_S:
            self._drawn_at, self._left = now, None
            self._draw(part, self._rate(count, now))

    def end(self, part: float | None, count: int) -> None:
        """Draw a last time and end the line."""
        self._left = (part, count)
        self.leave()

    def tell(self, step: Step) -> None:
        """Show a step, and the seconds since the start."""
        if self.shown:
            seconds = time.monotonic() - self._started
            self._draw(step.part, f"{seconds:,.0f} s  {' '.join(step.told.split())}")

    def leave(self) -> None:
        """Draw what is left to draw, and end the line."""
        if self.shown and self._left is not None:
            self._draw(self._left[0], self._rate(self._left[1], time.monotonic()))
            self._left = None
        if self.shown and self._length:
            self._length = 0
            self._out.write("\n")
            self._out.flush()

    def _rate(self, count: int, now: float) -> str:
        return f"{count:,}  {count / max(now - self._started, 1e-6):,.0f}/s"

    def _draw(self, part: float | None, told: str) -> None:
        bar = ""
        if part is not None:
            part = min(1.0, max(0.0, part))
            full = round(part * _WIDTH)
            bar = f"[{'#' * full}{'-' * (_WIDTH - full)}] {part:4.0%}  "
        # A line that is wider than the terminal would go on in the next line, and stay there.
        line = f"{self._what} {bar}{told} "[: self._columns() - 1]
        self._out.write("\r" + line.ljust(self._length))
        self._length = len(line)
        self._out.flush()

    def _columns(self) -> int:
        try:
            return os.get_terminal_size(self._out.fileno()).columns or _COLUMNS
        except (OSError, ValueError):
            return _COLUMNS


async def watched(
    what: str, work: Coroutine[Any, Any, T], look: Callable[[], Awaitable[Step]]
) -> T:
    """Return the result of the work. While it lasts longer than a second, a line on a terminal
    shows what `look` finds, each second. Raises the errors of the work."""
    progress = Progress(what)
    if not progress.shown:
        return await work
    task = asyncio.ensure_future(work)
    try:
        while not (await asyncio.wait({task}, timeout=_LOOK_EVERY_S))[0]:
            try:
                async with asyncio.timeout(_LOOK_EVERY_S):
                    step = await look()
            except (LognodeError, TimeoutError):
                step = Step(None, "no answer")
            if not task.done():
                progress.tell(step)
        return task.result()
    finally:
        progress.leave()
        if task.cancel():
            await asyncio.wait({task})


def counted(what: str, rows: AsyncIterator[T]) -> AsyncIterator[T]:
    """Return the rows. If they go from standard output to a file, a line on the terminal counts
    them; a pipe may lead to a program that draws on the same terminal."""
    progress = Progress(what)
    return _counted(progress, rows) if progress.shown and _is_file(sys.stdout) else rows


async def _counted(progress: Progress, rows: AsyncIterator[T]) -> AsyncIterator[T]:
    count = 0
    try:
        async for row in rows:
            yield row
            count += 1
            progress.update(None, count)
    finally:
        progress.end(None, count)


def _is_file(out: TextIO) -> bool:
    try:
        return stat.S_ISREG(os.fstat(out.fileno()).st_mode)
    except (OSError, ValueError):
        return False
