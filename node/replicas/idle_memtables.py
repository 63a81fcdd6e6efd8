"""Memtables that nobody writes to any more, or hardly, go to files ahead of their time.

What is in memory is what a start applies again, and what a split, a merge or a move has to bring to
files before it can seal. Most of the time that is far less than a full memtable: only while much is
written is it ever near. InfluxDB calls such a cache cold (`cache-snapshot-write-cold-duration`).

Under a steady load nothing of this happens: a memtable would have to be older than its age allows
before it grows by so small a part. So all that it costs is one file, of 4 MiB or more, for each
time that writing stops.
"""

from ...client.protocol import limits

_PART = 32
"""Growth by less than this part counts for nothing. 32 times `memtable_cold_s` is more than
`memtable_age_s`."""


class Cooling:
    """How a range's live memtable grows, as looks at it tell."""

    def __init__(self) -> None:
        self._size = 0
        self._since = 0.0

    def is_cold(self, size: int, now: float) -> bool:
        """Whether it is worth a file, of this size in bytes now, and has hardly grown for
        `memtable_cold_s`. `now` is of a clock that does not go back."""
        if not self._size <= size <= self._size + size // _PART:
            self._size, self._since = size, now
        return size >= limits.memtable_cold_bytes and now - self._since >= limits.memtable_cold_s
