"""`lognode top`: the nodes and the busiest ranges, live on a terminal."""

import asyncio
import curses
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from ..protocol.errors import LognodeError
from .parser import Parser, UsageError, age_s
from .top_screen import SORTS, screen
from .verb import Call, Verb

_KEYS_EVERY_S: Final = 0.1
_HELP: Final = "q: quit   s: sort by the next of " + ", ".join(SORTS)


def _arguments(parser: Parser) -> None:
    parser.add_argument("--every", type=age_s, default=2.0, metavar="AGE",
                        help="time between two looks at the cluster (default 2s)")  # fmt: skip
    parser.add_argument("--sort", choices=SORTS, default=SORTS[0],
                        help=f"order of the ranges (default {SORTS[0]})")  # fmt: skip
    parser.add_argument("--once", action="store_true",
                        help="print one screen and end; the default where the output is not a "
                             "terminal")  # fmt: skip


async def _top(call: Call) -> None:
    if not call.printer.tables:
        status, health = await _look(call)
        call.printer.document({**status, "health": health})
    elif call.options.once or not (sys.stdin.isatty() and sys.stdout.isatty()):
        status, health = await _look(call)
        for line in screen(
            status, health, sort=call.options.sort, clock=_clock(),
            lines=sys.maxsize, columns=_columns(),
        ):  # fmt: skip
            call.printer.scalar(line)
    else:
        await _live(call)


async def _look(call: Call) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the status of the cluster and its health. Raises the errors of `status`."""
    status = await call.client.status()
    try:
        return status, await call.client.health()
    except LognodeError as error:
        return status, {"ok": False, "reasons": [error.message]}


async def _live(call: Call) -> None:
    """Draw the screen until the user quits. An unreachable cluster is said on the last line."""
    sort, found, trouble, next_at = call.options.sort, None, "", 0.0
    looking: asyncio.Task[tuple[dict[str, Any], dict[str, Any]]] | None = None
    with _terminal() as window:
        try:
            while True:
                if looking is None and time.monotonic() >= next_at:
                    looking = asyncio.create_task(_look(call))
                changed = False
                if looking is not None and looking.done():
                    try:
                        found, trouble = looking.result(), ""
                    except LognodeError as error:
                        trouble = error.message
                    looking, next_at = None, time.monotonic() + call.options.every
                    changed = True
                key = window.getch()
                if key == ord("q"):
                    return
                if key == ord("s"):
                    sort = SORTS[(SORTS.index(sort) + 1) % len(SORTS)]
                if changed or key != curses.ERR:
                    _draw(window, found, sort, trouble)
                await asyncio.sleep(_KEYS_EVERY_S)
        finally:
            if looking is not None:
                looking.cancel()


def _draw(window: Any, found: Any, sort: str, trouble: str) -> None:
    lines, columns = window.getmaxyx()
    text = ["waiting for the cluster"]
    if found is not None:
        text = screen(*found, sort=sort, clock=_clock(), lines=lines - 1, columns=columns - 1)
    last = f"no answer, the screen is old: {trouble}" if trouble else _HELP
    window.erase()
    for at, line in enumerate(text[: lines - 1]):
        window.addnstr(at, 0, line, columns - 1)
    window.addnstr(lines - 1, 0, " ".join(last.split()), columns - 1, curses.A_REVERSE)
    window.refresh()


@contextmanager
def _terminal() -> Iterator[Any]:
    """Take the terminal over, and give the terminal back at the end. Raises UsageError for a
    terminal that is unknown."""
    try:
        window = curses.initscr()
    except curses.error:
        raise UsageError(
            f"the terminal {os.environ.get('TERM', '')!r} (TERM) is unknown here; set TERM, or "
            "give --once"
        ) from None
    try:
        curses.noecho()
        curses.cbreak()
        window.keypad(True)
        window.nodelay(True)
        yield window
    finally:
        window.keypad(False)
        curses.nocbreak()
        curses.echo()
        curses.endwin()


def _clock() -> str:
    return time.strftime("%H:%M:%S")


def _columns() -> int:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize


VERBS = (
    Verb("top", "show the nodes and the busiest ranges, live on a terminal", _top, _arguments),
)
