"""Reads of all entries of a span of keys, by bands of seqs, with each block decoded once.

A file has its blocks in the order of key. A read in the order of seq needs another block for each
entry, and decodes blocks again and again once they exceed the cache. Here the entries of one file,
or of some seqs of a memtable, come in the order of (key, seq): a band. Then comes the next band, so
that the entries of each key come in the order of seq.

A position names no file: before the read goes on, files may have been merged, and another replica
may have other files. A band that lies in several homes there is cut where the first of them ends;
both parts go on from the same key.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from ..client.protocol.types import Entry
from .block_slices import Portion
from .floors import View
from .memtable import Memtable
from .segment_block import Block
from .segment_reader import Segment
from .span_reads import Sieve, SpanReads, least_trim
from .spans import Span
from .turn_limits import ENTRIES_A_TURN, NotPrepared, TurnOver

_STEPS: Final = 64
"""The steps of one call: a block each, or some seqs of a memtable, visible or not."""
_PLACE_COST: Final = 256
"""The cost of finding a seq's place in a sorted memtable portion, 0.5 us."""


class Band(NamedTuple):
    """Entries with seqs in [first, end), in the order of (key, seq), from (key, seq) on."""

    first: int
    end: int
    key: bytes = b""
    seq: int = 0


class Position(NamedTuple):
    """The rest of the bands that have begun, then all seqs from `next` on."""

    bands: tuple[Band, ...] = ()
    next: int = 1

    @property
    def first(self) -> int:
        """The lower bound of the entries that are still to come."""
        return self.bands[0].first if self.bands else self.next


class BandReads(SpanReads):
    """Reads of whole spans, for readers that want every entry."""

    def read_bands(
        self,
        start_key: bytes,
        end_key: bytes | None,
        position: Position,
        end_seq: int | None = None,
        *,
        limit: int,
        bytes_max: int,
        begun: bool = False,
        as_of: str | None = None,
    ) -> tuple[Portion, Position | None]:
        """Return some of the entries of a span, maybe none, and the next position or None.

        The entries have keys in [start_key, end_key) and seqs below `end_seq`. The next position is
        None when no entries are left. A portion with an `end_key` has only the keys below it, as in
        `read_span`; the caller reads the other keys from the position of this call. `limit`,
        `bytes_max` and `begun` as in `Room`. Raises NotFound.
        """
        view = self.view(start_key, end_key, as_of)
        start, end = self.within(start_key, end_key)
        page = Portion(
            self.readable_to(start_key, end_key, position.first),
            limit=limit, bytes_max=bytes_max, begun=begun,
        )  # fmt: skip
        reader = _Reader(self, view, (start, page.end_key or end), view.ending(end_seq), page)
        at: Position | None = position
        while at is not None and reader.steps_left and not page.full:
            try:
                at = reader.step(at)
            except (TurnOver, NotPrepared):
                if at is position and not page:
                    raise
                break
        return page, at


def _behind(block: Block) -> tuple[bytes, int]:
    """Return the place after the last entry of a block."""
    key, seq = block.last
    return key, seq + 1


class _Reader:
    """Puts the visible entries into a page, step by step."""

    def __init__(
        self, reads: BandReads, view: View, span: Span, end_seq: int | None, page: Portion
    ) -> None:
        self._reads = reads
        self._view = view
        self._span = span
        self._end_seq = end_seq
        self._page = page
        self.steps_left = _STEPS

    def step(self, position: Position) -> Position | None:
        """Read neighbouring blocks or part of a memtable, or only find a better position.

        Return the position.
        """
        self.steps_left -= 1
        if not position.bands:
            fresh = self._band_from(position.next)
            return None if fresh is None else Position((fresh,), fresh.end)
        band, *behind = position.bands
        homes = list(self._homes_of(band))
        if not homes:
            return Position(tuple(behind), position.next)
        cut, home = homes[0]
        if cut < band.end:
            parts = band._replace(end=cut), band._replace(first=cut)
            return Position((*parts, *behind), position.next)
        if isinstance(home, Memtable):
            following = self._put_some(home, band)
        else:
            following = self._put_blocks(self._reads.store.segment(home), band)
        if following is not None:
            behind.insert(0, band._replace(key=following[0], seq=following[1]))
        return Position(tuple(behind), position.next)

    def _band_from(self, seq: int) -> Band | None:
        """Return the band of seqs from `seq` on that lie in one home, or None at the end."""
        if self._end_seq is not None and seq >= self._end_seq:
            return None
        least = max(seq, least_trim(self._view, *self._span))
        for end, _ in self._homes_of(Band(least, self._end_seq or 1 << 63)):
            return Band(seq, min(end, self._end_seq or end))
        return None

    def _homes_of(self, band: Band) -> Iterator[tuple[int, str | Memtable]]:
        """Yield the homes of a band's entries, each with the seq after its last.

        A home is a file by its id, or a portion of a memtable that one turn can decode.
        """
        for info in self._reads.manifest:
            overlaps = info.end_seq > band.first and info.first_seq < band.end
            if overlaps and info.within(self._span) is not None:
                yield info.end_seq, info.content_id
        for memtable in self._reads.memtables():
            begin = max(band.first, memtable.first_seq)
            if begin < min(band.end, memtable.end_seq):
                yield memtable.portion_end(begin, ENTRIES_A_TURN), memtable

    def _put_some(self, memtable: Memtable, band: Band) -> tuple[bytes, int] | None:
        """Put entries of a memtable.

        Return the key and seq to go on from; None: the band is done.
        """
        begin = max(band.first, memtable.first_seq)
        self._reads.store.spend(_PLACE_COST * len(memtable.held(begin, band.end)))
        start, end = self._span
        # Tuples: by key, and then by seq, which no two entries of a memtable share.
        entries: list[Any] = sorted(memtable.entries(begin, band.end))
        low = bisect_left(entries, max((band.key, band.seq), (start, 0)))
        high = len(entries) if end is None else bisect_left(entries, (end,))
        entries = entries[low:high]
        if self._view.hides:
            done = self._put_visible(entries)
        else:
            done = self._page.add_all(entries)
        return None if done == len(entries) else entries[done][:2]

    def _put_visible(self, entries: Sequence[Entry]) -> int:
        """Put the visible ones of these entries; return how many entries were passed."""
        sieve = Sieve(self._reads, self._view, self._span)
        for at, entry in enumerate(entries):
            try:
                if not sieve.pass_on(entry, self._page):
                    return at
            except (TurnOver, NotPrepared):
                if not at:
                    raise
                return at
        return len(entries)

    def _put_blocks(self, segment: Segment, band: Band) -> tuple[bytes, int] | None:
        """Put entries of some neighbouring blocks of a file. Return as `_put_some` does."""
        start = self._span[0]
        key, seq = (band.key, band.seq) if band.key >= start else (start, 0)
        ordinal = segment.find(key, seq)
        block = segment.block(ordinal)
        low = block.slice(key, seq, None)[0] if key else 0
        place: tuple[bytes, int] | None = None
        while True:
            try:
                if low == block.count:
                    after = segment.following(ordinal)
                    if after is None:
                        return None
                    ordinal, low = after, 0
                    block = segment.block(ordinal)
                place = self._put_block(segment, block, low, band)
            except (TurnOver, NotPrepared):
                if place is None:
                    raise
                return place
            if place != _behind(block) or self._page.full or not self.steps_left:
                return place
            self.steps_left -= 1
            low = block.count

    def _put_block(
        self, segment: Segment, block: Block, low: int, band: Band
    ) -> tuple[bytes, int] | None:
        """Put entries of a block from a position on. Return as `_put_some` does."""
        end = self._span[1]
        stop = block.count if end is None or block.last[0] < end else block.span(end)[0]
        high = min(stop, low + self._page.entries_left)
        # All runs are found before any is put: a lookup may have to wait for another turn.
        for begin, behind in list(self._visible(segment, block, low, high, band)):
            reached = self._take(block, begin, behind)
            if reached < behind:
                return block.key_at(reached), block.seq(reached)
        if high < stop:
            return block.key_at(high), block.seq(high)
        if stop < block.count or block.next_first_key is None:
            return None
        return _behind(block)

    def _take(self, block: Block, begin: int, end: int) -> int:
        """Put entries of a block into the page. Return the position of the first without room."""
        page = self._page
        if page.take(block.chunk(begin, end)):
            return end
        reached = block.fitting(begin, end, page.bytes_left)
        if reached > begin or not page.begun:
            reached = max(reached, begin + 1)
            page.take(block.chunk(begin, reached))
        return reached

    def _visible(
        self, segment: Segment, block: Block, low: int, high: int, band: Band
    ) -> Iterator[tuple[int, int]]:
        """Yield runs of positions in [low, high) of visible entries in the band."""
        footer, view = segment.footer, self._view
        if band.first <= footer.first_seq and footer.end_seq <= band.end and not view.hides:
            if low < high:
                yield low, high
            return
        begun = behind = low
        for key, first, end in block.runs(low, high):
            begin = max(band.first, self._reads.first_visible(key, view))
            a, b = block.slice(key, begin, band.end)
            a, b = max(a, first), min(b, end)
            if a >= b:
                continue
            if a != behind:
                if begun < behind:
                    yield begun, behind
                begun = a
            behind = b
        if begun < behind:
            yield begun, behind
