"""When the frames of a connection are handed over: the event loop's time, bounded and shared.

Every connection hands over what has arrived until the time that its turns give it, and stands in
line for the rest. The connections that a node has dialled, and those of the nodes of its cluster,
have `OWN_TURNS`: `connection_s` in each turn of the loop. Its clients share `FairTurns`: all of
them together get `clients_s` in a turn of the loop. A connection that finds the time used up stands
in line. In the next turns the connections of the line are served one after the other, `slice_s`
each, and come to its end if they have more. So a flood of cheap messages holds neither the loop, on
which the node's own messages travel, nor another client.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

connection_s: Final = 0.002
clients_s: Final = 0.004
slice_s: Final = 0.0005

Step = Callable[[float], None]
"""Serves a connection until that time of the clock. It stands in line again for the rest."""


class Turns(Protocol):
    """Gives connections their turns."""

    @property
    def clock(self) -> Callable[[], float]:
        """The clock that tells the times."""

    def begin(self, step: Step) -> float | None:
        """Until when a connection may go on that has something now. None: it stands in line, and
        `step` is called when it is its turn."""

    def later(self, step: Step) -> None:
        """Stand in line: `step` is called when it is this connection's turn, once."""


class _OwnTurns:
    """Each connection has its own time, whatever the others do."""

    clock = staticmethod(time.perf_counter)

    def begin(self, step: Step) -> float | None:
        return self.clock() + connection_s

    def later(self, step: Step) -> None:
        loop = asyncio.get_running_loop()
        loop.call_soon(lambda: step(self.clock() + connection_s))


OWN_TURNS: Final = _OwnTurns()


class FairTurns:
    """The turns of many connections of one event loop. `clock` gives seconds."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.clock = clock
        self._until = 0.0
        self._line: deque[Step] = deque()
        self._watches = False
        """Whether `_next` is called in the next turn."""

    def begin(self, step: Step) -> float | None:
        """See `Turns`."""
        now = self.clock()
        if not self._watches:
            self._begin(now)
        if self._line or now >= self._until:
            self._line.append(step)
            return None
        return min(now + connection_s, self._until)

    def later(self, step: Step) -> None:
        """See `Turns`."""
        self._line.append(step)
        if not self._watches:
            self._begin(self.clock())

    def _begin(self, now: float) -> None:
        self._until = now + clients_s
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
