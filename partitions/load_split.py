"""Whether a range is to be split for its load: is it busy, for how long, and with which keys?

A range whose load is below its bound costs one subtraction per look. A higher load is sampled, in
consecutive windows of ten seconds. Only a lasting load is reported: most looks of a window have to
find the range above its bound.
"""

import random
from collections import deque
from statistics import median
from typing import Final

from .load_sample import Halves, HotKey, Sample
from .model import LastOperation

LOOK_S: Final = 1.0
"""The interval, in seconds, at which `look` should be called."""
WINDOW_S: Final = 10.0
SAMPLED_PER_S: Final = 100
"""About this many requests per second are sampled."""


class LoadSplit:
    """The load of one range, on its leader.

    The caller passes times of one monotonic clock, in seconds.
    """

    __slots__ = ("_at", "_began", "_looks", "_rng", "_used", "found", "rate", "sample")

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._at: float | None = None
        self._used = 0
        self._looks: deque[float] = deque(maxlen=int(WINDOW_S / LOOK_S))
        self._began = 0.0
        self.sample: Sample | None = None
        """The sample that appends and reads add to; None: no sample is taken."""
        self.found: Halves | HotKey | None = None
        """The result of the last whole window."""
        self.rate = 0
        """The load per second of the last whole window: the median of its looks."""

    def look(self, now: float, used: int, bound: int) -> None:
        """Look at the load.

        `used` counts the requests to the range since its leader leads. `bound` is the load per
        second above which the range is to be split.
        """
        since, before, self._at, self._used = self._at, self._used, now, used
        if since is None or used < before or now <= since:  # a new lead begins
            self._forget()
            return
        rate = (used - before) / (now - since)
        every = max(1, round(rate / SAMPLED_PER_S))
        if self.sample is None:
            if rate > bound:
                self._begin(now, every)
            return
        self._looks.append(rate)
        # Each second counts the same, even if the load grows in between.
        self.sample.every = every
        if now - self._began < WINDOW_S:
            return
        self.rate = round(median(self._looks))
        if self.rate <= bound:
            self._forget()
        elif self.sample.is_enough:
            self.found = self.sample.found()
            self._begin(now, every)

    def _begin(self, now: float, every: int) -> None:
        self.sample = Sample(self._rng, every)
        self._looks.clear()
        self._began = now

    def _forget(self) -> None:
        self.sample = self.found = None


def rests(last: LastOperation | None, now_ms: int, rest_ms: int) -> bool:
    """Whether the last split or merge, done or aborted, is too recent for a split by load.

    `last` is the last operation that ended on the range, by a clock that roughly agrees with the
    clock of `now_ms`.
    """
    if last is None or last.kind not in ("split", "merge"):
        return False
    return abs(now_ms - last.ended_at_ms) < rest_ms
