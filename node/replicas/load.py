"""How much a replica is used: counters, and what they grew by in the last minute.

Nothing is done per record: who appends or reads adds to a counter once per entry of the log or
per request, and a coarse timer remembers now and then where the counters were.
"""

from collections import deque
from typing import Final, NamedTuple

SAMPLE_S: Final = 10.0
"""How often `sample` wants to be called."""
WINDOW_S: Final = 60.0
"""Rates are over at least this long, once there is so much, and one sample's time more at most."""
_SAMPLES: Final = int(WINDOW_S / SAMPLE_S) + 1
_WINDOW_MIN_S: Final = 1.0
"""Of a shorter time nothing is said."""


class Rates(NamedTuple):
    """Per second."""

    records: float
    bytes: float
    reads: float


class LoadMeter:
    """The counters of one replica since it began or took the lead, which was `now`.

    Times are those of one monotonic clock, in seconds, the caller's.
    """

    __slots__ = ("_bytes", "_pushes", "_reads", "_records", "_samples")

    def __init__(self, now: float) -> None:
        self.begin(now)

    def begin(self, now: float) -> None:
        """Count from 0 again: what a member counted before it led tells nothing of its lead."""
        self._records = self._bytes = self._reads = self._pushes = 0
        self._samples: deque[tuple[float, int, int, int]] = deque(maxlen=_SAMPLES)
        self.sample(now)

    def appended(self, records: int, size: int) -> None:
        """An entry of the log with so many records and bytes was acknowledged."""
        self._records += records
        self._bytes += size

    def read(self) -> None:
        """A read was answered."""
        self._reads += 1

    def pushed(self) -> None:
        """A page was pushed to who follows."""
        self._reads += 1
        self._pushes += 1

    @property
    def used(self) -> int:
        """Records appended and reads answered: what the replica was asked for."""
        return self._records + self._reads - self._pushes

    def sample(self, now: float) -> None:
        """Remember where the counters are."""
        self._samples.append((now, self._records, self._bytes, self._reads))

    def rates(self, now: float) -> Rates | None:
        """Over the last minute, or as much of it as there is; None: too little to tell."""
        since, records, size, reads = self._samples[0]
        seconds = now - since
        if seconds < _WINDOW_MIN_S:
            return None
        return Rates(
            (self._records - records) / seconds,
            (self._bytes - size) / seconds,
            (self._reads - reads) / seconds,
        )
