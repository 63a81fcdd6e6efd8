"""Virtual time: a clock that creeps, and a heap of events that drives it.

Nothing waits. The scheduler takes the earliest event, moves the clock to its time and runs it.
Every reading of the clock moves it on by a little, like the work between two readings: code that
loops until some time has passed must leave its loop (the engine spins so when a peer cannot be sent
to, hole 26).
"""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final

START_S: Final = 100.0
"""Not 0: the engine uses the deadline 0 to mean "long ago"."""
CREEP_S: Final = 2e-6
"""Virtual seconds between two readings of the clock."""


class VirtualClock:
    """Monotonic seconds. Calling the clock reads it."""

    __slots__ = ("now",)

    def __init__(self) -> None:
        self.now = START_S

    def __call__(self) -> float:
        self.now += CREEP_S
        return self.now

    @property
    def elapsed(self) -> float:
        """Seconds since the start of the run, without moving the clock."""
        return self.now - START_S


class Timer:
    """A scheduled event, which `cancel` removes."""

    __slots__ = ("action",)

    def __init__(self, action: Callable[[], None]) -> None:
        self.action: Callable[[], None] | None = action

    def cancel(self) -> None:
        self.action = None


class Scheduler:
    """Events in order of time, then of scheduling."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.ran = 0
        self._heap: list[tuple[float, int, Timer]] = []
        self._order = 0

    def at(self, time_s: float, action: Callable[[], None]) -> Timer:
        """Run the action at this time, or now if that has passed."""
        self._order = order = self._order + 1
        timer = Timer(action)
        heappush(self._heap, (time_s, order, timer))
        return timer

    def after(self, delay_s: float, action: Callable[[], None]) -> Timer:
        """Run the action after this many seconds."""
        return self.at(self.clock.now + delay_s, action)

    def step(self, until_s: float) -> bool:
        """Run the next event due by `until_s`; False, with the clock there, if none is."""
        heap, clock = self._heap, self.clock
        while heap:
            time_s, _, timer = heap[0]
            action = timer.action
            if action is not None:
                if time_s > until_s:
                    break
                heappop(heap)
                if time_s > clock.now:
                    clock.now = time_s
                timer.action = None
                action()
                self.ran += 1
                return True
            heappop(heap)
        clock.now = max(clock.now, until_s)
        return False
