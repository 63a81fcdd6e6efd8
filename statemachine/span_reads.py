"""Reads of a span of keys: the list of keys, and entries in the order of seq.

Only the range's own part of a span is read. A segment may hold other keys since a split, and keys
beyond its row's clip; such keys are not visible.

The seqs of merged ranges are unrelated. So a read in the order of seq covers as many of the
requested keys, from the first on, as one pass can read, and returns where they end. The caller then
reads the other keys. From the merged range's first next_seq on, one pass reads all keys (x2.20).

A page may be short or empty with `more` set. The caller comes back after others have run, since
blocks have to be decoded, and the beginnings of keys' histories found, first.
"""

import heapq
from collections.abc import Iterator
from itertools import chain, dropwhile, groupby, repeat
from operator import itemgetter

from ..client.protocol.key_spans import prefix_span
from ..client.protocol.types import Entry
from .block_slices import Portion
from .chains import nearest_edge
from .floors import View
from .memtable import Memtable
from .page import Page
from .reads import Reads
from .room import entries_bytes
from .segment_format import SegmentInfo
from .span_copies import touches_all
from .spans import Span, common, has
from .turn_limits import ENTRIES_A_TURN, NotPrepared, TurnOver

_LOOKUPS_A_STEP = 64
"""The keys whose first visible entry one call looks up."""
_KEYS_A_STEP = 512
_SEQS_A_STEP = 384
"""The entries of a segment that one call looks up by seq."""
_SOME_SEQS = 64
"""The least entries of a memtable that are looked at together."""
_first = itemgetter(0)


class SpanReads(Reads):
    """The reads of many keys on a replica."""

    def keys(
        self,
        prefix: bytes = b"",
        start_after: bytes | None = None,
        *,
        limit: int,
        as_of: str | None = None,
    ) -> list[bytes]:
        """Return the keys with entries, with the prefix and above `start_after`, in order."""
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
        """Return some of the keys, maybe none, and the key to go on after; None: no more keys."""
        view = self.view(*prefix_span(prefix), as_of)
        span = self.within(*prefix_span(prefix))
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
        columns: bool = False,
    ) -> Page:
        """Return a page of entries with keys in [start_key, end_key), in the order of seq.

        The page has entries from `from_seq` on and below `end_seq`. `next` is where to go on. A
        page with an `end_key` covers only the keys below it (`readable_to`), and so do its `next`
        and `more`. Read the next page with that end, and the keys from there on with the `from_seq`
        of this page. `limit`, `bytes_max` and `begun` as in `Room`. With
        `columns` a page may have its entries as chunks.
        """
        view = self.view(start_key, end_key, as_of)
        start, end = self.within(start_key, end_key)
        page = Page(
            next=from_seq, end_key=self.readable_to(start_key, end_key, from_seq),
            limit=limit, bytes_max=bytes_max, begun=begun,
        )  # fmt: skip
        try:
            span = start, page.end_key or end
            self._fill(page, view, span, from_seq, end_seq, columns=columns)
        except (TurnOver, NotPrepared):
            if page.next == from_seq:
                raise
            page.more = True
        return page

    def _fill(
        self, page: Page, view: View, span: Span, from_seq: int, end_seq: int | None, *,
        columns: bool,
    ) -> None:  # fmt: skip
        """Put the entries that one call may read into a page; `page.next` is always right."""
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
            if columns and sieve.shows_all(from_seq):
                page.next = from_seq
                if self._put_copied(info, span, end_seq, page):
                    page.more = end_seq is None or page.next < end_seq
                    return
            room = min(page.limit, _SEQS_A_STEP)
            seqs, following = segment.seqs_within(*span, from_seq, room)
            if not seqs and following is None:  # the rest has other keys or was merged away
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
            if begin < until and sieve.shows_all(begin):
                if not _put_portions(memtable, begin, until, sieve, page):
                    return
                continue
            if begin >= until:
                continue
            runs = memtable.runs(begin, until, span)
            held = chain.from_iterable(memtable.held(*run) for run in runs)
            for looked, seq in enumerate(held):
                if looked == ENTRIES_A_TURN or (
                    sieve.wants(memtable.key_at(seq))
                    and not sieve.pass_on(memtable.entry(seq), page)
                ):
                    page.more = True
                    return
                page.next = seq + 1
            page.next = until

    def _put_copied(self, info: SegmentInfo, span: Span, end_seq: int | None, page: Page) -> bool:
        """Put entries of a segment into a page, of which none is hidden, from a copy of the span.
        Return False where there is no copy."""
        segment = self.store.segment(info.content_id)
        ranks = segment.ranks_of(*span)
        if not ranks:
            return False
        copies = self.store.copies
        goes_on = copies.goes_on(span[0], page.next) or touches_all(segment, ranks, page)
        copy = copies.of(self.store, segment, ranks, goes_on=goes_on)
        if copy is None:
            return False
        copy.put(self.store, segment, info.end_seq, end_seq, page)
        if goes_on:  # the next part of the page goes on here
            copies.note(span[0], page.next)
        return True

    def readable_to(self, start_key: bytes, end_key: bytes | None, from_seq: int) -> bytes | None:
        """Return the key up to which one pass in the order of seq can read from `from_seq` on.

        The keys go from `start_key` up to `end_key`. None: one pass reads all of them. The result
        never falls while the range goes on (see `chains`).
        """
        active = (info for info in self.manifest if info.end_seq > from_seq)
        return nearest_edge(active, self.within(start_key, end_key))

    def earliest(self, start_key: bytes, end_key: bytes | None) -> tuple[int, bytes | None]:
        """Return the seq below which retention has removed entries, and the end of its keys.

        Retention has removed nothing from that seq on. The answer holds for keys from `start_key`
        on up to the returned key, which one pass can read; None: up to `end_key`. The caller asks
        for the other keys separately.
        """
        span = start, end = self.within(start_key, end_key)
        edge = nearest_edge(self.manifest, span)
        _, until, trim = next(self.removal.marks.trims.within(start, edge or end))
        return max(1, min(trim, self.memtable.end_seq)), None if until == end else until

    def seq_at_timestamp(
        self, ms: int, start_key: bytes = b"", end_key: bytes | None = None
    ) -> tuple[int, bytes | None]:
        """Return the seq from which to read entries with timestamps from `ms` on, and a key.

        For every key in [start_key, end_key): entries below the seq have timestamps below `ms`,
        entries from the seq on do not. Without such entries the seq is the end. The answer holds up
        to the returned key; None: for all keys. The caller asks for the other keys separately.

        Timestamps never decrease within a chain, so the answer holds for every key of it (x2.21).
        Replicas may still hold different removed entries, and so name different seqs; no visible
        entry lies between these seqs.
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
        """Whether any entry of the key is visible."""
        low = self.first_visible(key, view)
        return next(self.backwards(key, low, view.ending(None)), None) is not None

    def _keys_in(
        self, info: SegmentInfo, prefix: bytes, after: bytes | None, *, surely: bool = True
    ) -> Iterator[tuple[bytes, bool]]:
        """Yield the row's keys with the prefix and above `after` that are the range's, in order.

        Each key comes with `surely`. The first key may be absent; it then comes with False. The
        file is opened once the first key is passed: in a merged range most files are read later, or
        never.
        """
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
    """Puts the visible entries of a span into a page, with a bounded number of lookups."""

    def __init__(self, reads: Reads, view: View, span: Span) -> None:
        self._reads = reads
        self._view = view
        self.span = span
        self._begins: dict[bytes, int] = {}

    def wants(self, key: bytes) -> bool:
        """Whether the key is in the span."""
        return has(self.span, key)

    def wants_all(self, keys: list[bytes]) -> bool:
        """Whether all of these keys, which are some, are in the span."""
        start, end = self.span
        return start <= min(keys) and (end is None or max(keys) < end)

    def shows_all(self, seq: int) -> bool:
        """Whether no entry of the span from that seq on is hidden, whatever its key is."""
        marks, (start, end) = self._view.marks, self.span
        # Each Kafka partition of a range may be trimmed for itself.
        trims = marks.trims.values if end is None else marks.trims.over(start, end, end)
        return (
            not (self._view.floors or self._view.before)
            and max(trims, default=0) <= seq
            and max(marks.snapshots.values) <= seq
            and all(mark.before <= seq for mark in marks.compactions.values)
        )

    def within(self, entries: list[Entry]) -> list[Entry]:
        """Return the entries whose keys are in the span."""
        start, end = self.span
        if end is None:
            return [entry for entry in entries if entry[0] >= start] if start else entries
        return [entry for entry in entries if start <= entry[0] < end]

    def pass_on(self, entry: Entry, page: Page | Portion) -> bool:
        """Add the entry to the page if it is visible.

        Returns False if the page has no room for it, or if this takes a lookup too many.
        """
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


def _put_portions(memtable: Memtable, begin: int, until: int, sieve: Sieve, page: Page) -> bool:
    """Put a memtable's entries with seqs in [begin, until) into a page, of which none is hidden.

    No Python runs for an entry, and batches without keys of the span are passed. Return whether all
    entries were looked at.
    """
    left = ENTRIES_A_TURN
    for first, end in memtable.runs(begin, until, sieve.span):
        at = page.next = first
        while at < end:
            if page.full or not left:
                page.more = True
                return False
            some = min(left, max(page.entries_left, _SOME_SEQS))
            stop = min(end, memtable.portion_end(at, some))
            if not _put_portion(memtable, at, stop, sieve, page):
                return False
            left = max(0, left - (stop - at))  # seqs may have gaps
            at = page.next = stop
    page.next = until
    return True


def _put_portion(memtable: Memtable, begin: int, stop: int, sieve: Sieve, page: Page) -> bool:
    """Put entries that are read together into a page. Return whether all of them were looked at."""
    plain = memtable.plain(begin, stop)
    if plain is not None and sieve.wants_all(plain.keys) and page.put_plain(plain):
        return True
    entries = sieve.within(memtable.entries(begin, stop))
    fitting = entries[: page.entries_left]
    size = sum(entries_bytes(fitting))
    if fitting and size <= page.bytes_left:
        page.takes(size, len(fitting))
        page.put_all(fitting)
        behind = entries[len(fitting) :]
    else:
        behind = list(dropwhile(page.add, entries))
    if behind:
        page.next, page.more = behind[0].seq, True
    return not behind


def _all_visible(info: SegmentInfo, view: View) -> bool:
    """Whether every key of a segment surely has a visible entry."""
    own = info.within((view.start, view.end))
    if view.through is not None or view.floors or own is None:
        return False
    marks, span = view.marks, (own[0], info.max_key, own[1])
    return max(marks.trims.over(*span)) <= info.first_seq and all(
        mark.before <= info.first_seq or mark.cutoff_ms <= info.min_timestamp_ms
        for mark in marks.compactions.over(*span)
    )


def least_trim(view: View, start: bytes, end: bytes | None) -> int:
    """Return a seq below which no entry of any key in [start, end) is visible."""
    return min((trim for *_, trim in view.marks.trims.within(start, end)), default=0)
