"""Reads of a range: segments oldest first, then the memtable being built, then the live one.

Their seqs do not overlap and rise in that order, so a key's history is the concatenation. Every
read is bounded by entries and bytes, and sees what is applied when it is called (promise S5).
"""

import heapq
from collections.abc import Iterator
from itertools import groupby

from ..client.types import Entry
from .memtable import Memtable
from .page import Page
from .segment_writer import SegmentInfo
from .segments import SegmentStore


class Reads:
    """What a replica can be asked. The manifest is sorted by seq."""

    def __init__(self, store: SegmentStore, manifest: list[SegmentInfo], *, first_seq: int) -> None:
        self.store = store
        self.manifest = manifest
        self.frozen: list[Memtable] = []
        self.memtable = Memtable(first_seq, store.columns)

    def scan(
        self,
        key: bytes,
        start: int = 1,
        end: int | None = None,
        *,
        limit: int,
        bytes_max: int,
        reverse: bool = False,
    ) -> Page:
        """A page of the key's entries with seq in [start, end).

        `next` is the start of the following page; when reading in reverse, its end.
        """
        page = Page()
        entries = self._reversed(key, start, end) if reverse else self._forwards(key, start, end)
        for entry in entries:
            if len(page) >= limit or page.size >= bytes_max:
                page.more = True
                break
            page.add(entry)
        if page.seqs:
            page.next = page.seqs[-1] + (0 if reverse else 1)
        else:
            page.next = start
        return page

    def latest(self, key: bytes) -> Entry | None:
        """The key's last entry."""
        for entry in self._reversed(key, 1, None):
            return entry
        return None

    def last_seq(self, key: bytes) -> int:
        """The key's last seq, 0 when it has none."""
        for memtable in self._memtables_newest_first():
            seq = memtable.last_seq(key)
            if seq:
                return seq
        for info in reversed(self.manifest):
            if info.min_key <= key <= info.max_key:
                seq = self.store.segment(info.content_id).last_seq(key)
                if seq:
                    return seq
        return 0

    def count(self, key: bytes, start: int = 1, end: int | None = None) -> int:
        """How many entries of the key lie in [start, end)."""
        total = sum(
            self.store.segment(info.content_id).count(key, start, end)
            for info in self._segments(key, start, end)
        )
        return total + sum(
            len(memtable.seqs(key, start, end)) for memtable in (*self.frozen, self.memtable)
        )

    def keys(
        self, prefix: bytes = b"", start_after: bytes | None = None, *, limit: int
    ) -> list[bytes]:
        """Keys with the prefix and above `start_after`, in order, at most `limit`."""
        sources: list[Iterator[bytes]] = [
            self.store.segment(info.content_id).keys_after(prefix, start_after)
            for info in self.manifest
            if info.max_key >= prefix
        ]
        sources += [m.keys_after(prefix, start_after) for m in (*self.frozen, self.memtable)]
        found: list[bytes] = []
        for key, _ in groupby(heapq.merge(*sources)):
            if len(found) == limit:
                break
            found.append(key)
        return found

    def read_span(
        self,
        start_key: bytes,
        end_key: bytes | None,
        from_seq: int,
        *,
        limit: int,
        bytes_max: int,
    ) -> Page:
        """A page of the entries with keys in [start_key, end_key), in the order of seq.

        `next` is where to go on. A page may be short or empty with `more` set: the caller comes
        back after it has let others run, since blocks have to be decoded first.
        """
        page = Page(next=from_seq)
        for info in self.manifest:
            if info.end_seq <= from_seq:
                continue
            segment = self.store.segment(info.content_id)
            begin = max(from_seq, info.first_seq)
            seqs = range(begin, min(info.end_seq, begin + limit))
            for seq in seqs[: segment.warm(seqs)]:
                if page.size >= bytes_max:
                    break
                _add_within(page, segment.entry_at_seq(seq), start_key, end_key)
                page.next = seq + 1
            page.more = True
            return page
        for memtable in (*self.frozen, self.memtable):
            seq = max(from_seq, memtable.first_seq)
            while seq < memtable.end_seq:
                if len(page) >= limit or page.size >= bytes_max:
                    page.more = True
                    return page
                key = memtable.key_at(seq)
                if key >= start_key and (end_key is None or key < end_key):
                    page.add(memtable.entry(seq))
                seq += 1
                page.next = seq
        return page

    def seq_at_timestamp(self, ms: int, key: bytes | None = None) -> int:
        """The first seq whose timestamp is not below; the end when there is none.

        Timestamps never decrease within a range, so the answer holds for every key.
        """
        for info in self.manifest:
            if info.max_timestamp_ms >= ms:
                return self._first_in_segment(info, ms)
        for memtable in (*self.frozen, self.memtable):
            seq = memtable.first_seq_from(ms)
            if seq is not None:
                return seq
        return self.memtable.end_seq

    def tail(self, key: bytes, n: int) -> int:
        """The seq of the key's n-th entry from its end; its first when it has fewer."""
        seq = self.last_seq(key) + 1
        for at, entry in enumerate(self._reversed(key, 1, None), 1):
            if at > n:
                break
            seq = entry.seq
        return seq

    def _first_in_segment(self, info: SegmentInfo, ms: int) -> int:
        segment = self.store.segment(info.content_id)
        low, high = info.first_seq, info.end_seq - 1
        while low < high:
            middle = (low + high) // 2
            if segment.entry_at_seq(middle).timestamp_ms >= ms:
                high = middle
            else:
                low = middle + 1
        return low

    def _segments(self, key: bytes, start: int, end: int | None) -> list[SegmentInfo]:
        return [
            info
            for info in self.manifest
            if info.min_key <= key <= info.max_key
            and info.end_seq > start
            and (end is None or info.first_seq < end)
        ]

    def _memtables_newest_first(self) -> tuple[Memtable, ...]:
        return (self.memtable, *reversed(self.frozen))

    def _forwards(self, key: bytes, start: int, end: int | None) -> Iterator[Entry]:
        for info in self._segments(key, start, end):
            yield from self.store.segment(info.content_id).entries(key, start, end)
        for memtable in (*self.frozen, self.memtable):
            for seq in memtable.seqs(key, start, end):
                yield memtable.entry(seq)

    def _reversed(self, key: bytes, start: int, end: int | None) -> Iterator[Entry]:
        for memtable in self._memtables_newest_first():
            for seq in memtable.seqs_reversed(key, start, end):
                yield memtable.entry(seq)
        for info in reversed(self._segments(key, start, end)):
            yield from self.store.segment(info.content_id).entries_reversed(key, start, end)


def _add_within(page: Page, entry: Entry, start: bytes, end: bytes | None) -> None:
    if entry.key >= start and (end is None or entry.key < end):
        page.add(entry)
