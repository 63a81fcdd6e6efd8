"""How far a range's entries are removed: floors of keys, and marks of spans of keys.

A floor or mark never falls, and the seqs that it compares with are never renumbered (promise S6).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from .span_map import Steps
from .spans import Span, has


class Compaction(NamedTuple):
    """Of each key the last entry below `before` stays; a tombstone among these goes when its
    timestamp is below `cutoff_ms`."""

    before: int = 0
    cutoff_ms: int = 0

    def joined(self, other: "Compaction") -> "Compaction":
        """What is removed by either: neither bound falls."""
        return Compaction(max(self.before, other.before), max(self.cutoff_ms, other.cutoff_ms))


_NONE: Final = Compaction()


@dataclass(frozen=True, slots=True)
class Marks:
    """What is removed of spans of keys. Never changed, only replaced.

    Kept per lineage span: the seqs of ranges that were merged have nothing to do with each other
    (x12).
    """

    trims: Steps[int] = field(default_factory=lambda: Steps([b""], [0]))
    """Entries below go."""
    compactions: Steps[Compaction] = field(default_factory=lambda: Steps([b""], [_NONE]))
    snapshots: Steps[int] = field(default_factory=lambda: Steps([b""], [0]))
    """What a key has before its newest logical snapshot below goes."""

    @property
    def compacts(self) -> bool:
        """Whether any key has more than a trim."""
        return self.compactions.values != [_NONE] or self.snapshots.values != [0]

    @property
    def spans(self) -> int:
        """The number of spans of the part that has the most of them."""
        return max(map(len, (self.trims.starts, self.compactions.starts, self.snapshots.starts)))

    def clipped(self, start: bytes, end: bytes | None) -> "Marks":
        """Those of the keys in [start, end)."""
        return Marks(
            self.trims.clipped(start, end, 0),
            self.compactions.clipped(start, end, _NONE),
            self.snapshots.clipped(start, end, 0),
        )

    @classmethod
    def united(cls, parts: "Iterable[tuple[Span, Marks]]") -> "Marks":
        """Of spans in order, none of which meets another, each with its own marks."""
        parts = list(parts)
        return cls(
            Steps.of((row for span, marks in parts for row in marks.trims.within(*span)), 0),
            Steps.of(
                (row for span, marks in parts for row in marks.compactions.within(*span)), _NONE
            ),
            Steps.of((row for span, marks in parts for row in marks.snapshots.within(*span)), 0),
        )

    def to_wire(self) -> list[Any]:
        """As tables have it."""
        return [self.trims.to_wire(), self.compactions.to_wire(), self.snapshots.to_wire()]

    @classmethod
    def from_wire(cls, body: Sequence[Any]) -> "Marks":
        """Undo `to_wire`."""
        trims, compactions, snapshots = body
        values = [Compaction(*value) for value in compactions[1]]
        return cls(Steps(*trims), Steps(compactions[0], values), Steps(*snapshots))


@dataclass(slots=True)
class View:
    """What some reader may see: the entries of a span of keys up to a seq that were not removed
    when its view began.

    Of each key that is a run of entries to the end of the view. It follows from these rows and
    from the key's own entries, never from which files a replica has merged (x13):
    what decides where the run begins is never dropped while there is something below it.
    """

    marks: Marks
    floors: Mapping[bytes, int]
    """Of keys that were trimmed or deleted: entries below go. As they are now."""
    before: Mapping[bytes, int] = field(default_factory=dict)
    """Floors as they were when the view began, where they have changed since."""
    start: bytes = b""
    end: bytes | None = None
    through: int | None = None

    def covers(self, start: bytes, end: bytes | None) -> bool:
        """Whether it has all keys in [start, end)."""
        return start >= self.start and (
            self.end is None or (end is not None and end <= self.end)
        )  # fmt: skip

    def has(self, key: bytes) -> bool:
        """Whether it has the key."""
        return has((self.start, self.end), key)

    @property
    def hides(self) -> bool:
        """Whether anything may be removed from it."""
        marks = self.marks
        return bool(self.floors) or marks.compacts or marks.trims.values != [0]

    def floor(self, key: bytes) -> int:
        """No entry below is seen."""
        own = self.before.get(key) if self.before else None
        if own is None:
            own = self.floors.get(key, 0)
        return max(own, self.marks.trims.at(key))

    def ending(self, end: int | None) -> int | None:
        """The end of a read that would go to `end`."""
        if self.through is None:
            return end
        return self.through + 1 if end is None else min(end, self.through + 1)
