"""Segments in memory, with the reads of real ones.

LMDB writes through a memory map and cannot sit on a simulated disk (raft.md section 7), so a
segment is built here from what the builder process would get, kept as lists, and immutable.
"""

import hashlib
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

from ...client.errors import CorruptData
from ...client.records import decode_batch
from ...client.types import Entry
from ...statemachine.segment_reader import Segment
from ...statemachine.segment_writer import SegmentInfo, Source
from ...statemachine.segments import SegmentStore


class MemorySegment:
    """Entries of consecutive seqs, by seq and by key."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._entries = entries
        self._by_key: dict[bytes, list[Entry]] = {}
        for entry in entries:
            self._by_key.setdefault(entry.key, []).append(entry)
        self._keys = sorted(self._by_key)

    def entries(self, key: bytes, start: int, end: int | None) -> Iterator[Entry]:
        """The key's entries with seq in [start, end), ascending."""
        for entry in self._by_key.get(key, ()):
            if entry.seq >= start and (end is None or entry.seq < end):
                yield entry

    def entries_reversed(self, key: bytes, start: int, end: int | None) -> Iterator[Entry]:
        """The same, descending."""
        yield from reversed(list(self.entries(key, start, end)))

    def count(self, key: bytes, start: int, end: int | None) -> int:
        """How many entries of the key lie in [start, end)."""
        return sum(1 for _ in self.entries(key, start, end))

    def last_seq(self, key: bytes) -> int:
        """The key's last seq here, 0 when it has none."""
        entries = self._by_key.get(key)
        return entries[-1].seq if entries else 0

    def keys_after(self, prefix: bytes, after: bytes | None) -> Iterator[bytes]:
        """Keys with the prefix and above `after`, in order."""
        for key in self._keys[bisect_left(self._keys, prefix) :]:
            if key.startswith(prefix) and (after is None or key > after):
                yield key

    def warm(self, seqs: range) -> int:
        """Nothing has to be decoded."""
        return len(seqs)

    def entry_at_seq(self, seq: int) -> Entry:
        """The entry of a seq that is held."""
        return self._entries[seq - self._entries[0].seq]


Files = dict[str, MemorySegment]
"""A machine's segment files by content id. What is put here is durable."""


class MemorySegments(SegmentStore):
    """The segment store of one machine."""

    def __init__(self, files: Files) -> None:
        super().__init__(Path())
        self.files = files

    def has(self, content_id: str) -> bool:
        return content_id in self.files

    def segment(self, content_id: str) -> Segment:
        found = self.files.get(content_id)
        if found is None:
            raise CorruptData(f"segment {content_id} is missing")
        return cast(Segment, found)


def build(files: Files, first_seq: int, sources: Sequence[Source]) -> SegmentInfo:
    """What the builder does: all records of the sources, in the order of seq, become a file."""
    entries: list[Entry] = []
    digest = hashlib.sha256(b"%d" % first_seq)
    size = 0
    for source in sources:
        batch = decode_batch(source.data)
        values, headers = batch.values(), batch.headers()
        for at in range(batch.count) if source.selected is None else source.selected:
            seq = first_seq + len(entries)
            entries.append(
                Entry(
                    batch.keys[at],
                    seq,
                    source.timestamp_ms,
                    None if headers is None else headers[at],
                    values[at],
                    at in batch.snapshots,
                )
            )
            digest.update(b"%d %d " % (seq, source.timestamp_ms) + batch.keys[at])
            digest.update(values[at] or b"")
        size += len(source.data)
    content_id = digest.hexdigest()
    files[content_id] = MemorySegment(entries)
    return SegmentInfo(
        content_id=content_id,
        size=size,
        entries=len(entries),
        first_seq=first_seq,
        end_seq=first_seq + len(entries),
        min_key=min(entry.key for entry in entries),
        max_key=max(entry.key for entry in entries),
        min_timestamp_ms=entries[0].timestamp_ms,
        max_timestamp_ms=entries[-1].timestamp_ms,
    )
