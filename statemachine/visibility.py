"""Which entries of a segment a reader may still see: the rules for dropping entries.

Merges and unlinks follow the rules of a durable base, for the files that its manifest names. A
restart begins at that base: it replays the later commands, whose conditions need the entries that
were visible then.

A key's visible entries are a run up to its end. An entry may decide where the run begins: the last
entry below a compaction mark, or the newest logical snapshot below another mark. A merge of files
apart from the files with the key's older entries must keep that entry even if nobody sees it, for
example an expired tombstone. Otherwise the older entries would show again (x13).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from .floors import Marks, View
from .leases import Lease
from .spans import Span


class _Covered(Protocol):
    """The part of a segment's info that the rules need."""

    @property
    def first_seq(self) -> int: ...
    @property
    def end_seq(self) -> int: ...
    @property
    def min_key(self) -> bytes: ...
    @property
    def max_key(self) -> bytes: ...
    def within(self, span: Span) -> Span | None: ...


@dataclass(frozen=True, slots=True)
class Rules:
    """The removal state of one durable base; immutable."""

    views: tuple[View, ...]
    """The views of all readers: first without a lease, then the leases."""
    wire: Sequence[Any]
    """The form for another process: see `from_wire`."""

    @classmethod
    def of(cls, tables: Mapping[str, Any], start: bytes = b"", end: bytes | None = None) -> "Rules":
        """Return the rules in the tables of a base of the keys in [start, end)."""
        wire = [tables.get("removal"), tables.get("last_timestamp_ms", 0), start, end]
        return cls.from_wire(wire)

    @classmethod
    def from_wire(cls, wire: Sequence[Any]) -> "Rules":
        """Return the rules of `wire`, which msgpack packs.

        They share its floors, of which there may be 100,000: copying them held the loop for 40 ms
        at each new base.
        """
        body, log_ms, start, end = wire
        if body is None:
            return cls((View(Marks(), {}, start=start, end=end),), wire)
        floors = body["floors"]
        leases = (lease for lease in map(Lease.from_wire, body["leases"]) if lease.lives(log_ms))
        view = View(Marks.from_wire(body["marks"]), floors, start=start, end=end)
        return cls((view, *(lease.view(floors) for lease in leases)), wire)

    @property
    def hides(self) -> bool:
        """Whether anything may be hidden from any reader."""
        return self.views[0].hides

    def compacts(self, info: _Covered) -> bool:
        """Whether the whole segment lies below marks, so that its superseded entries may go."""
        view = self.views[0]
        keys = _keys_of(view, info)
        if keys is None:
            return False
        return (
            min(mark.before for mark in view.marks.compactions.over(*keys)) >= info.end_seq
            or min(view.marks.snapshots.over(*keys)) >= info.end_seq
        )

    def unneeded(self, info: _Covered) -> bool:
        """Whether no reader sees any entry of the row, so that the row may go.

        Only keys in the range's span (x8) and in the row's clip count.
        """
        return not any(_needs(view, info) for view in self.views)


def kept_of_key(
    rules: Rules,
    key: bytes,
    seqs: Sequence[int],
    timestamps: Sequence[int],
    tombstones: Sequence[bool],
    snapshots: Sequence[bool],
    *,
    oldest: bool = False,
) -> list[int]:
    """Return the positions, ascending, of the key's entries that a merge must keep.

    The columns are the key's entries of neighbouring segments, ascending by seq; `tombstones` says
    which entries have no value. `oldest`: the manifest names no older segment besides these, so
    that an expired tombstone may go together with the entries that it hid.
    """
    kept: set[int] = set()
    expired: set[int] = set()
    for view in rules.views:
        if not view.has(key):
            continue
        first = floor = bisect_left(seqs, view.floor(key))
        before, cutoff_ms = view.marks.compactions.at(key)
        pivot = bisect_left(seqs, before) - 1
        tombstone = decides = False
        if pivot >= floor:
            first, decides = pivot, True
            tombstone = tombstones[pivot] and timestamps[pivot] < cutoff_ms
        last = bisect_left(seqs, view.marks.snapshots.at(key)) - 1
        for at in range(last, first if decides else first - 1, -1):
            if snapshots[at]:
                first, decides, tombstone = at, True, False
                break
        end = len(seqs) if view.through is None else bisect_right(seqs, view.through)
        if decides or first < end:
            (expired if tombstone else kept).add(first)
        kept.update(range(first + 1, end))
    for at in sorted(expired - kept):
        if not oldest or any(below < at for below in kept):
            kept.add(at)
    return sorted(kept)


def _keys_of(view: View, info: _Covered) -> tuple[bytes, bytes, bytes | None] | None:
    """Return the keys of a segment that a view may have, as `Steps.over` takes them, or None."""
    span = info.within((view.start, view.end))
    return None if span is None else (span[0], info.max_key, span[1])


def _needs(view: View, info: _Covered) -> bool:
    keys = _keys_of(view, info)
    if keys is None:
        return False
    first, last, _ = keys
    floor = view.floor(first) if first == last else min(view.marks.trims.over(*keys))
    if floor >= info.end_seq:
        return False
    if view.through is None or info.first_seq <= view.through:
        return True
    # The segment is beyond the lease's end, but an entry here may decide where its view of a key
    # begins.
    decides = max(
        *(mark.before for mark in view.marks.compactions.over(*keys)),
        *view.marks.snapshots.over(*keys),
    )
    return decides > info.first_seq
