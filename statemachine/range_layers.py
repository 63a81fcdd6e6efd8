"""The layers of a replica's entries: segments, then frozen memtables, then the live one.

Segments and frozen memtables are in order, oldest first. The layers that have a key do not overlap
in seq and rise in that order, so the key's history is their concatenation. This holds for all keys
together only in a range that never was merged (`chains`). The layers hold all entries, removed or
not; `reads` decides which are visible.

A segment may be shared with neighbours since a split, and hold keys outside the range's span or
outside its row's clip. Such keys are not the row's, and no read finds them there. A memtable never
has such keys.
"""

from collections.abc import Iterator, Sequence
from itertools import repeat

from ..client.protocol.types import Entry
from .memtable import Memtable
from .segment_format import SegmentInfo
from .segment_reader import Segment
from .segments import SegmentStore
from .spans import Span, common, has

Home = Segment | Memtable


class Held:
    """The homes of the entries of a range of keys [start, end).

    The rows of the manifest that have a key are sorted by seq.
    """

    def __init__(
        self,
        store: SegmentStore,
        manifest: list[SegmentInfo],
        *,
        start: bytes,
        end: bytes | None,
        first_seq: int,
    ) -> None:
        self.start = start
        self.end = end
        self.store = store
        self.manifest = manifest
        self.frozen: list[Memtable] = []
        self.memtable = Memtable(first_seq, store.columns)

    def within(self, start: bytes, end: bytes | None) -> Span:
        """Return the range's part of a span; an empty span if there is none."""
        return common((start, end), (self.start, self.end)) or (self.start, self.start)

    def memtables(self) -> tuple[Memtable, ...]:
        """Return the memtables, oldest first."""
        return (*self.frozen, self.memtable)

    def homes_of(self, key: bytes, start: int, end: int | None) -> Iterator[Home]:
        """Yield the homes that may have entries of the key in [start, end), oldest first."""
        for info in self._segments_of(key):
            if info.end_seq > start and (end is None or info.first_seq < end):
                yield self.store.segment(info.content_id)
        yield from self.memtables()

    def homes_back(self, key: bytes, start: int, end: int | None) -> Iterator[Home]:
        """Yield the same homes, newest first."""
        yield from reversed(self.memtables())
        for info in reversed(self._segments_of(key)):
            if info.end_seq > start and (end is None or info.first_seq < end):
                yield self.store.segment(info.content_id)

    def backwards(self, key: bytes, start: int, end: int | None) -> Iterator[Entry]:
        """Yield the key's entries with seq in [start, end), from the last to the first."""
        for home in self.homes_back(key, start, end):
            if isinstance(home, Memtable):
                yield from map(home.entry, home.seqs_reversed(key, start, end))
            else:
                yield from home.entries_reversed(key, start, end)

    def forwards(self, key: bytes, start: int, end: int | None) -> Iterator[Entry]:
        """Yield the key's entries with seq in [start, end), in their order."""
        for home in self.homes_of(key, start, end):
            yield from entries_in(home, key, start, end)

    def last_held(self, key: bytes) -> int:
        """Return the last seq of the key that is here, or 0 without one."""
        for memtable in reversed(self.memtables()):
            seq = memtable.last_seq(key)
            if seq:
                return seq
        for info in reversed(self._segments_of(key)):
            seq = self.store.segment(info.content_id).last_seq(key)
            if seq:
                return seq
        return 0

    def unread(self, positions: Sequence[tuple[bytes, int]]) -> list[bytes]:
        """Return the keys that may have an entry at their position, a seq, or above.

        No file is read: a key stays if its position is below all memtables. Takes 0.6 to 1 us a key
        where a million keys are in one memtable.
        """
        memtables = self.memtables()
        first_seq = memtables[0].first_seq
        keys = [key for key, _ in positions]
        last_seqs = map(max, *(memtable.last_seqs(keys) for memtable in memtables), repeat(0))
        return [
            key
            for (key, position), last_seq in zip(positions, last_seqs, strict=False)
            if position < first_seq or position <= last_seq
        ]

    def _segments_of(self, key: bytes) -> list[SegmentInfo]:
        """Return the rows that may hold the key, oldest first."""
        if not has((self.start, self.end), key):
            return []
        return [
            info for info in self.manifest
            if info.min_key <= key <= info.max_key and has(info.clip, key)
        ]  # fmt: skip


def entries_in(home: Home, key: bytes, start: int, end: int | None) -> Iterator[Entry]:
    """Return the key's entries of one home with seq in [start, end), in their order."""
    if isinstance(home, Memtable):
        return map(home.entry, home.seqs(key, start, end))
    return home.entries(key, start, end)
