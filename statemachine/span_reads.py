"""Reads of a span of keys: which keys there are, and entries in the order of seq or of key.

Of a span that goes beyond the range's own, what is beyond is not there, though a segment that is
shared since a split may hold it.

A page may be short or empty with `more` set: the caller comes back after it has let others run,
since blocks have to be decoded, and the beginnings of keys' histories found, first.
"""

import heapq
from collections.abc import Iterable, Iterator
from itertools import groupby, repeat
from operator import itemgetter

from ..client.types import Entry
from .held import Home, entries_in
from .marks import View
from .page import Page
from .reads import Reads
from .segment_writer import SegmentInfo
from .spans import Span, has
from .turns import ENTRIES_A_TURN

_LOOKUPS_A_STEP = 64
"""Keys of which one call finds out where their visible entries begin."""
_KEYS_A_STEP = 512
_SEQS_A_STEP = 384
"""Entries of a segment that are looked for by their seqs."""
_first = itemgetter(0)


class SpanReads(Reads):
    """What a replica can be asked about many keys."""

    def keys(
        self,
        prefix: bytes = b"",
        start_after: bytes | None = None,
        *,
        limit: int,
        as_of: int | None = None,
    ) -> list[bytes]:
        """Keys that have entries, with the prefix and above `start_after`, in order."""
        found: list[bytes] = []
        while len(found) < limit:
            some, start_after = self.keys_page(
                prefix, start_after, limit=limit - len(found), as_of=as_of
            )
            found += some
            if start_after is None:
                break
        return found

    def keys_page(
        self,
        prefix: bytes = b"",
        start_after: bytes | None = None,
        *,
        limit: int,
        as_of: int | None = None,
    ) -> tuple[list[bytes], bytes | None]:
        """Some of the keys, maybe none, and after which key to go on; None: there are no more."""
        view = self.view(prefix, _after(prefix), as_of)
        span = self.within(prefix, _after(prefix))
        least = _least_trim(view, *span)
        sources: list[Iterator[tuple[bytes, bool]]] = []
        if self.start > max(prefix, start_after or b""):
            if self.start.startswith(prefix):
                sources.append(iter([(self.start, False)]))
            start_after = self.start
        for info in self.manifest:
            if _meets(info, *span) and info.end_seq > least:
                keys = self.store.segment(info.content_id).keys_after(prefix, start_after)
                sources.append(zip(keys, repeat(_all_visible(info, view)), strict=False))
        for memtable in self.memtables():
            keys = memtable.keys_after(prefix, start_after)
            sources.append(zip(keys, repeat(not view.hides), strict=False))
        found: list[bytes] = []
        room = _KEYS_A_STEP
        for key, homes in groupby(heapq.merge(*sources), _first):
            if len(found) == limit or room <= 0:
                return found, start_after
            if self.end is not None and key >= self.end:
                break
            start_after = key
            room -= 1
            if any(visible for _, visible in homes):
                found.append(key)
                continue
            room -= _KEYS_A_STEP // _LOOKUPS_A_STEP
            if self._is_visible(key, view):
                found.append(key)
        return found, None

    def read_span(
        self,
        start_key: bytes,
        end_key: bytes | None,
        from_seq: int,
        end_seq: int | None = None,
        *,
        limit: int,
        bytes_max: int,
        as_of: int | None = None,
    ) -> Page:
        """A page of the entries with keys in [start_key, end_key), in the order of seq, below
        `end_seq`.

        `next` is where to go on.
        """
        view = self.view(start_key, end_key, as_of)
        span = self.within(start_key, end_key)
        page = Page(next=from_seq)
        sieve = _Sieve(self, view, span)
        from_seq = max(from_seq, _least_trim(view, *span))
        end = view.ending(end_seq)
        for info in self.manifest:
            if info.end_seq <= from_seq:
                continue
            if end is not None and from_seq >= end:
                return page
            if not _meets(info, *span):
                page.next = from_seq = info.end_seq
                continue
            segment = self.store.segment(info.content_id)
            seqs, following = segment.seqs_within(*span, from_seq, min(limit, _SEQS_A_STEP))
            if not seqs and following is None:  # the last ones have other keys, or were merged away
                page.next = from_seq = info.end_seq
                continue
            for seq in seqs[: segment.warm(seqs)]:
                if end is not None and seq >= end:
                    page.next = end
                    return page
                if page.size >= bytes_max or not sieve.pass_on(segment.entry_at_seq(seq), page):
                    break
                page.next = seq + 1
            if not seqs and following is not None:
                page.next = following
            page.more = end is None or page.next < end
            return page
        for memtable in self.memtables():
            until = memtable.end_seq if end is None else min(end, memtable.end_seq)
            begin = max(from_seq, memtable.first_seq)
            for seq in range(begin, until):
                if len(page) >= limit or page.size >= bytes_max or seq - begin == ENTRIES_A_TURN:
                    page.more = True
                    return page
                if sieve.wants(memtable.key_at(seq)) and not sieve.pass_on(
                    memtable.entry(seq), page
                ):
                    page.more = True
                    return page
                page.next = seq + 1
        return page

    def read_by_key(
        self,
        start_key: bytes,
        end_key: bytes | None,
        from_seq: int = 1,
        *,
        limit: int,
        bytes_max: int,
        as_of: int | None = None,
    ) -> Page:
        """A page of the entries with keys in [start_key, end_key), in the order of key and seq;
        of the first key only those from `from_seq` on. With `more` set, `next_key` and `next` are
        the key and the seq to go on with."""
        view = self.view(start_key, end_key, as_of)
        start, end = self.within(start_key, end_key)
        page = Page()
        least = _least_trim(view, start, end)
        homes: list[Home] = [
            self.store.segment(info.content_id)
            for info in self.manifest
            if _meets(info, start, end) and info.end_seq > least
        ]
        homes += self.memtables()
        for looked_at, (key, at) in enumerate(_keys_from(homes, start)):
            if end is not None and key >= end:
                break
            low = from_seq if key == start_key else 1
            if looked_at == _KEYS_A_STEP:
                page.more, page.next_key, page.next = True, key, low
                break
            low = self.first_visible(key, view, low)
            for entry in _of_homes(homes, at, key, low, view.ending(None)):
                if len(page) >= limit or page.size >= bytes_max:
                    page.more, page.next_key, page.next = True, key, entry.seq
                    return page
                page.add(entry)
        return page

    def seq_at_timestamp(self, ms: int, key: bytes | None = None) -> int:
        """A position to read from: no entry below it has a timestamp that is not below `ms`, and
        none from it on one that is. The end when there is none.

        Timestamps never decrease within a range, so the answer holds for every key. Of what is
        removed a replica may have more or less left, so that replicas may name different seqs,
        between which there is nothing to be seen.
        """
        for info in self.manifest:
            if info.max_timestamp_ms >= ms:
                return self.store.segment(info.content_id).first_seq_from(ms)
        for memtable in self.memtables():
            seq = memtable.first_seq_from(ms)
            if seq is not None:
                return seq
        return self.memtable.end_seq

    def _is_visible(self, key: bytes, view: View) -> bool:
        """Whether anything of the key is."""
        low = self.first_visible(key, view)
        return next(self.backwards(key, low, view.ending(None)), None) is not None


class _Sieve:
    """Puts what is visible of a span into a page, with a bounded number of lookups."""

    def __init__(self, reads: Reads, view: View, span: Span) -> None:
        self._reads = reads
        self._view = view
        self._span = span
        self._begins: dict[bytes, int] = {}

    def wants(self, key: bytes) -> bool:
        """Whether the key is in the span."""
        return has(self._span, key)

    def pass_on(self, entry: Entry, page: Page) -> bool:
        """Add the entry to the page if it is to be seen; False: this takes a lookup too many."""
        key, seq, view = entry.key, entry.seq, self._view
        if not self.wants(key) or seq < view.floor(key):
            return True
        marks = view.marks
        if marks.compacts and seq < max(marks.compactions.at(key)[0], marks.snapshots.at(key)):
            begin = self._begins.get(key)
            if begin is None:
                if len(self._begins) == _LOOKUPS_A_STEP:
                    return False
                begin = self._begins[key] = self._reads.first_visible(key, view)
            if seq < begin:
                return True
        page.add(entry)
        return True


def _meets(info: SegmentInfo, start: bytes, end: bytes | None) -> bool:
    """Whether a segment may hold keys in [start, end)."""
    return info.max_key >= start and (end is None or info.min_key < end)


def _all_visible(info: SegmentInfo, view: View) -> bool:
    """Whether every key that a segment has surely has a visible entry."""
    if view.through is not None or view.floors:
        return False
    marks, span = view.marks, (max(info.min_key, view.start), info.max_key, view.end)
    return max(marks.trims.over(*span)) <= info.first_seq and all(
        mark.before <= info.first_seq or mark.cutoff_ms <= info.min_timestamp_ms
        for mark in marks.compactions.over(*span)
    )


def _keys_from(homes: list[Home], start: bytes) -> Iterator[tuple[bytes, Iterable[int]]]:
    """Keys from `start` on, in order, and the places of the homes that have each. `start` itself
    comes in any case."""
    if start:
        yield start, range(len(homes))
    sources = [
        zip(home.keys_after(b"", start or None), repeat(at)) for at, home in enumerate(homes)
    ]
    for key, group in groupby(heapq.merge(*sources), _first):
        yield key, [at for _, at in group]


def _of_homes(
    homes: list[Home], at: Iterable[int], key: bytes, start: int, end: int | None
) -> Iterator[Entry]:
    for place in at:
        yield from entries_in(homes[place], key, start, end)


def _least_trim(view: View, start: bytes, end: bytes | None) -> int:
    return min((trim for *_, trim in view.marks.trims.within(start, end)), default=0)


def _after(prefix: bytes) -> bytes | None:
    """The first key above all with the prefix; None when there is none."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1]) if stripped else None
