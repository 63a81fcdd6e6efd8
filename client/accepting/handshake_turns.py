"""The event loop's time for handshakes: a bounded part, shared by hosts.

A peer in its handshake has proved nothing yet, and a TLS handshake costs a node a millisecond of
its processor for bytes that cost the sender nothing. So the handshakes of a listener together have
a `Pace`: about a seventh of the loop's time, and more only while the loop is otherwise idle. The
rest is queued. Hosts take turns, so one host with a thousand connections delays another host only
by one step of a handshake. Handshakes in progress go before new ones, three steps to one: otherwise
many at once would all miss their timeout, and a stranger who only begins handshakes would keep
others from ending theirs.
"""

import asyncio
import contextlib
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from pathlib import Path
from typing import Final

from ..fair_turns import Step

handshakes_share: Final = 0.15
arrivals_share: Final = 0.05
"""The share of accepting and closing connections."""
busy_share: Final = 0.3
"""The load up to which handshakes alone may fill the loop."""
burst_s: Final = 0.01
"""The time that an unused pace saves up, and its largest debt."""
turn_s: Final = 0.001
"""The time of handshakes in one turn of the loop."""
_ASK_S: Final = 0.004
"""A pause after which the loop's other work may have ended."""
_BEGUN_IN_ROW: Final = 3
"""A handshake has three steps, of which two come after the first."""
step_s: Final = 0.0005
"""The time after which a connection queues for the rest of its received bytes."""


_FILL_S: Final = 0.001
_SCHEDSTAT: Final = Path("/proc/thread-self/schedstat")


def wanted_s() -> float:
    """Return for how many seconds this thread has run or has been ready to run.

    Returns only the running time when the kernel does not report the time spent waiting for a
    processor.
    """
    waited_ns = 0
    with contextlib.suppress(OSError, ValueError, IndexError):
        waited_ns = int(_SCHEDSTAT.read_bytes().split()[1])
    return time.thread_time() + waited_ns * 1e-9


class Pace:
    """The share of one thread's time that some work may take: a token bucket of seconds.

    The bucket fills by at least `share` of the time. While all other work leaves more than that
    within `busy_share`, the bucket fills by the rest. `clock` returns the time and `wanted` the
    time for which the thread was not idle, both in seconds.
    """

    def __init__(
        self,
        share: float,
        clock: Callable[[], float] = time.perf_counter,
        wanted: Callable[[], float] = wanted_s,
    ) -> None:
        self.clock = clock
        self._share = share
        self._wanted = wanted
        self._level = burst_s
        self._at = clock()
        self._wanted_at = wanted()
        self._own = 0.0
        """The time that this work has taken since `_at`."""

    def spent(self, seconds: float) -> None:
        """Count the time that the work has taken."""
        # Bounded: on a crowded machine the thread may have lost the processor for any time.
        self._level = max(self._level - seconds, -burst_s)
        self._own += seconds

    @property
    def has_time(self) -> bool:
        """Whether the work may continue now."""
        self._fill()
        return self._level > 0

    @property
    def wait_s(self) -> float:
        """Seconds after which to ask again; 0: the work may continue now."""
        return 0.0 if self.has_time else min(_ASK_S, (turn_s / 2 - self._level) / self._share)

    def _fill(self) -> None:
        now = self.clock()
        passed = now - self._at
        if passed < _FILL_S:
            return
        wanted = self._wanted()
        others = max(0.0, wanted - self._wanted_at - self._own)
        gained = max(self._share * passed, busy_share * passed - others)
        self._level = min(self._level + gained, burst_s)
        self._at, self._wanted_at, self._own = now, wanted, 0.0


class _Line:
    """Waiting steps by host. Hosts take turns."""

    def __init__(self) -> None:
        self._hosts: OrderedDict[str, deque[Step]] = OrderedDict()
        """The next host first."""

    def __bool__(self) -> bool:
        return bool(self._hosts)

    def __len__(self) -> int:
        return sum(map(len, self._hosts.values()))

    def append(self, host: str, step: Step) -> None:
        """Queue the step behind the other steps of its host."""
        self._hosts.setdefault(host, deque()).append(step)

    def pop(self) -> Step:
        """Remove and return the first step of the next host."""
        host, steps = self._hosts.popitem(last=False)
        step = steps.popleft()
        if steps:
            self._hosts[host] = steps
        return step


class HandshakeTurns:
    """The turns of the handshakes of one listener."""

    def __init__(self, pace: Pace | None = None) -> None:
        self.pace = pace or Pace(handshakes_share)
        self.clock = self.pace.clock
        self._new = _Line()
        self._begun = _Line()
        """Handshakes that have had a step."""
        self._begun_in_row = 0
        self._until = 0.0
        """The end of handshake time in this turn of the loop; 0: none has run in this turn."""
        self._timer: asyncio.Handle | None = None

    def of(self, host: str) -> "Handshake":
        """Return the turns of one connection from that host, which pays until the end of the
        handshake."""
        return Handshake(self, host)

    @property
    def waiting(self) -> int:
        """The number of queued connections."""
        return len(self._new) + len(self._begun)

    def may_go(self) -> bool:
        """Whether a handshake may continue at once: nobody waits, and there is time."""
        if self._new or self._begun or not self.pace.has_time:
            return False
        now = self.clock()
        if not self._until:
            self._until = now + turn_s
            asyncio.get_running_loop().call_soon(self._end_turn)
        return now < self._until

    def stand(self, host: str, step: Step, *, has_begun: bool) -> None:
        """Queue the step: it is called once, in its turn."""
        (self._begun if has_begun else self._new).append(host, step)
        self._serve_later()

    def _end_turn(self) -> None:
        self._until = 0.0

    def _serve_later(self) -> None:
        if self._timer is None and (self._new or self._begun):
            loop, wait_s = asyncio.get_running_loop(), self.pace.wait_s
            self._timer = (
                loop.call_later(wait_s, self._serve) if wait_s else loop.call_soon(self._serve)
            )

    def _serve(self) -> None:
        """Serve waiting handshakes as long as there is time."""
        self._timer = None
        now = self.clock()
        until = now + turn_s
        try:
            while (self._new or self._begun) and now < until and self.pace.has_time:
                self._next().pop()(now + step_s)
                now = self.clock()
        finally:
            self._serve_later()

    def _next(self) -> _Line:
        """Return the queue of the next step. A peer that sends a little at a time in handshakes
        in progress delays new handshakes by at most three steps."""
        if self._begun and (self._begun_in_row < _BEGUN_IN_ROW or not self._new):
            self._begun_in_row += 1
            return self._begun
        self._begun_in_row = 0
        return self._new


class Handshake:
    """Implements `fair_turns.Turns` for one connection in its handshake."""

    __slots__ = ("_began", "_host", "_turns", "clock")

    def __init__(self, turns: HandshakeTurns, host: str) -> None:
        self.clock = turns.clock
        self._turns = turns
        self._host = host
        self._began = False
        """Whether the handshake has had a step."""

    def begin(self, step: Step) -> float | None:
        """See `Turns`."""
        if self._turns.may_go():
            return self.clock() + step_s
        self.later(step)
        return None

    def later(self, step: Step) -> None:
        """See `Turns`."""
        self._turns.stand(self._host, step, has_begun=self._began)

    def spent(self, seconds: float) -> None:
        """See `Turns`."""
        self._began = True
        self._turns.pace.spent(seconds)
