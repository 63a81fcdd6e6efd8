"""Memtables that are no longer written, or hardly, are flushed early.

A start applies the entries of memtables again, and a split, merge or move must flush them before
the seal. Little of that memory is in use unless the load is high: only then is a memtable nearly
full. InfluxDB calls such a cache cold (`cache-snapshot-write-cold-duration`).

Under a steady load nothing is flushed early: a memtable would exceed its maximum age before it grew
by so small a part. The only cost is one file, of 4 MiB or more, each time that writing stops.
"""

from ...client.protocol import limits

_PART = 32
"""Growth by less than this part is ignored. 32 times `memtable_cold_s` is more than
`memtable_age_s`."""


class Cooling:
    """The growth of a range's live memtable, as observed by `is_cold`."""

    def __init__(self) -> None:
        self._size = 0
        self._since = 0.0

    def is_cold(self, size: int, now: float) -> bool:
        """Whether the memtable is worth a file and has hardly grown for `memtable_cold_s`.

        `size` is the memtable's present size in bytes; `now` is from a clock that does not go back.
        """
        if not self._size <= size <= self._size + size // _PART:
            self._size, self._since = size, now
        return size >= limits.memtable_cold_bytes and now - self._since >= limits.memtable_cold_s
