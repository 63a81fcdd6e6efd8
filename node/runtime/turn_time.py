"""An event loop that measures the processor time of its turns.

The elapsed time of a turn depends on other processes. The processor time of the loop's thread is
the node's own work. It delays every connection, so no message of a client or of another node may
cause much of it.

Asking for the processor time is a system call, and a busy node makes thousands of turns a second.
So short turns are not measured one by one: their elapsed time, which is not less than their
processor time, stands for them. A measured turn may be told up to `_SHORT_S` too long, by the short
turns before it.
"""

import asyncio
import selectors
import time
from typing import Final

LONG_S: Final = 0.05
"""Processor time from which a turn counts as long."""
_SHORT_S: Final = 0.001
"""The elapsed time of turns that are not measured, all together between two measures."""


class TurnTime:
    """The processor time of a loop's turns. One thread runs the loop and reads these numbers."""

    __slots__ = ("_began_s", "_elapsed_s", "_longest_s", "_mark_s", "events", "long_turns")

    def __init__(self) -> None:
        self.long_turns = 0
        """Turns of over `LONG_S` since the start."""
        self.events = 0
        """The number of sockets and descriptors that had something when the turn began."""
        self._longest_s = 0.0
        self._mark_s = time.thread_time()
        """The processor time at the last measure."""
        self._elapsed_s = 0.0
        """The elapsed time of the turns since then."""
        self._began_s = time.perf_counter()

    def began(self, events: int) -> None:
        """Note the beginning of a turn, and the number of its events."""
        self.events = events
        self._began_s = time.perf_counter()

    def ended(self) -> None:
        """Note the end of a turn. Waiting, until the next begins, takes no processor time."""
        took_s = time.perf_counter() - self._began_s
        self._elapsed_s += took_s
        if self._elapsed_s > _SHORT_S:
            now_s = time.thread_time()
            took_s = min(took_s, now_s - self._mark_s)
            self._mark_s, self._elapsed_s = now_s, 0.0
        if took_s > self._longest_s:
            self._longest_s = took_s
        if took_s > LONG_S:
            self.long_turns += 1

    def take_longest_s(self) -> float:
        """Return the processor time of the longest turn since the last call, in seconds."""
        found, self._longest_s = self._longest_s, 0.0
        return found


class TimedLoop(asyncio.SelectorEventLoop):
    """asyncio's loop, which calls its selector once a turn."""

    def __init__(self) -> None:
        self.turn_time = TurnTime()
        super().__init__(_Selector(self.turn_time))


class _Selector(selectors.DefaultSelector):
    def __init__(self, turns: TurnTime) -> None:
        super().__init__()
        self._turn_began, self._turn_ended = turns.began, turns.ended

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._turn_ended()
        found = super().select(timeout)
        self._turn_began(len(found))
        return found


def of_running_loop() -> TurnTime:
    """Return the measure of the running loop. A loop of another class measures nothing: 0."""
    loop = asyncio.get_running_loop()
    return loop.turn_time if isinstance(loop, TimedLoop) else TurnTime()
