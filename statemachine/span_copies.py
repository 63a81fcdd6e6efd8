"""Spans of segments in memory, for reads of many entries in the order of seq.

A segment has its entries in the order of key, so a read in the order of seq needs another block for
each entry, and decodes blocks again and again once they exceed the cache. A reader that goes on
where it ended, or wants as many entries as there are blocks, is served from a copy: the columns of
all blocks of its span, decoded once, and the order of seq. Then an entry costs a copy of its bytes,
and no Python. A copy of few entries has an order of its own. To sort a larger copy would hold the
loop too long, so its order is that of the segment, which has the places of all entries.

A copy is made in many turns, and used once it is whole. All copies together have a bound; a copy
that a reader still uses does not go for another. A read without a copy goes on block by block. The
headers of a copy that goes are freed in many turns, too, and count until then.
"""

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

import numpy as np

from ..client.protocol import limits
from ..client.protocol.chunks import ABSENT, Chunk
from ..client.protocol.types import Headers
from .page import Page
from .room import CHUNK_BYTES, ENTRY_BYTES, headers_bytes
from .segment_block import Block
from .segment_reader import Segment
from .strings import Numbers, Strings
from .turn_limits import ENTRIES_A_TURN

if TYPE_CHECKING:
    from .segments import SegmentStore

BYTES_MAX: Final = 128 * limits.MIB
"""The memory of all copies of a node: a segment as large as a memtable makes it, and a half."""
_ENTRY_BYTES: Final = 6 * 8
"""The memory of the numbers of an entry."""
_PLACE_BYTES: Final = 2 * 8
"""The memory of the place of an entry, in a copy that has an order of its own."""
_HEADER_BYTES: Final = 100
"""The memory of a header, or of a map of headers, besides its bytes."""
_SMALL_BYTES: Final = limits.MIB
"""A span up to this size is copied for any reader: a page is not much less."""
_READ_BYTES: Final = limits.MIB
_READ_PIECES: Final = 16
"""What one call reads: bytes of entries, and pieces of the order of seq; about 2 ms."""
_BLOCK_COST: Final = 24 * limits.KIB
_ENTRY_COST: Final = 96
_HEADERS_COST: Final = 512
"""The cost of a block besides its bytes in the file, of an entry, and of the headers of an entry:
50, 0.2 and 1 us. A file of entries that compress well has few bytes for many entries."""
_PIECE_COST: Final = 32 * limits.KIB
"""The cost of looking for the entries of a span among those of a piece."""
_SORTED_MAX: Final = 32_768
"""The most entries of a copy with an order of its own: to sort them takes 2 ms. A Kafka partition
may be a small part of the entries of its range, and each piece of the segment's order has entries
of all partitions."""
_SORT_COST: Final = 32
"""The cost of an entry of a copy that is sorted."""
_FREED: Final = 8_192
"""The headers of entries that a read frees, of copies that were dropped: a millisecond."""
_UNUSED: Final = 128
"""After so many reads of others, a copy that was not read may go."""
_NOTED_MAX: Final = 1_024
_Name = tuple[str, int, int]


class SpanCopies:
    """The copies of a node. `note` notes where a reader has ended."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self.bytes = 0
        """The memory of all copies, those that are being made included."""
        self._copies: OrderedDict[_Name, _Copy] = OrderedDict()
        """The copy that was used last at the end."""
        self._noted: OrderedDict[tuple[bytes, int], None] = OrderedDict()
        self._leaving: list[tuple[dict[int, Headers], int]] = []
        """The headers of dropped copies, and the memory that is counted for them."""
        self._given_up: OrderedDict[_Name, int] = OrderedDict()
        """Copies for which there was no room, and the number of the read that found so."""
        self._reads = 0

    def note(self, start_key: bytes, seq: int) -> None:
        """Note that a reader of the keys from `start_key` on has read the entries below `seq`."""
        self._noted[start_key, seq] = None
        self._noted.move_to_end((start_key, seq))
        while len(self._noted) > _NOTED_MAX:
            self._noted.popitem(last=False)

    def goes_on(self, start_key: bytes, seq: int) -> bool:
        """Return whether a reader of these keys has ended at this seq."""
        return (start_key, seq) in self._noted

    def of(
        self, store: "SegmentStore", segment: Segment, ranks: range, *, goes_on: bool
    ) -> "_Copy | None":
        """Return the copy of the entries with these ranks, which are some. None: there is none, and
        there shall be none now. Raises TurnOver, NotPrepared while the copy is being made."""
        self._reads += 1
        self._free()
        name = segment.content_id, ranks.start, ranks.stop
        if self._reads - self._given_up.get(name, -_UNUSED) < _UNUSED:
            return None
        copy = self._copies.get(name)
        if copy is None:
            size = _size(segment, ranks)
            if (size > _SMALL_BYTES and not goes_on) or not self._make_room(size):
                return None
            copy = self._copies[name] = _Copy(segment, ranks, size)
            self.bytes += size
        self._copies.move_to_end(name)
        copy.used, copy.is_over = self._reads, False
        while not copy.step(store, segment):
            more = copy.grown - copy.size
            if more > 0:
                if not self._make_room(more, copy):
                    self._give_up(name)
                    return None
                copy.size += more
                self.bytes += more
        return copy

    def _make_room(self, size: int, keep: "_Copy | None" = None) -> bool:
        """Drop copies that nobody uses until there is room; return whether there is room."""
        for name, copy in [*self._copies.items()]:
            if self.bytes + size <= self._bytes_max:
                break
            if copy is not keep and (copy.is_over or copy.used < self._reads - _UNUSED):
                self._drop(name)
        return self.bytes + size <= self._bytes_max

    def _give_up(self, name: _Name) -> None:
        """Drop a copy for which there is no room, and make no other for a while."""
        self._drop(name)
        self._given_up[name] = self._reads
        while len(self._given_up) > _NOTED_MAX:
            self._given_up.popitem(last=False)

    def _drop(self, name: _Name) -> None:
        copy = self._copies.pop(name)
        self.bytes -= copy.size
        if copy.headers:
            size = min(copy.extra, copy.size)
            self._leaving.append((copy.headers, size))
            self.bytes += size

    def _free(self) -> None:
        """Free some headers of dropped copies: half a million at once take 50 ms."""
        if not self._leaving:
            return
        headers, size = self._leaving[-1]
        for _ in range(min(_FREED, len(headers))):
            headers.popitem()
        if not headers:
            self._leaving.pop()
            self.bytes -= size


def touches_all(segment: Segment, ranks: range, page: Page) -> bool:
    """Return whether a page probably needs all blocks with these ranks: each of its entries may lie
    in another block."""
    footer = segment.footer
    average = footer.data_bytes // footer.entries + ENTRY_BYTES
    wanted = min(page.entries_left, page.bytes_left // average)
    return wanted >= len(footer.blocks_of(ranks))


def _size(segment: Segment, ranks: range) -> int:
    """Return about how much memory a copy takes."""
    footer = segment.footer
    return footer.data_bytes * len(ranks) // footer.entries + _numbers_bytes(len(ranks), ranks)


def _numbers_bytes(count: int, ranks: range) -> int:
    """Return the memory of the numbers of so many entries, and of the order of those with these
    ranks."""
    places = len(ranks) if len(ranks) <= _SORTED_MAX else 0
    return _ENTRY_BYTES * count + _PLACE_BYTES * places


class _Copy:
    """The columns of the blocks that have some ranks."""

    def __init__(self, segment: Segment, ranks: range, size: int) -> None:
        footer = segment.footer
        blocks = footer.blocks_of(ranks)
        self._ranks = ranks
        self._next, self._behind = blocks.start, blocks.stop
        self._base = footer.ranks[blocks.start]
        stop = footer.entries if blocks.stop == footer.blocks else footer.ranks[blocks.stop]
        count = stop - self._base
        self._at = 0
        self._order: Numbers | None = None
        """The positions of the entries by seq, where the copy has an order of its own."""
        self._sorted_seqs: Numbers = np.empty(0, np.int64)
        """Their seqs in this order."""
        self._seqs: Numbers = np.empty(count, np.int64)
        self._timestamps: Numbers = np.empty(count, np.int64)
        self._key_starts: Numbers = np.empty(count, np.int64)
        self._key_lengths: Numbers = np.empty(count, np.int64)
        self._value_starts: Numbers = np.empty(count, np.int64)
        self._value_lengths: Numbers = np.empty(count, np.int64)
        """ABSENT as 0: `_absent` has the positions."""
        self._absent = np.zeros(count, np.bool_)
        self._keys, self._values = bytearray(), bytearray()
        self.headers: dict[int, Headers] = {}
        """The headers by position."""
        self.extra = 0
        """Their memory."""
        self._with_headers = 0
        """How many entries of the last block had headers."""
        self._snapshots: set[int] = set()
        self.size = size
        """The memory that is counted for this copy."""
        self.used = 0
        """The number of the last read."""
        self.is_over = False
        """Whether the last read has reached the end."""

    @property
    def grown(self) -> int:
        """The memory that the copy takes by now."""
        texts = len(self._keys) + len(self._values)
        return texts + self.extra + _numbers_bytes(len(self._seqs), self._ranks)

    def step(self, store: "SegmentStore", segment: Segment) -> bool:
        """Decode a block; return whether the copy was whole before. Raises as `SpanCopies.of`."""
        if self._next == self._behind:
            if self._order is None and len(self._ranks) <= _SORTED_MAX:
                store.spend(_SORT_COST * len(self._ranks))
                self._sort()
            return True
        footer = segment.footer
        store.spend(
            _BLOCK_COST + footer.sizes[self._next] + _ENTRY_COST * footer.length(self._next)
            + _HEADERS_COST * self._with_headers
        )  # fmt: skip
        block = segment.decoded(self._next, Block)
        self._take(block.chunk(0, block.count))
        self._next += 1
        return False

    def _sort(self) -> None:
        own = slice(self._ranks.start - self._base, self._ranks.stop - self._base)
        self._order = self._seqs[own].argsort() + own.start
        self._sorted_seqs = self._seqs[self._order]

    def _take(self, chunk: Chunk) -> None:
        at, behind = self._at, self._at + chunk.rows
        here = slice(at, behind)
        self._seqs[here] = np.frombuffer(chunk.seqs, chunk.seq_code)
        self._seqs[here] += chunk.first_seq
        self._timestamps[here] = np.frombuffer(chunk.timestamps, chunk.timestamp_code)
        self._timestamps[here] += chunk.first_ms
        lengths = np.frombuffer(chunk.key_lengths, np.uint16).astype(np.int64)
        starts = lengths.cumsum() - lengths + len(self._keys)
        if chunk.repeats is not None:
            repeats = np.frombuffer(chunk.repeats, np.uint32)
            lengths, starts = lengths.repeat(repeats), starts.repeat(repeats)
        self._key_lengths[here], self._key_starts[here] = lengths, starts
        widths = np.frombuffer(chunk.value_lengths, np.uint32).astype(np.int64)
        absent = widths == ABSENT
        widths[absent] = 0
        self._absent[here] = absent
        self._value_lengths[here] = widths
        self._value_starts[here] = widths.cumsum() - widths + len(self._values)
        self._keys += chunk.keys
        self._values += chunk.values
        for place, headers in (chunk.headers or {}).items():
            self.headers[at + place] = headers
            self.extra += headers_bytes(headers) + _HEADER_BYTES * (1 + len(headers))
        self._with_headers = len(chunk.headers or ())
        self._snapshots.update(map(at.__add__, chunk.snapshots or ()))
        self._at = behind

    def put(
        self, store: "SegmentStore", segment: Segment, last: int, end_seq: int | None, page: Page
    ) -> None:
        """Put entries from `page.next` on and below `end_seq` into a page, some of them, and move
        the page's position behind them. `last`: the end of the segment's seqs. Raises TurnOver,
        NotPrepared."""
        until = last if end_seq is None else min(last, end_seq)
        if self._order is None:
            self._put_by_pieces(store, segment, until, end_seq, page)
        else:
            self._put_sorted(store, self._order, until, page)

    def _put_sorted(self, store: "SegmentStore", order: Numbers, until: int, page: Page) -> None:
        store.spend(min(_READ_BYTES, page.bytes_left))
        begin, behind = self._sorted_seqs.searchsorted((page.next, until))
        # Entries with headers are looked at one by one.
        most = ENTRIES_A_TURN if self.headers else page.entries_left
        done = self._put_some(order[begin:behind][:most], _READ_BYTES, page)
        if done:
            page.next = int(self._sorted_seqs[begin + done - 1]) + 1
        self.is_over = bool(begin + done >= behind)
        if self.is_over:
            page.next = max(page.next, until)

    def _put_by_pieces(
        self, store: "SegmentStore", segment: Segment, until: int, end_seq: int | None, page: Page
    ) -> None:
        """Find the entries by the segment's order of seq."""
        left = _READ_BYTES
        entries_left = ENTRIES_A_TURN if self.headers else page.entries_left
        pieces = segment.pieces_from(page.next)
        for ordinal in pieces[:_READ_PIECES]:
            store.spend(_PIECE_COST)
            piece = segment.piece(ordinal)
            seqs = piece.seq_numbers().view(np.int64)
            begin = int(seqs.searchsorted(page.next))
            behind = len(seqs) if end_seq is None else int(seqs.searchsorted(end_seq))
            ranks = np.frombuffer(piece.ranks, np.uint32)[begin:behind].astype(np.int64)
            chosen = (ranks >= self._ranks.start) & (ranks < self._ranks.stop)
            wanted, places = seqs[begin:behind][chosen], ranks[chosen] - self._base
            if (self._seqs[places] != wanted).any():
                raise segment.damage(f"piece {ordinal} of its seq order leads to other seqs")
            before = page.size
            done = self._put_some(places[:entries_left], left, page)
            # The position first: a turn that is over ends the page where the position is.
            if done:
                page.next = int(wanted[done - 1]) + 1
            if done < len(places):
                return
            if behind < len(seqs):
                assert end_seq is not None
                page.next = end_seq
                return
            page.next = int(seqs[-1]) + 1
            left -= page.size - before
            entries_left -= done
            store.spend(page.size - before)
        self.is_over = len(pieces) <= _READ_PIECES
        if self.is_over:
            page.next = max(page.next, until)

    def _put_some(self, places: Numbers, bytes_max: int, page: Page) -> int:
        """Put the first of the entries at these places that have room; return how many."""
        some = places[: page.entries_left]
        if not len(some):
            return 0
        sizes = self._key_lengths[some] + self._value_lengths[some] + ENTRY_BYTES
        if self.headers:
            sizes += np.fromiter(
                (headers_bytes(self.headers.get(at)) for at in some.tolist()), np.int64, len(some)
            )
        ends = sizes.cumsum() + CHUNK_BYTES
        fitting = int(ends.searchsorted(min(bytes_max, page.bytes_left), "right"))
        # A turn reads one entry at least, and a page has one at least.
        is_first = bytes_max == _READ_BYTES and ends[0] <= page.bytes_left
        if not fitting and (is_first or not page.begun):
            fitting = 1
        # Further parts of a page would only look for the same entry again.
        page.refused = fitting < len(some) and bool(ends[fitting] > page.bytes_left)
        if fitting:
            page.take(self._chunk(some[:fitting]), int(sizes[:fitting].sum()) + CHUNK_BYTES)
        return fitting

    def _chunk(self, places: Numbers) -> Chunk:
        lengths = self._key_lengths[places]
        widths = self._value_lengths[places]
        headers, snapshots = {}, []
        if self.headers or self._snapshots:
            for at, place in enumerate(places.tolist()):
                if place in self.headers:
                    headers[at] = self.headers[place]
                if place in self._snapshots:
                    snapshots.append(at)
        widths[self._absent[places]] = ABSENT
        return Chunk(
            len(places), 0, 0, lengths.astype(np.uint16).tobytes(), None,
            _gathered(self._keys, self._key_starts, self._key_lengths, places),
            self._seqs[places].tobytes(), self._timestamps[places].tobytes(),
            widths.astype(np.uint32).tobytes(),
            _gathered(self._values, self._value_starts, self._value_lengths, places),
            headers or None, snapshots or None,
        )  # fmt: skip


def _gathered(data: bytearray, starts: Numbers, lengths: Numbers, places: Numbers) -> bytes:
    return Strings(np.frombuffer(data, np.uint8), starts, lengths).take(places).data.tobytes()
