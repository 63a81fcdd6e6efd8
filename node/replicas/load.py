"""How much a replica is used: counters, and by how much they grew in the last minute.

Nothing is done per record. Appends add to a counter once per log entry, reads once per request. A
coarse timer remembers the counters from time to time.
"""

from collections import deque
from typing import Final, NamedTuple

SAMPLE_S: Final = 10.0
"""How often `sample` must be called."""
WINDOW_S: Final = 60.0
"""Rates cover at least this time once that much has passed, and at most one sample's time more."""
_SAMPLES: Final = int(WINDOW_S / SAMPLE_S) + 1
_WINDOW_MIN_S: Final = 1.0
"""No rate is given for a shorter time."""


class Rates(NamedTuple):
    """Rates per second."""

    records: float
    bytes: float
    reads: float


class LoadMeter:
    """The counters of one replica since `now`, when it began or took the lead.

    Times are in seconds of one monotonic clock of the caller.
    """

    __slots__ = ("_bytes", "_pushes", "_reads", "_records", "_samples")

    def __init__(self, now: float) -> None:
        self.begin(now)

    def begin(self, now: float) -> None:
        """Count from 0 again: earlier counts say nothing about the time as leader."""
        self._records = self._bytes = self._reads = self._pushes = 0
        self._samples: deque[tuple[float, int, int, int]] = deque(maxlen=_SAMPLES)
        self.sample(now)

    def appended(self, records: int, size: int) -> None:
        """Count an acknowledged log entry with so many records and bytes."""
        self._records += records
        self._bytes += size

    def read(self) -> None:
        """Count a read that was answered."""
        self._reads += 1

    def pushed(self) -> None:
        """Count a page that was pushed to a follow."""
        self._reads += 1
        self._pushes += 1

    @property
    def used(self) -> int:
        """Return the records appended plus the reads answered on request."""
        return self._records + self._reads - self._pushes

    def sample(self, now: float) -> None:
        """Remember the present counters."""
        self._samples.append((now, self._records, self._bytes, self._reads))

    def rates(self, now: float) -> Rates | None:
        """Return the rates over the last minute or since the start; None: too short a time."""
        since, records, size, reads = self._samples[0]
        seconds = now - since
        if seconds < _WINDOW_MIN_S:
            return None
        return Rates(
            (self._records - records) / seconds,
            (self._bytes - size) / seconds,
            (self._reads - reads) / seconds,
        )
