"""Abandoned requests, whose work is ended in small numbers in each turn of the event loop.

The client of such a request has cancelled it or has left, so nobody waits for the answer. Ending
the work of a request takes 0.1 ms or more, and a client may leave with thousands of requests under
way. So a listener ends `SLICE_MIN` to `SLICE_MAX` of them in a turn. The number follows from the
CPU time of the last turn: it grows by a few each time, and halves once the time was above `slice_s`
(additive increase, multiplicative decrease: Chiu and Jain, 1989).

Until its work has ended, an abandoned request counts as a request under way of its principal. So a
client that reconnects gets no more work done than a client that stays.
"""

import asyncio
import time
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable
from typing import Final, Protocol

from ..protocol import limits

SLICE_MIN: Final = 8
SLICE_MAX: Final = 64
slice_s: Final = 0.001
_MORE: Final = 4


class Work(Protocol):
    """The work of a request."""

    def end_work(self) -> None:
        """Begin to end the work. `Abandoned.ended` is called when the work has ended, at once or
        in a later turn of the loop."""


class Abandoned:
    """The abandoned works of one listener. All calls run on the loop's thread.

    `clock` returns the CPU time of the thread in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.thread_time) -> None:
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._left: OrderedDict[Work, None] = OrderedDict()
        """Works whose end has not begun, the oldest first."""
        self._counts: Counter[str] = Counter()
        """Works that have not ended, per principal."""
        self._waiting: defaultdict[str, dict[Callable[[], None], None]] = defaultdict(dict)
        """Callbacks per principal, to call when it has fewer such works."""
        self._task: asyncio.Task[None] | None = None
        self._began = 0.0
        self.slice = SLICE_MIN
        """The number of works to end in the next turn."""

    @property
    def idle(self) -> bool:
        """Whether all works have ended."""
        return not self._counts

    def count(self, principal: str) -> int:
        """Works of the principal that have not ended."""
        return self._counts.get(principal, 0)

    def add(self, principal: str, work: Work) -> None:
        """Add a work that nobody wants any more, and end it in a later turn."""
        self._counts[principal] += 1
        self._left[work] = None
        if self._task is None:
            self._task = self._loop.create_task(self._end_all())

    def ended(self, principal: str, work: Work) -> None:
        """Remove a work that has ended, by itself or after `end_work`."""
        self._left.pop(work, None)
        left = self._counts[principal] = self._counts[principal] - 1
        if not left:
            del self._counts[principal]
        if left in (0, limits.requests_in_flight_max // 2):
            for go_on in self._waiting.pop(principal, ()):
                self._loop.call_soon(go_on)

    def wait(self, principal: str, go_on: Callable[[], None]) -> None:
        """Call `go_on` in a turn of the loop when fewer works of the principal are left: half of
        the requests that a connection may have under way, or none. Waiting twice has the effect
        of once."""
        if principal in self._counts:
            self._waiting[principal][go_on] = None
        else:
            self._loop.call_soon(go_on)

    def leave(self, principal: str, go_on: Callable[[], None]) -> None:
        """Remove `go_on` from the callbacks."""
        waiting = self._waiting.get(principal)
        if waiting is not None:
            waiting.pop(go_on, None)
            if not waiting:
                del self._waiting[principal]

    def end_now(self) -> None:
        """End all works in this turn of the loop: the node is stopping."""
        self._end(len(self._left))

    async def _end_all(self) -> None:
        try:
            while self._left:
                # The cancelled works run in the next turn, after `_begin`, and this task runs after
                # all of them.
                began = self._clock()
                self._loop.call_soon(self._begin)
                self._end(self.slice)
                spent_s = self._clock() - began
                await asyncio.sleep(0)
                spent_s += self._clock() - self._began
                if spent_s > slice_s:
                    self.slice = max(SLICE_MIN, self.slice // 2)
                else:
                    self.slice = min(SLICE_MAX, self.slice + _MORE)
        finally:
            self._task = None

    def _begin(self) -> None:
        self._began = self._clock()

    def _end(self, count: int) -> None:
        for _ in range(min(count, len(self._left))):
            work, _ = self._left.popitem(last=False)
            try:
                work.end_work()
            except Exception as error:  # a bug; the other works still end
                self._loop.call_exception_handler(
                    {"message": "ending a request failed", "exception": error}
                )
