"""The bounds of removal in a range: floors of keys, and marks of spans of keys.

A floor or mark never falls, and the seqs that it compares with are never renumbered (promise S6).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from .span_map import Steps
from .spans import Span, has


class Compaction(NamedTuple):
    """A compaction mark: each key keeps its last entry below `before`.

    If that entry is a tombstone, it goes once its timestamp is below `cutoff_ms`.
    """

    before: int = 0
    cutoff_ms: int = 0

    def joined(self, other: "Compaction") -> "Compaction":
        """Return the mark that removes what either removes: no bound falls."""
        return Compaction(max(self.before, other.before), max(self.cutoff_ms, other.cutoff_ms))


_NONE: Final = Compaction()


@dataclass(frozen=True, slots=True)
class Marks:
    """The removal marks of spans of keys. Never changed, only replaced.

    Kept per lineage span: the seqs of merged ranges are unrelated (x12).
    """

    trims: Steps[int] = field(default_factory=lambda: Steps([b""], [0]))
    """Entries below these seqs go."""
    compactions: Steps[Compaction] = field(default_factory=lambda: Steps([b""], [_NONE]))
    snapshots: Steps[int] = field(default_factory=lambda: Steps([b""], [0]))
    """A key's entries before its newest logical snapshot below these seqs go."""

    @property
    def compacts(self) -> bool:
        """Whether any key has a mark other than a trim."""
        return self.compactions.values != [_NONE] or self.snapshots.values != [0]

    @property
    def spans(self) -> int:
        """The number of spans in the part with the most spans."""
        return max(map(len, (self.trims.starts, self.compactions.starts, self.snapshots.starts)))

    def clipped(self, start: bytes, end: bytes | None) -> "Marks":
        """Return the marks of the keys in [start, end)."""
        return Marks(
            self.trims.clipped(start, end, 0),
            self.compactions.clipped(start, end, _NONE),
            self.snapshots.clipped(start, end, 0),
        )

    @classmethod
    def united(cls, parts: "Iterable[tuple[Span, Marks]]") -> "Marks":
        """Return the marks of disjoint spans in order, each with its own marks."""
        parts = list(parts)
        return cls(
            Steps.of((row for span, marks in parts for row in marks.trims.within(*span)), 0),
            Steps.of(
                (row for span, marks in parts for row in marks.compactions.within(*span)), _NONE
            ),
            Steps.of((row for span, marks in parts for row in marks.snapshots.within(*span)), 0),
        )

    def to_wire(self) -> list[Any]:
        """Return the marks as tables store them."""
        return [self.trims.to_wire(), self.compactions.to_wire(), self.snapshots.to_wire()]

    @classmethod
    def from_wire(cls, body: Sequence[Any]) -> "Marks":
        """Undo `to_wire`."""
        trims, compactions, snapshots = body
        values = [Compaction(*value) for value in compactions[1]]
        return cls(Steps(*trims), Steps(compactions[0], values), Steps(*snapshots))


@dataclass(slots=True)
class View:
    """The view of a reader: entries of a span of keys up to a seq, not removed when the view began.

    The visible entries of a key are a run up to the end of the view. The run follows from these
    rows and from the key's own entries, never from the files that a replica has merged (x13): an
    entry that decides where the run begins is never dropped while there is an entry below it.
    """

    marks: Marks
    floors: Mapping[bytes, int]
    """The present floors of keys that were trimmed or deleted: entries below go."""
    before: Mapping[bytes, int] = field(default_factory=dict)
    """The floors at the begin of the view, for keys whose floor has changed since."""
    start: bytes = b""
    end: bytes | None = None
    through: int | None = None

    def covers(self, start: bytes, end: bytes | None) -> bool:
        """Whether the view has all keys in [start, end)."""
        return start >= self.start and (
            self.end is None or (end is not None and end <= self.end)
        )  # fmt: skip

    def has(self, key: bytes) -> bool:
        """Whether the view has the key."""
        return has((self.start, self.end), key)

    @property
    def hides(self) -> bool:
        """Whether anything may be removed from the view."""
        marks = self.marks
        return bool(self.floors) or marks.compacts or marks.trims.values != [0]

    def floor(self, key: bytes) -> int:
        """Return the seq below which no entry of the key is visible."""
        own = self.before.get(key) if self.before else None
        if own is None:
            own = self.floors.get(key, 0)
        return max(own, self.marks.trims.at(key))

    def ending(self, end: int | None) -> int | None:
        """Return the end of a read up to `end`, limited by the view."""
        if self.through is None:
            return end
        return self.through + 1 if end is None else min(end, self.through + 1)
