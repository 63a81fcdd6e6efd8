"""Leases: they keep entries readable for a reader for a while, whatever is removed meanwhile.

A lease is a replicated row (x14). Removal commands are recorded at once and show in every other
read. Entries that they hide from a lease's view stay in the files until the lease ends, by log
time, on every replica at the same entry of the log.

A merged range may have several rows of one id: a reader's lease on each parent.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from .floors import Marks, View
from .spans import Span, common, has, rows_in


@dataclass(slots=True)
class Lease:
    """A lease. Its view is that of the moment in which it was taken, up to `through_seq`."""

    lease_id: str
    start: bytes
    end: bytes | None
    through_seq: int
    expires_ms: int
    marks: Marks
    floors: dict[bytes, int] = field(default_factory=dict)
    """The former floors of keys whose floor has changed since."""

    @property
    def span(self) -> Span:
        """The keys that the lease holds."""
        return self.start, self.end

    def lives(self, log_ms: int) -> bool:
        """Whether the lease holds at this log time."""
        return log_ms < self.expires_ms

    def covers(self, key: bytes) -> bool:
        """Whether the key is in the lease's span."""
        return has(self.span, key)

    def clipped(self, start: bytes, end: bytes | None) -> "Lease | None":
        """Return the lease's part of the keys in [start, end), or None if that has no key."""
        span = common(self.span, (start, end))
        if span is None:
            return None
        marks, floors = self.marks.clipped(start, end), rows_in(self.floors, span)
        return replace(self, start=span[0], end=span[1], marks=marks, floors=floors)

    def united(self, right: "Lease") -> "Lease":
        """Return the lease joined with its right part, which a split had cut off.

        The later end counts for both: a lease may hold more than was promised.
        """
        return replace(
            self, end=right.end, expires_ms=max(self.expires_ms, right.expires_ms),
            marks=Marks.united((each.span, each.marks) for each in (self, right)),
            floors={**self.floors, **right.floors},
        )  # fmt: skip

    def view(self, floors: dict[bytes, int]) -> View:
        """Return the lease's view, given the present floors."""
        return View(self.marks, floors, self.floors, self.start, self.end, self.through_seq)

    def to_wire(self) -> list[Any]:
        """Return the lease as tables store it."""
        return [self.lease_id, self.start, self.end, self.through_seq, self.expires_ms,
                self.marks.to_wire(), dict(self.floors)]  # fmt: skip

    @classmethod
    def from_wire(cls, body: Sequence[Any]) -> "Lease":
        """Undo `to_wire`."""
        lease_id, start, end, through_seq, expires_ms, marks, floors = body
        return cls(lease_id, start, end, through_seq, expires_ms, Marks.from_wire(marks), floors)
