"""Pages: the answer of a read, as columns, and where the next read goes on."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Any

from ..client.protocol.chunks import Chunk, Chunks, numbers
from ..client.protocol.frame import Spliced
from ..client.protocol.types import Entry, Headers
from .memtable import Plain
from .room import ENTRY_BYTES, Room, entry_bytes


@dataclass(slots=True)
class Page(Room):
    """Entries as columns of equal length, within the limits of `Room`.

    `next` is the position after the last entry. `more` says whether the read stopped before its
    end: the page is full, or its turn was over.
    """

    keys: list[bytes] = field(default_factory=list)
    seqs: list[int] = field(default_factory=list)
    timestamps: list[int] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    headers: dict[int, Headers] = field(default_factory=dict)
    """Headers by position in the page: most records have no headers."""
    snapshots: list[int] = field(default_factory=list)
    """Positions of records marked snapshot=True."""
    chunks: list[Chunk] = field(default_factory=list)
    """Entries before those in the columns, as columns of bytes."""
    next: int = 1
    more: bool = False
    end_key: bytes | None = None
    """The end of the keys of this page, in a read in the order of seq. The caller reads the other
    keys separately, from where this read began. None: the page covers all requested keys."""

    def add(self, entry: Entry) -> bool:
        """Append one entry; return False where the page has no room for the entry."""
        if not self.takes(entry_bytes(entry)):
            return False
        self.put(entry)
        return True

    def take(self, chunk: Chunk, size: int) -> None:
        """Append the entries of a chunk, which have room, to a page without other entries."""
        self.takes(size, chunk.rows)
        self.chunks.append(chunk)

    def put(self, entry: Entry) -> None:
        """Append one entry that was already counted."""
        position = len(self.seqs)
        self.keys.append(entry.key)
        self.seqs.append(entry.seq)
        self.timestamps.append(entry.timestamp_ms)
        self.values.append(entry.value)
        if entry.headers:
            self.headers[position] = entry.headers
        if entry.snapshot:
            self.snapshots.append(position)

    def put_all(self, entries: Sequence[Entry]) -> None:
        """Append entries that were already counted."""
        if not entries:
            return
        begin = len(self.seqs)
        keys, seqs, timestamps, headers, values, snapshots = zip(*entries, strict=True)
        self.keys += keys
        self.seqs += seqs
        self.timestamps += timestamps
        self.values += values
        if any(headers):
            self.headers.update((at, each) for at, each in enumerate(headers, begin) if each)
        if any(snapshots):
            self.snapshots += compress(range(begin, len(self.seqs)), snapshots)

    def put_plain(self, entries: Plain) -> bool:
        """Append all of these entries; return False where the page has no room for all of them."""
        keys, seqs, timestamps, values = entries
        size = sum(map(len, keys)) + sum(map(len, filter(None, values))) + ENTRY_BYTES * len(seqs)
        if size > self.bytes_left or not self.takes(size, len(seqs)):
            return False
        self.keys += keys
        self.seqs += seqs
        self.timestamps += timestamps
        self.values += values
        return True

    def extend(self, following: "Page") -> None:
        """Append a part, which was read next within the room left here.

        The page ends where its first part ends that has an `end_key`.
        """
        self.end_key = self.end_key or following.end_key
        if following.chunks:
            self.chunks = [*self.all_chunks(), *following.chunks]
            self.keys, self.seqs, self.timestamps, self.values = [], [], [], []
            self.headers, self.snapshots = {}, []
        begin = len(self.seqs)
        self.keys += following.keys
        self.seqs += following.seqs
        self.timestamps += following.timestamps
        self.values += following.values
        self.headers.update((begin + at, found) for at, found in following.headers.items())
        self.snapshots += [begin + at for at in following.snapshots]
        self.joined(following)
        self.next, self.more = following.next, following.more

    def ends(self, *, more: bool) -> None:
        """Note that the page takes no more entries, and whether there are more."""
        self.more = more

    def of_positions(self, kept: Sequence[int]) -> "Page":
        """Return the page of the entries at these positions, which are ascending; the read ends
        where this page ends."""
        if len(kept) == len(self.seqs):
            return self
        found = Page(next=self.next, more=self.more, end_key=self.end_key)
        found.keys = [self.keys[at] for at in kept]
        found.seqs = [self.seqs[at] for at in kept]
        found.timestamps = [self.timestamps[at] for at in kept]
        found.values = [self.values[at] for at in kept]
        marked = set(self.snapshots)
        for place, at in enumerate(kept):
            if at in self.headers:
                found.headers[place] = self.headers[at]
            if at in marked:
                found.snapshots.append(place)
        found.count, found.begun = len(kept), self.begun
        return found

    def entries(self) -> list[Entry]:
        """The page as entries."""
        snapshots = frozenset(self.snapshots)
        return [
            Entry(key, seq, timestamp, self.headers.get(i), value, i in snapshots)
            for i, (key, seq, timestamp, value) in enumerate(
                zip(self.keys, self.seqs, self.timestamps, self.values, strict=True)
            )
        ]

    def to_wire(self) -> dict[str, Any]:
        """The page as it travels; one key is sent once."""
        keys: bytes | Sequence[bytes] = self.keys
        if self.keys and self.keys[0] == self.keys[-1] and len(set(self.keys)) == 1:
            keys = self.keys[0]
        body = {
            "keys": keys,
            "seqs": self.seqs,
            "timestamps": self.timestamps,
            "values": self.values,
            "headers": self.headers or None,
            "snapshots": self.snapshots or None,
            "next": self.next,
            "more": self.more,
        }
        if self.end_key is not None:
            body["end_key"] = self.end_key
        return body

    def to_chunks(self) -> Spliced:
        """The page as it travels with its entries as columns of bytes, which no node unpacks."""
        empty = Page(next=self.next, more=self.more, end_key=self.end_key)
        return Spliced(empty.to_wire(), chunks=Chunks(self.all_chunks()))

    @property
    def reached(self) -> int:
        """The seq behind the last entry; `next` without entries."""
        if self.seqs:
            return self.seqs[-1] + 1
        if not self.chunks:
            return self.next
        last = self.chunks[-1]
        return last.first_seq + numbers(last.seq_code, last.seqs)[-1] + 1

    def all_chunks(self) -> list[Chunk]:
        """Return all entries as columns of bytes."""
        columns = self.keys, self.seqs, self.timestamps, self.values, self.headers, self.snapshots
        return [*self.chunks, Chunk.of(*columns)] if self.seqs else self.chunks
