"""Which range serves a key: the descriptors a client has seen, never older ones (ranges.md 6).

A table may have holes, and may be wrong: every request names the range and generation that it
means, and a node that serves another refuses it with what it knows. What the table must not do is
go back, so a descriptor enters only when it is newer than all that it overlaps. Generations are
comparable across ranges: an output's is 1 + the largest of its inputs (executions 1.26).
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from .errors import RemoteProtocolError


@dataclass(frozen=True, slots=True)
class Range:
    """One generation of one range, as far as a client cares."""

    range_id: int
    generation: int
    log_id: int
    start: bytes
    end: bytes | None
    members: tuple[int, ...]
    leader: int | None = None
    """The node that was last seen to lead; a hint."""

    @classmethod
    def from_wire(cls, body: Mapping[Any, Any]) -> "Range":
        """Take a descriptor that `protocol.cluster.RANGE` has checked.

        Raises RemoteProtocolError for a descriptor without members or whose end is below its start.
        """
        start, end, members = body["start"], body["end"], body["members"]
        if not members or (end is not None and end < start):
            raise RemoteProtocolError(
                f"the descriptor of range {body['id']} has no members, or ends before it starts"
            )
        return cls(
            range_id=body["id"],
            generation=body["generation"],
            log_id=body["log"],
            start=start,
            end=end,
            members=tuple(members),
            leader=body["leader"],
        )

    def contains(self, key: bytes) -> bool:
        """Whether the key lies in the range."""
        return self.start <= key and (self.end is None or key < self.end)

    def overlaps(self, start: bytes, end: bytes | None) -> bool:
        """Whether any key of `[start, end)` lies in the range."""
        return (end is None or self.start < end) and (self.end is None or start < self.end)

    def __str__(self) -> str:
        return f"range {self.range_id} generation {self.generation}"


class RangeTable:
    """The ranges of one log, sorted by start, without overlaps."""

    def __init__(self) -> None:
        self.starts: list[bytes] = []
        self.ranges: list[Range] = []

    def __iter__(self) -> Iterator[Range]:
        return iter(self.ranges)

    def __len__(self) -> int:
        return len(self.ranges)

    def find(self, key: bytes) -> Range | None:
        """The range of a key, None in a hole."""
        position = bisect_right(self.starts, key) - 1
        if position < 0:
            return None
        found = self.ranges[position]
        return found if found.end is None or key < found.end else None

    def overlapping(self, start: bytes, end: bytes | None) -> list[Range]:
        """The ranges with keys in `[start, end)`."""
        return [known for known in self.ranges if known.overlaps(start, end)]

    def covers(self, start: bytes = b"", end: bytes | None = None) -> bool:
        """Whether `[start, end)` has no hole."""
        at: bytes | None = start
        for known in self.overlapping(start, end):
            if at is None or known.start > at:
                return False
            at = known.end
        return at is None or (end is not None and at >= end)

    def insert(self, new: Range) -> bool:
        """Take a descriptor unless it is not newer than one that it overlaps.

        Returns whether it was news. The same generation again only renews the leader.
        """
        overlapped = self.overlapping(new.start, new.end)
        for known in overlapped:
            if (known.range_id, known.generation) == (new.range_id, new.generation):
                if new.leader is not None and new.leader != known.leader:
                    self.lead(known, new.leader)
                return False
            if known.generation >= new.generation:
                return False
        kept = [known for known in self.ranges if known not in overlapped]
        self._set([*kept, new])
        return True

    def insert_all(self, news: Iterable[Range]) -> None:
        """Insert each."""
        for each in news:
            self.insert(each)

    def is_newer(self, known: Range) -> bool:
        """Whether a later generation than `known` serves keys of its span."""
        return any(
            each.generation > known.generation for each in self.overlapping(known.start, known.end)
        )

    def drop(self, gone: Range) -> None:
        """Forget a generation, so that the next lookup asks."""
        self._set(
            [
                known
                for known in self.ranges
                if (known.range_id, known.generation) != (gone.range_id, gone.generation)
            ]
        )

    def lead(self, of: Range, node: int | None) -> None:
        """Remember who leads a generation, if it is still the one known."""
        for position, known in enumerate(self.ranges):
            if (known.range_id, known.generation) == (of.range_id, of.generation):
                self.ranges[position] = replace(known, leader=node)

    def _set(self, ranges: Iterable[Range]) -> None:
        self.ranges = sorted(ranges, key=lambda known: known.start)
        self.starts = [known.start for known in self.ranges]
