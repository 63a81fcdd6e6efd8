"""The routing table of a client: which range serves a key, from the newest descriptors seen.

The rules are those of docs/design/ranges.md#routing.

A table may have holes, and may be wrong: every request names the range and generation that it
means, and a node that serves another generation refuses the request with the descriptors it knows.
The table must not go back, so a descriptor enters only when it is newer than all that it overlaps.
Generations are comparable across ranges: an output's is 1 + the largest of its inputs (x26).

A client that may use only some keys sees bounds that are cut to its keys. When the client gains
keys, the same generation comes with wider bounds, and enters too.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from .protocol.errors import RemoteProtocolError


class Range(NamedTuple):
    """One generation of one range, as the client needs it."""

    range_id: int
    generation: int
    log_id: int
    start: bytes
    end: bytes | None
    members: tuple[int, ...]
    leader: int | None = None
    """The last known leader; a hint."""

    @classmethod
    def from_wire(cls, body: Mapping[Any, Any]) -> "Range":
        """Return the range of a descriptor that `protocol.cluster.RANGE` has checked.

        Raises RemoteProtocolError for a descriptor without members or whose end is below its start.
        """
        start, end, members = body["start"], body["end"], body["members"]
        if not members or (end is not None and end < start):
            raise RemoteProtocolError(
                f"the descriptor of range {body['id']} has no members, or its end is not "
                "above its start"
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
        """Return the range of a key, None in a hole."""
        position = bisect_right(self.starts, key) - 1
        if position < 0:
            return None
        found = self.ranges[position]
        return found if found.end is None or key < found.end else None

    def overlapping(self, start: bytes, end: bytes | None) -> list[Range]:
        """Return the ranges with keys in `[start, end)`."""
        first, last = _between(self.starts, self.ranges, start, end)
        return self.ranges[first:last]

    def covers(self, start: bytes = b"", end: bytes | None = None) -> bool:
        """Whether `[start, end)` has no hole."""
        at: bytes | None = start
        for known in self.overlapping(start, end):
            if at is None or known.start > at:
                return False
            at = known.end
        return at is None or (end is not None and at >= end)

    def insert(self, new: Range) -> bool:
        """Insert a descriptor unless it overlaps one that is as new or newer.

        Returns whether the descriptor was new. The same generation again only updates the leader.
        """
        return self.insert_all((new,))

    def insert_all(self, news: Iterable[Range]) -> bool:
        """Insert each descriptor; return whether any was new. Only then are the lists replaced."""
        starts, ranges = list(self.starts), list(self.ranges)
        changed = False
        for new in news:
            first, last = _between(starts, ranges, new.start, new.end)
            overlapped = ranges[first:last]
            if all(
                known.generation < new.generation or _widens(new, known) for known in overlapped
            ):
                starts[first:last], ranges[first:last] = [new.start], [new]
                changed = True
            elif new.leader is not None:
                for at, known in enumerate(overlapped, first):
                    if (known.range_id, known.generation) == (new.range_id, new.generation):
                        ranges[at] = known._replace(leader=new.leader)
                        self.lead(known, new.leader)
        if changed:
            self.starts, self.ranges = starts, ranges
        return changed

    def is_newer(self, known: Range) -> bool:
        """Whether a later generation than `known` serves keys of its span."""
        return any(
            each.generation > known.generation for each in self.overlapping(known.start, known.end)
        )

    def drop(self, gone: Range) -> None:
        """Forget a generation, so that the next lookup asks for metadata."""
        at = self._position(gone)
        if at is not None:
            self.starts = [*self.starts[:at], *self.starts[at + 1 :]]
            self.ranges = [*self.ranges[:at], *self.ranges[at + 1 :]]

    def lead(self, of: Range, node: int | None) -> None:
        """Note the leader of a generation, if the table still has the generation."""
        at = self._position(of)
        if at is not None:
            self.ranges[at] = self.ranges[at]._replace(leader=node)

    def _position(self, of: Range) -> int | None:
        at = bisect_right(self.starts, of.start) - 1
        if at < 0:
            return None
        known = self.ranges[at]
        same = (known.range_id, known.generation) == (of.range_id, of.generation)
        return at if same else None


def _widens(new: Range, known: Range) -> bool:
    """Return whether `new` is the same generation with more keys."""
    return (
        (new.range_id, new.generation) == (known.range_id, known.generation)
        and (new.start, new.end) != (known.start, known.end)
        and new.start <= known.start
        and (new.end is None or (known.end is not None and known.end <= new.end))
    )


def _between(
    starts: Sequence[bytes], ranges: Sequence[Range], start: bytes, end: bytes | None
) -> tuple[int, int]:
    """Return the first and last positions, half-open, of the ranges with keys in `[start, end)`."""
    first = max(0, bisect_right(starts, start) - 1)
    last = len(starts) if end is None else bisect_left(starts, end)
    if first < last and not ranges[first].overlaps(start, end):
        first += 1
    return first, max(first, last)
