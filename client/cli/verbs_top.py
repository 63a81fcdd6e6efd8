"""`lognode top`: the nodes, the ranges and the groups, live on a terminal."""

import asyncio
import curses
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from ..protocol.errors import LognodeError
from . import top_groups
from .parser import Parser, UsageError, age_s
from .top_screen import SORTS, SORTS_OF, VIEWS, scrolled
from .verb import Call, Verb

_KEYS_EVERY_S: Final = 0.1
_HELP: Final = "q: quit, o: overview, n: nodes, r: ranges, g: groups, s: sort, arrows: scroll"
_VIEW_OF: Final = {ord(view[0]): view for view in VIEWS}
_ROWS_OF: Final = {
    curses.KEY_UP: -1, ord("k"): -1, curses.KEY_DOWN: 1, ord("j"): 1, curses.KEY_PPAGE: -10,
    curses.KEY_NPAGE: 10, curses.KEY_HOME: -(10**9), curses.KEY_END: 10**9,
}  # fmt: skip
"""How many rows each key scrolls."""


class _Found(NamedTuple):
    """What a look at the cluster has found. `groups`: None if nobody looked at them."""

    status: dict[str, Any]
    health: dict[str, Any]
    groups: list[dict[str, Any]] | None


@dataclass(slots=True)
class _Screen:
    """What the user wants to see."""

    view: str
    sorts: dict[str, str] = field(default_factory=lambda: {v: s[0] for v, s in SORTS_OF.items()})
    skip: int = 0

    def take(self, key: int) -> bool:
        """Take a key; return whether the key changes the screen."""
        if key in _VIEW_OF:
            self.view, self.skip = _VIEW_OF[key], 0
        elif key == ord("s"):
            sorts = SORTS_OF[self.view]
            now = sorts.index(self.sorts[self.view])
            self.sorts[self.view], self.skip = sorts[(now + 1) % len(sorts)], 0
        elif key in _ROWS_OF:
            self.skip = max(0, self.skip + _ROWS_OF[key])
        else:
            return key == curses.KEY_RESIZE
        return True

    def lines(self, found: _Found, lines: int, columns: int) -> list[str]:
        """Return what to show."""
        now_ms = int(time.time() * 1000)
        shown, self.skip = scrolled(
            found.status, found.health, sort=self.sorts[self.view], clock=_clock(), lines=lines,
            columns=columns, view=self.view, groups=found.groups, skip=self.skip, now_ms=now_ms,
        )  # fmt: skip
        return shown


def _arguments(parser: Parser) -> None:
    parser.add_argument("--every", type=age_s, default=2.0, metavar="AGE",
                        help="time between two looks at the cluster (default 2s)")  # fmt: skip
    parser.add_argument("--view", choices=VIEWS, default=VIEWS[0],
                        help="first screen: the nodes and the busiest ranges, or nodes, "
                             f"ranges or groups alone (default {VIEWS[0]})")  # fmt: skip
    parser.add_argument("--sort", choices=SORTS, default=SORTS[0],
                        help=f"order of the ranges (default {SORTS[0]})")  # fmt: skip
    parser.add_argument("--once", action="store_true",
                        help="print one screen and end; the default where the output is not a "
                             "terminal")  # fmt: skip


async def _top(call: Call) -> None:
    wanted = _Screen(call.options.view)
    wanted.sorts["overview"] = wanted.sorts["ranges"] = call.options.sort
    if not call.printer.tables:
        status, health, groups = await _look(call, wanted.view)
        told = {} if groups is None else {"groups": groups}
        call.printer.document({**status, "health": health, **told})
    elif call.options.once or not (sys.stdin.isatty() and sys.stdout.isatty()):
        for line in wanted.lines(await _look(call, wanted.view), sys.maxsize, _columns()):
            call.printer.scalar(line)
    else:
        await _live(call, wanted)


async def _look(call: Call, view: str) -> _Found:
    """Return what the view needs of the cluster. Raises the errors of `status`."""
    status, groups = await call.client.status(), None
    if view == "groups":
        groups = await top_groups.look(call.client, [log["name"] for log in status["logs"]])
    try:
        return _Found(status, await call.client.health(), groups)
    except LognodeError as error:
        return _Found(status, {"ok": False, "reasons": [error.message]}, groups)


async def _live(call: Call, wanted: _Screen) -> None:
    """Draw the screen until the user quits. An unreachable cluster is said on the last line."""
    found: _Found | None = None
    trouble, next_at = "", 0.0
    looking: asyncio.Task[_Found] | None = None
    with _terminal() as window:
        try:
            while True:
                if looking is None and time.monotonic() >= next_at:
                    looking = asyncio.create_task(_look(call, wanted.view))
                changed = False
                if looking is not None and looking.done():
                    try:
                        found, trouble = looking.result(), ""
                    except LognodeError as error:
                        trouble = error.message
                    unseen = wanted.view == "groups" and (found is None or found.groups is None)
                    wait_s = 0.0 if unseen and not trouble else call.options.every
                    looking, next_at = None, time.monotonic() + wait_s
                    changed = True
                while (key := window.getch()) != curses.ERR:
                    if key == ord("q"):
                        return
                    view = wanted.view
                    changed = wanted.take(key) or changed
                    if wanted.view != view and wanted.view == "groups":
                        next_at = 0.0  # nobody has looked at the groups yet
                if changed:
                    _draw(window, found, wanted, trouble)
                await asyncio.sleep(_KEYS_EVERY_S)
        finally:
            if looking is not None:
                looking.cancel()


def _draw(window: Any, found: _Found | None, wanted: _Screen, trouble: str) -> None:
    lines, columns = window.getmaxyx()
    text = ["waiting for the cluster"]
    if found is not None:
        text = wanted.lines(found, lines - 1, columns - 1)
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


VERBS = (Verb("top", "show nodes, busy ranges and groups, live on a terminal", _top, _arguments),)
