"""How long calls to a slow disk take: a random time each, and sometimes the disk hangs for seconds.

The delay changes no result: calls succeed as before, and their effects stay.
"""

import json
import random
import threading
import time
from dataclasses import asdict, dataclass
from typing import Final, Self

HANG_S: Final = (2.0, 8.0)
"""How long a hang lasts: no slowed call ends before the end of the hang, whenever it began."""


@dataclass(frozen=True, slots=True)
class Slowness:
    """The additional time of an fsync, and with `writes` also of a write."""

    least_s: float
    most_s: float
    writes: bool = False
    hangs: float = 0.0
    """The probability, for each call, that a hang begins."""
    seed: int = 0

    def to_line(self) -> str:
        """Return the form that `from_line` reads, without an end of line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_line(cls, line: str) -> Self:
        """Undo `to_line`. Raises ValueError or TypeError for any other text."""
        return cls(**json.loads(line))


class Times:
    """When slowed calls end. Pure: the caller passes the time."""

    def __init__(self, slowness: Slowness) -> None:
        self._slowness = slowness
        self._rng = random.Random(slowness.seed)
        self._hangs_until = float("-inf")

    def end(self, now: float, *, write: bool = False) -> float:
        """Return the end of an fsync, or a write, that begins now."""
        slowness, rng = self._slowness, self._rng
        if write and not slowness.writes:
            return now
        if now >= self._hangs_until and rng.random() < slowness.hangs:
            self._hangs_until = now + rng.uniform(*HANG_S)
        return max(now + rng.uniform(slowness.least_s, slowness.most_s), self._hangs_until)


class Pace:
    """How slow a disk is at this moment; at first it is not slow. Any thread may call."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._times: Times | None = None

    def set(self, slowness: Slowness | None) -> None:
        """Set the slowness from now on; waiting calls go on at once. None: full speed."""
        with self._changed:
            self._times = None if slowness is None else Times(slowness)
            self._changed.notify_all()

    def sync(self) -> None:
        """Return when an fsync that has just been done may end."""
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
