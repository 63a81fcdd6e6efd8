"""What of a segment somebody may still see: the rules by which merges and unlinks drop entries.

The rules are those of a durable base, and apply to the files that its manifest names. A restart
begins there: it replays the commands after it, whose conditions need what was visible then.

A key's visible entries are a run to its end. Where the run begins may be decided by an entry: the
last one below a compaction mark, or the newest logical snapshot below another. Files merged apart
from those that hold older entries of the key must keep that entry even where nobody sees it, an
expired tombstone say: else the older ones would show again (x13).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from .floors import Marks, View
from .leases import Lease
from .spans import Span


class _Covered(Protocol):
    """What is asked of a segment's info."""

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
    """What each reader may see: those without a lease, then the leases."""
    wire: Sequence[Any]
    """For a process of its own: see `from_wire`."""

    @classmethod
    def of(cls, tables: Mapping[str, Any], start: bytes = b"", end: bytes | None = None) -> "Rules":
        """The rules in the tables of a base of the keys in [start, end)."""
        wire = [tables.get("removal"), tables.get("last_timestamp_ms", 0), start, end]
        return cls.from_wire(wire)

    @classmethod
    def from_wire(cls, wire: Sequence[Any]) -> "Rules":
        """The rules of `wire`, which msgpack packs. They share its floors, of which there may be
        100,000: copying them held the loop for 40 ms at each new base."""
        body, log_ms, start, end = wire
        if body is None:
            return cls((View(Marks(), {}, start=start, end=end),), wire)
        floors = body["floors"]
        leases = (lease for lease in map(Lease.from_wire, body["leases"]) if lease.lives(log_ms))
        view = View(Marks.from_wire(body["marks"]), floors, start=start, end=end)
        return cls((view, *(lease.view(floors) for lease in leases)), wire)

    @property
    def hides(self) -> bool:
        """Whether anything may be hidden from anybody."""
        return self.views[0].hides

    def compacts(self, info: _Covered) -> bool:
        """Whether all of a segment lies below marks, so that what is superseded in it may go."""
        view = self.views[0]
        keys = _keys_of(view, info)
        if keys is None:
            return False
        return (
            min(mark.before for mark in view.marks.compactions.over(*keys)) >= info.end_seq
            or min(view.marks.snapshots.over(*keys)) >= info.end_seq
        )

    def unneeded(self, info: _Covered) -> bool:
        """Whether nothing of a segment is visible to anybody, or in the range's span (x8) and in
        the row's clip, so that the row may go."""
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
    """The positions, ascending, of those of the key's entries that a merge must keep.

    The columns are the key's entries of neighbouring segments, ascending by seq; `tombstones` says
    which have no value. `oldest`: no older segment is named beside these, so that an expired
    tombstone may go with what it hid.
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
    """The keys of a segment that a view may have, as `Steps.over` takes them; None: no key."""
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
    # Beyond what the lease sees; but an entry here may decide where its view of a key begins.
    decides = max(
        *(mark.before for mark in view.marks.compactions.over(*keys)),
        *view.marks.snapshots.over(*keys),
    )
    return decides > info.first_seq
