"""Portions: the answer of a read of everything, in the form of blocks, one object a block."""

import sys
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from ..client.protocol.chunks import Chunk, Chunks, matching
from ..client.protocol.patterns import Patterns
from ..client.protocol.types import Entry
from .page import Page
from .room import CHUNK_BYTES, Room, chunk_bytes, entries_bytes, entry_bytes


class Portion(Room):
    """Entries in the order in which they were added, within the limits of `Room`.

    A portion with an `end_key` has only the keys below it, as in `Page`.
    """

    def __init__(
        self,
        end_key: bytes | None = None,
        *,
        limit: int = sys.maxsize,
        bytes_max: int = sys.maxsize,
        begun: bool = False,
    ) -> None:
        super().__init__(limit=limit, bytes_max=bytes_max, begun=begun)
        self.end_key = end_key
        self._chunks: list[Chunk] = []
        self._rows = Page()
        """The entries outside blocks that were added since the last chunk."""

    def add(self, entry: Entry) -> bool:
        """Append one entry; return False where the portion has no room for the entry."""
        if not self.takes(entry_bytes(entry) + (0 if self._rows.seqs else CHUNK_BYTES)):
            return False
        self._rows.put(entry)
        return True

    def add_all(self, entries: Sequence[Entry]) -> int:
        """Append entries, the first ones that have room; return how many."""
        some = entries[: self.entries_left]
        head = 0 if self._rows.seqs else CHUNK_BYTES
        ends = list(accumulate(entries_bytes(some), initial=head))
        fitting = max(0, bisect_right(ends, self.bytes_left) - 1)
        if not fitting and some and not self.begun:
            fitting = 1
        if fitting:
            self.takes(ends[fitting], fitting)
            self._rows.put_all(some[:fitting])
        self.refused = self.refused or fitting < len(some)
        return fitting

    def take(self, chunk: Chunk) -> bool:
        """Append entries of a block; return False where there is no room for all of them."""
        if not self.takes(chunk_bytes(chunk), chunk.rows):
            return False
        self._end_rows()
        self._chunks.append(chunk)
        return True

    def extend(self, following: "Portion") -> None:
        """Append a part, which was read next within the room left here; see `Page.extend`."""
        self.end_key = self.end_key or following.end_key
        self._end_rows()
        self._chunks += following.chunks()
        self.joined(following)

    def matching(self, patterns: Patterns, *, begun: bool) -> "Portion":
        """Return the portion of the entries whose keys match. `begun`: whether the page of this
        portion had an entry before."""
        found = Portion(self.end_key, begun=begun)
        for chunk in matching(self.chunks(), patterns):
            found.take(chunk)
        found.refused = self.refused
        return found

    def chunks(self) -> list[Chunk]:
        """Return all entries as chunks."""
        self._end_rows()
        return self._chunks

    def to_wire(self) -> dict[str, Any]:
        """The portion as it travels."""
        body: dict[str, Any] = {"chunks": Chunks(self.chunks())}
        if self.end_key is not None:
            body["end_key"] = self.end_key
        return body

    def _end_rows(self) -> None:
        rows = self._rows
        if rows.seqs:
            self._chunks.append(
                Chunk.of(
                    rows.keys, rows.seqs, rows.timestamps, rows.values, rows.headers, rows.snapshots
                )
            )
            self._rows = Page()
