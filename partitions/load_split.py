"""Whether a range is to be split for its load: is it busy, for how long, and what was it asked for?

A range that is less busy than its bound costs nothing but a subtraction a look. What is more is
sampled, a window of ten seconds after the other, and only what lasts is told of: most looks of a
window have to find the range over its bound.
"""

import random
from collections import deque
from statistics import median
from typing import Final

from .load_sample import Halves, HotKey, Sample
from .model import LastOperation

LOOK_S: Final = 1.0
"""How often `look` wants to be called."""
WINDOW_S: Final = 10.0
SAMPLED_PER_S: Final = 100
"""About so much of what a range is asked for is looked at."""


class LoadSplit:
    """Of one range, on its leader. Times are those of one monotonic clock, in seconds, the
    caller's."""

    __slots__ = ("_at", "_began", "_looks", "_rng", "_used", "found", "rate", "sample")

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._at: float | None = None
        self._used = 0
        self._looks: deque[float] = deque(maxlen=int(WINDOW_S / LOOK_S))
        self._began = 0.0
        self.sample: Sample | None = None
        """Whoever appends or reads shows it what; None: nobody is interested."""
        self.found: Halves | HotKey | None = None
        """What the last whole window said."""
        self.rate = 0
        """And of how much a second: the median of its looks."""

    def look(self, now: float, used: int, bound: int) -> None:
        """`used`: what the range was asked for since its leader leads. `bound`: with more a second
        it is to be split."""
        since, before, self._at, self._used = self._at, self._used, now, used
        if since is None or used < before or now <= since:  # a lead begins
            self._forget()
            return
        rate = (used - before) / (now - since)
        every = max(1, round(rate / SAMPLED_PER_S))
        if self.sample is None:
            if rate > bound:
                self._begin(now, every)
            return
        self._looks.append(rate)
        # Each second counts the same, also where the load grows in between.
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
    """Whether a range has had its span, or was to get another, for too short a time to be split for
    its load. `last` is what ended on it last, by a clock that agrees about with that of `now_ms`.
    """
    if last is None or last.kind not in ("split", "merge"):
        return False
    return abs(now_ms - last.ended_at_ms) < rest_ms
