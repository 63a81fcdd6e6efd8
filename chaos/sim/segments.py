"""Segments in memory, with the reads of real ones.

LMDB writes through a memory map and cannot be on a simulated disk. A segment is therefore built
here from the input of the builder process, kept as lists, and immutable.
"""

import hashlib
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from operator import attrgetter
from pathlib import Path
from typing import cast

from ...client.protocol.errors import CorruptData
from ...client.protocol.records import decode_batch
from ...client.protocol.types import Entry
from ...statemachine.segment_format import SegmentInfo
from ...statemachine.segment_reader import Segment
from ...statemachine.segments import SegmentStore
from ...statemachine.sources import Source
from ...statemachine.spans import has
from ...statemachine.visibility import Rules, kept_of_key


class MemorySegment:
    """Entries in ascending order of seq, by seq and by key."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._entries = entries
        self._by_key: dict[bytes, list[Entry]] = {}
        for entry in entries:
            self._by_key.setdefault(entry.key, []).append(entry)
        self._keys = sorted(self._by_key)
        self._seqs = [entry.seq for entry in entries]

    def all_entries(self) -> Sequence[Entry]:
        """Return all entries, ascending in seq."""
        return self._entries

    def entries(self, key: bytes, start: int, end: int | None) -> Iterator[Entry]:
        """Yield the key's entries with seq in [start, end), ascending."""
        for entry in self._by_key.get(key, ()):
            if entry.seq >= start and (end is None or entry.seq < end):
                yield entry

    def entries_reversed(self, key: bytes, start: int, end: int | None) -> Iterator[Entry]:
        """Yield the key's entries with seq in [start, end), descending."""
        yield from reversed(list(self.entries(key, start, end)))

    def count(self, key: bytes, start: int, end: int | None) -> int:
        """Return how many entries of the key lie in [start, end)."""
        return sum(1 for _ in self.entries(key, start, end))

    def last_seq(self, key: bytes) -> int:
        """Return the key's last seq here, 0 when it has none."""
        entries = self._by_key.get(key)
        return entries[-1].seq if entries else 0

    def keys_after(self, prefix: bytes, after: bytes | None) -> Iterator[bytes]:
        """Yield the keys with the prefix and above `after`, in order."""
        for key in self._keys[bisect_left(self._keys, prefix) :]:
            if key.startswith(prefix) and (after is None or key > after):
                yield key

    def seqs_within(
        self, start_key: bytes, end_key: bytes | None, start: int, limit: int
    ) -> tuple[Sequence[int], int | None]:
        """Return at most `limit` seqs, from `start` on, of entries in [start_key, end_key).

        The second value says where to go on; None when there are no more.
        """
        found = [
            entry.seq
            for entry in self._entries[bisect_left(self._seqs, start) :]
            if entry.key >= start_key and (end_key is None or entry.key < end_key)
        ]
        return found[:limit], found[limit] if len(found) > limit else None

    def first_seq_from(self, timestamp_ms: int) -> int:
        """Return the first seq whose timestamp is not below, or the end without such a seq."""
        at = bisect_left(self._entries, timestamp_ms, key=attrgetter("timestamp_ms"))
        return self._seqs[at] if at < len(self._seqs) else self._seqs[-1] + 1

    def warm(self, seqs: Sequence[int]) -> int:
        """Do nothing: no block has to be decoded."""
        return len(seqs)

    def entry_at_seq(self, seq: int) -> Entry:
        """Return the entry of a seq that is held."""
        return self._entries[bisect_left(self._seqs, seq)]


class Files(dict[str, MemorySegment]):
    """A machine's segment files by content id. Files put here are durable and sound."""

    def __init__(self) -> None:
        super().__init__()
        self.rotten: set[str] = set()
        """Files whose bytes have changed on the disk."""
        self.suspended: set[str] = set()
        """Files of which the process serves nothing."""

    def __setitem__(self, content_id: str, segment: MemorySegment) -> None:
        super().__setitem__(content_id, segment)
        self.rotten.discard(content_id)

    def __delitem__(self, content_id: str) -> None:
        super().__delitem__(content_id)
        self.rotten.discard(content_id)

    def is_sound(self, content_id: str) -> bool:
        """Whether the file is here with the content of its name."""
        return content_id in self and content_id not in self.rotten

    def sound(self, content_id: str) -> MemorySegment:
        """Return the file. Raises CorruptData when it is missing, damaged, or in doubt."""
        if content_id in self.suspended:
            raise CorruptData(f"segment {content_id} is in doubt", segment=content_id)
        if not self.is_sound(content_id):
            what = "damaged" if content_id in self else "missing"
            raise CorruptData(f"segment {content_id} is {what}", segment=content_id)
        return self[content_id]


class MemorySegments(SegmentStore):
    """The segment store of one machine."""

    def __init__(self, files: Files) -> None:
        super().__init__(Path())
        self.files = files

    def has(self, content_id: str) -> bool:
        return content_id in self.files

    def segment(self, content_id: str) -> Segment:
        return cast(Segment, self.files.sound(content_id))


def merge(
    files: Files, inputs: Sequence[SegmentInfo], rules: Rules, *, oldest: bool
) -> SegmentInfo | None:
    """Merge neighbouring files with the same clip, as the merge process does.

    The new file has the entries that may still be visible; None when there are none. `oldest`: no
    older file with such keys is named beside them. Raises CorruptData for a damaged file.
    """
    entries: list[Entry] = []
    by_key: dict[bytes, list[Entry]] = {}
    for info in inputs:
        for entry in files.sound(info.content_id).all_entries():
            if not has(info.clip, entry.key):
                continue
            by_key.setdefault(entry.key, []).append(entry)
    for key, held in by_key.items():
        kept = kept_of_key(
            rules,
            key,
            [entry.seq for entry in held],
            [entry.timestamp_ms for entry in held],
            [entry.value is None for entry in held],
            [entry.snapshot for entry in held],
            oldest=oldest,
        )
        entries += map(held.__getitem__, kept)
    if not entries:
        return None
    entries.sort(key=attrgetter("seq"))
    digest = hashlib.sha256(b"merged")
    for entry in entries:
        digest.update(b"%d %d " % (entry.seq, entry.timestamp_ms) + entry.key)
        digest.update(entry.value or b"")
    content_id = digest.hexdigest()
    files[content_id] = MemorySegment(entries)
    return SegmentInfo(
        content_id=content_id,
        size=sum(info.size for info in inputs) * len(entries) // sum(i.entries for i in inputs),
        entries=len(entries),
        first_seq=inputs[0].first_seq,
        end_seq=inputs[-1].end_seq,
        min_key=min(entry.key for entry in entries),
        max_key=max(entry.key for entry in entries),
        min_timestamp_ms=entries[0].timestamp_ms,
        max_timestamp_ms=entries[-1].timestamp_ms,
    )


def build(files: Files, first_seq: int, sources: Sequence[Source]) -> SegmentInfo:
    """Build a file of all records of the sources, in the order of seq, as the builder does."""
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
