"""How long a slow disk takes: each call a drawn time, and now and then it hangs for seconds.

It is slow beside what it does: nobody is told an error, and what was done is done.
"""

import json
import random
import threading
import time
from dataclasses import asdict, dataclass
from typing import Final, Self

HANG_S: Final = (2.0, 8.0)
"""How long it hangs: nothing that is slowed ends before, whenever it began."""


@dataclass(frozen=True, slots=True)
class Slowness:
    """An fsync takes so long beside its own time; `writes`: and so does a write."""

    least_s: float
    most_s: float
    writes: bool = False
    hangs: float = 0.0
    """The probability that it begins to hang, with each call."""
    seed: int = 0

    def to_line(self) -> str:
        """As `from_line` reads it; without an end of line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_line(cls, line: str) -> Self:
        """Raises ValueError or TypeError for what `to_line` did not write."""
        return cls(**json.loads(line))


class Times:
    """When calls end that are slowed. Pure: it is told the time."""

    def __init__(self, slowness: Slowness) -> None:
        self._slowness = slowness
        self._rng = random.Random(slowness.seed)
        self._hangs_until = float("-inf")

    def end(self, now: float, *, write: bool = False) -> float:
        """Of an fsync, or a write, that begins now."""
        slowness, rng = self._slowness, self._rng
        if write and not slowness.writes:
            return now
        if now >= self._hangs_until and rng.random() < slowness.hangs:
            self._hangs_until = now + rng.uniform(*HANG_S)
        return max(now + rng.uniform(slowness.least_s, slowness.most_s), self._hangs_until)


class Pace:
    """How slow a disk is at this moment; not at all at first. Any thread may call."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._times: Times | None = None

    def set(self, slowness: Slowness | None) -> None:
        """From now on, and calls that wait already go on at once. None: as fast as it is."""
        with self._changed:
            self._times = None if slowness is None else Times(slowness)
            self._changed.notify_all()

    def sync(self) -> None:
        """Return when an fsync may end that has just been done."""
        self._wait(write=False)

    def write(self) -> None:
        """Return when a write may be done."""
        self._wait(write=True)

    def _wait(self, *, write: bool) -> None:
        with self._changed:
            times, now = self._times, time.monotonic()
            if times is not None:
                left = times.end(now, write=write) - now
                self._changed.wait_for(lambda: self._times is not times, timeout=left)
