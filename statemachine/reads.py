"""Reads of a key. A removed entry is not visible, wherever it still lies.

An invisible entry does not exist for `last_seq` and so for `expect`, for counts, pages and lists of
keys. A key without a visible entry is like a key that never existed (its last seq is 0). But seqs
are never reused: an append that revives the key gets a higher seq (promise S6).

`as_of` names a lease, and reads the entries that it keeps readable: entries up to its seq that were
visible when it was taken. It raises NotFound where no live lease of that name holds all requested
keys. Every page is bounded by entries and bytes, and shows the entries applied when it is read
(S5).
"""

from ..client.protocol.types import Entry
from .floors import View
from .page import Page
from .range_layers import Held
from .removal import Removal
from .segment_format import SegmentInfo
from .segments import SegmentStore
from .turn_limits import LOOKUP_COST, NotPrepared, TurnOver


class Reads(Held):
    """The reads of one key on a replica."""

    def __init__(
        self,
        store: SegmentStore,
        manifest: list[SegmentInfo],
        removal: Removal,
        *,
        start: bytes,
        end: bytes | None,
        first_seq: int,
        last_timestamp_ms: int,
    ) -> None:
        super().__init__(store, manifest, start=start, end=end, first_seq=first_seq)
        self.removal = removal
        self.last_timestamp_ms = last_timestamp_ms
        """Log time: the timestamp of the last applied entry."""

    def view(self, start: bytes, end: bytes | None, as_of: str | None) -> View:
        """Return the view of a reader on the range's keys in [start, end). Raises NotFound."""
        if as_of is None:
            return self.removal.view
        return self.removal.leased(as_of, self.last_timestamp_ms, *self.within(start, end))

    def scan(
        self,
        key: bytes,
        start: int = 1,
        end: int | None = None,
        *,
        limit: int,
        bytes_max: int,
        begun: bool = False,
        reverse: bool = False,
        as_of: str | None = None,
    ) -> Page:
        """Return a page of the key's entries with seq in [start, end).

        `next` is the start of the following page, or its end when reading in reverse. `limit`,
        `bytes_max` and `begun` as in `Room`.
        """
        view = self._view_of(key, as_of)
        low, high = self.first_visible(key, view, start), view.ending(end)
        page = Page(limit=limit, bytes_max=bytes_max, begun=begun)
        entries = self.backwards(key, low, high) if reverse else self.forwards(key, low, high)
        try:
            for entry in entries:
                if not page.add(entry):
                    page.more = True
                    break
        except (TurnOver, NotPrepared):
            if not page:
                raise
            page.more = True
        if page.seqs:
            page.next = page.seqs[-1] + (0 if reverse else 1)
        else:
            page.next = end if reverse and page.more and end is not None else start
        return page

    def latest(self, key: bytes, *, as_of: str | None = None) -> Entry | None:
        """Return the key's last visible entry, or None."""
        view = self._view_of(key, as_of)
        for entry in self.backwards(key, self.first_visible(key, view), view.ending(None)):
            return entry
        return None

    def last_seq(self, key: bytes) -> int:
        """Return the key's last seq, or 0 without an entry: `expect` is checked against it."""
        seq = self.last_held(key)
        view = self.removal.view
        if not seq or not view.hides:
            return seq
        if seq < view.floor(key):
            return 0
        before, cutoff_ms = view.marks.compactions.at(key)
        if seq >= before or not cutoff_ms:
            return seq
        return seq if self.first_visible(key, view, seq) == seq else 0

    def shows_below(self, key: bytes, before: int) -> bool:
        """Whether the key has an entry below the seq `before`."""
        self.store.spend(LOOKUP_COST)
        low = self.first_visible(key, self.removal.view)
        return low < before and any(
            home.count(key, low, before) for home in self.homes_of(key, low, before)
        )

    def count(
        self, key: bytes, start: int = 1, end: int | None = None, *, as_of: str | None = None
    ) -> int:
        """Return how many entries of the key lie in [start, end)."""
        view = self._view_of(key, as_of)
        low, high = self.first_visible(key, view, start), view.ending(end)
        return sum(home.count(key, low, high) for home in self.homes_of(key, low, high))

    def tail(self, key: bytes, n: int, *, as_of: str | None = None) -> int:
        """Return the seq of the key's n-th entry from its end, or of its first if it has fewer.

        n = 0 gives the seq after the last entry, which is 1 for a key without entries. Passed
        entries are counted without being read.
        """
        view = self._view_of(key, as_of)
        low, high = self.first_visible(key, view), view.ending(None)
        if not n:
            last = next(self.backwards(key, low, high), None)
            return 1 if last is None else last.seq + 1
        for home in self.homes_back(key, low, high):
            count = home.count(key, low, high)
            if count >= n:
                return home.seq_from_end(key, n, high)
            n -= count
        first = next(self.forwards(key, low, high), None)
        return 1 if first is None else first.seq

    def first_visible(self, key: bytes, view: View, start: int = 1) -> int:
        """Return where the key's visible entries at or above `start` begin.

        All of the key's entries from there to the end of the view are visible, and no entry below.
        """
        low = max(start, view.floor(key))
        if not view.marks.compacts:
            return low
        before, cutoff_ms = view.marks.compactions.at(key)
        if before > low:
            for entry in self.backwards(key, low, before):
                gone = entry.value is None and entry.timestamp_ms < cutoff_ms
                low = entry.seq + gone
                break
        before = view.marks.snapshots.at(key)
        if before > low:
            for entry in self.backwards(key, low, before):
                if entry.snapshot:
                    low = entry.seq
                    break
        return low

    def _view_of(self, key: bytes, as_of: str | None) -> View:
        return self.removal.view if as_of is None else self.view(key, key + b"\0", as_of)
