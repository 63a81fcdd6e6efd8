"""Reads of a span of keys: which keys there are, and entries in the order of seq.

Of a span that goes beyond the range's own, what is beyond is not there, though a segment that is
shared since a split may hold it; nor is what a segment holds beyond its row's clip.

The seqs of ranges that were merged have nothing to do with each other. A read in the order of seq
has as many of the keys asked for, from the first on, as can be read in one pass, and says up to
which; the caller then asks for the others. From the merged range's first next_seq on there is
nothing to be told apart (x2.20).

A page may be short or empty with `more` set: the caller comes back after it has let others run,
since blocks have to be decoded, and the beginnings of keys' histories found, first.
"""

import heapq
from collections.abc import Iterator
from itertools import groupby, repeat
from operator import itemgetter

from ..client.protocol.types import Entry
from .block_slices import Portion
from .chains import nearest_edge
from .floors import View
from .page import Page
from .reads import Reads
from .segment_writer import SegmentInfo
from .spans import Span, common, has
from .turn_limits import ENTRIES_A_TURN, NotPrepared, TurnOver

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
        as_of: str | None = None,
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
        as_of: str | None = None,
    ) -> tuple[list[bytes], bytes | None]:
        """Some of the keys, maybe none, and after which key to go on; None: there are no more."""
        view = self.view(prefix, _after(prefix), as_of)
        span = self.within(prefix, _after(prefix))
        least = least_trim(view, *span)
        sources: list[Iterator[tuple[bytes, bool]]] = [
            self._keys_in(info, prefix, start_after, surely=_all_visible(info, view))
            for info in self.manifest
            if info.within(span) is not None and info.end_seq > least
        ]
        surely = not view.hides and view.through is None
        for memtable in self.memtables():
            keys = memtable.keys_after(prefix, start_after)
            sources.append(zip(keys, repeat(surely), strict=False))
        found: list[bytes] = []
        room = _KEYS_A_STEP
        for key, homes in groupby(heapq.merge(*sources), _first):
            if len(found) == limit or room <= 0:
                return found, start_after
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
        begun: bool = False,
        as_of: str | None = None,
    ) -> Page:
        """A page of the entries with keys in [start_key, end_key), in the order of seq, from
        `from_seq` on and below `end_seq`.

        `next` is where to go on. With an `end_key` the page has the keys below it alone
        (`readable_to`): what is said of `next` and `more` is said of them, and the next page is
        asked for with that end; the keys from there on are read with the `from_seq` of this one.
        `limit`, `bytes_max` and `begun` as in `Room`.
        """
        view = self.view(start_key, end_key, as_of)
        start, end = self.within(start_key, end_key)
        page = Page(
            next=from_seq, end_key=self.readable_to(start_key, end_key, from_seq),
            limit=limit, bytes_max=bytes_max, begun=begun,
        )  # fmt: skip
        try:
            self._fill(page, view, (start, page.end_key or end), from_seq, end_seq)
        except (TurnOver, NotPrepared):
            if page.next == from_seq:
                raise
            page.more = True
        return page

    def _fill(self, page: Page, view: View, span: Span, from_seq: int, end_seq: int | None) -> None:
        """Put what one call may read into a page of `read_span`; `page.next` is always right."""
        sieve = Sieve(self, view, span)
        from_seq = max(from_seq, least_trim(view, *span))
        end_seq = view.ending(end_seq)
        for info in self.manifest:
            if info.end_seq <= from_seq or common(info.clip, span) is None:
                continue
            if end_seq is not None and from_seq >= end_seq:
                return
            if info.within(span) is None:
                page.next = from_seq = info.end_seq
                continue
            segment = self.store.segment(info.content_id)
            room = min(page.limit, _SEQS_A_STEP)
            seqs, following = segment.seqs_within(*span, from_seq, room)
            if not seqs and following is None:  # the last ones have other keys, or were merged away
                page.next = from_seq = info.end_seq
                continue
            for seq in seqs[: segment.warm(seqs)]:
                if end_seq is not None and seq >= end_seq:
                    page.next = end_seq
                    return
                if not sieve.pass_on(segment.entry_at_seq(seq), page):
                    break
                page.next = seq + 1
            if not seqs and following is not None:
                page.next = following
            page.more = end_seq is None or page.next < end_seq
            return
        for memtable in self.memtables():
            until = memtable.end_seq if end_seq is None else min(end_seq, memtable.end_seq)
            begin = max(from_seq, memtable.first_seq)
            for seq in range(begin, until):
                if seq - begin == ENTRIES_A_TURN or (
                    sieve.wants(memtable.key_at(seq))
                    and not sieve.pass_on(memtable.entry(seq), page)
                ):
                    page.more = True
                    return
                page.next = seq + 1

    def readable_to(self, start_key: bytes, end_key: bytes | None, from_seq: int) -> bytes | None:
        """The key up to which entries with keys from `start_key` on, and below `end_key`, can be
        read in one pass in the order of seq, from `from_seq` on. None: all of them. As the range
        goes on it never becomes less (see `chains`)."""
        active = (info for info in self.manifest if info.end_seq > from_seq)
        return nearest_edge(active, self.within(start_key, end_key))

    def earliest(self, start_key: bytes, end_key: bytes | None) -> tuple[int, bytes | None]:
        """Of the keys in [start_key, end_key) retention has removed what is below this seq, and
        nothing from it on. And the key up to which that holds and all can be read in one pass, None
        where it does for all of them: the others are asked for by themselves."""
        span = start, end = self.within(start_key, end_key)
        edge = nearest_edge(self.manifest, span)
        _, until, trim = next(self.removal.marks.trims.within(start, edge or end))
        return max(1, min(trim, self.memtable.end_seq)), None if until == end else until

    def seq_at_timestamp(
        self, ms: int, start_key: bytes = b"", end_key: bytes | None = None
    ) -> tuple[int, bytes | None]:
        """A position to read from: of the keys in [start_key, end_key) no entry below it has a
        timestamp that is not below `ms`, and none from it on one that is. The end when there is
        none. And the key up to which that holds, None where it does for all of them: the others
        are asked for by themselves.

        Timestamps never decrease within a chain, so the answer holds for every key of it
        (x2.21). Of what is removed a replica may have more or less left, so that replicas
        may name different seqs, between which there is nothing to be seen.
        """
        start, end = self.within(start_key, end_key)
        late = [info for info in self.manifest if info.max_timestamp_ms >= ms]
        end_key = nearest_edge(late, (start, end))
        span = start, end_key or end
        for info in late:
            if common(info.clip, span) is not None:
                return self.store.segment(info.content_id).first_seq_from(ms), end_key
        for memtable in self.memtables():
            seq = memtable.first_seq_from(ms)
            if seq is not None:
                return seq, end_key
        return self.memtable.end_seq, end_key

    def _is_visible(self, key: bytes, view: View) -> bool:
        """Whether anything of the key is."""
        low = self.first_visible(key, view)
        return next(self.backwards(key, low, view.ending(None)), None) is not None

    def _keys_in(
        self, info: SegmentInfo, prefix: bytes, after: bytes | None, *, surely: bool = True
    ) -> Iterator[tuple[bytes, bool]]:
        """The keys of a row that are the range's, with the prefix and above `after`, in order, each
        with `surely`; before them maybe one that is not there, with False. The file is opened once
        the first is passed: of many chains most are read later, or never."""
        own = info.within((self.start, self.end))
        if own is None:
            return
        first, end = own
        if first > prefix and not first.startswith(prefix):
            return
        if first >= prefix and (after is None or first > after):
            yield first, surely and first == info.min_key
            after = first
        for key in self.store.segment(info.content_id).keys_after(prefix, after):
            if end is not None and key >= end:
                return
            yield key, surely


class Sieve:
    """Puts what is visible of a span into a page, with a bounded number of lookups."""

    def __init__(self, reads: Reads, view: View, span: Span) -> None:
        self._reads = reads
        self._view = view
        self._span = span
        self._begins: dict[bytes, int] = {}

    def wants(self, key: bytes) -> bool:
        """Whether the key is in the span."""
        return has(self._span, key)

    def pass_on(self, entry: Entry, page: Page | Portion) -> bool:
        """Add the entry to the page if it is to be seen. False: the page has no room for it, or
        this takes a lookup too many."""
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
        return page.add(entry)


def _all_visible(info: SegmentInfo, view: View) -> bool:
    """Whether every key that a segment has surely has a visible entry."""
    own = info.within((view.start, view.end))
    if view.through is not None or view.floors or own is None:
        return False
    marks, span = view.marks, (own[0], info.max_key, own[1])
    return max(marks.trims.over(*span)) <= info.first_seq and all(
        mark.before <= info.first_seq or mark.cutoff_ms <= info.min_timestamp_ms
        for mark in marks.compactions.over(*span)
    )


def least_trim(view: View, start: bytes, end: bytes | None) -> int:
    """No entry below it is to be seen, of any key in [start, end)."""
    return min((trim for *_, trim in view.marks.trims.within(start, end)), default=0)


def _after(prefix: bytes) -> bytes | None:
    """The first key above all with the prefix; None when there is none."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1]) if stripped else None
