"""The event loop's time for the frames of clients: bounded in each turn, and shared fairly.

In one turn of the loop all clients together get `turn_s`. A connection whose frames find the time
used up stands in a line. In the next turns the connections of the line are served one after the
other, `slice_s` each, and come to its end if they have more. So a flood of cheap messages holds
neither the loop, on which the node's own messages travel, nor another client.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Final

turn_s: Final = 0.004
slice_s: Final = 0.0005

Step = Callable[[float], None]
"""Serves a connection until that time of the clock. It stands in line again for the rest."""


class FairTurns:
    """Of one event loop. `clock` gives seconds."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.clock = clock
        self._until = 0.0
        self._line: deque[Step] = deque()
        self._watches = False
        """Whether `_next` is called in the next turn."""

    @property
    def is_over(self) -> bool:
        """Whether who comes now has to stand in line."""
        if self._line:
            return True
        now = self.clock()
        if not self._watches:
            self._begin(now)
        return now >= self._until

    def later(self, step: Step) -> None:
        """Stand in line: `step` is called in this connection's turn, once."""
        self._line.append(step)
        if not self._watches:
            self._begin(self.clock())

    def _begin(self, now: float) -> None:
        self._until = now + turn_s
        self._watches = True
        asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        """A turn begins. Those who came before are served first."""
        self._watches = False
        if not self._line:
            return
        now = self.clock()
        self._begin(now)
        for _ in range(len(self._line)):
            if now >= self._until:
                break
            self._line.popleft()(now + slice_s)
            now = self.clock()
