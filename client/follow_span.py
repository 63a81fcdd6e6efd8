"""The state of one reader of a follow: some keys or a span of keys, and the positions reached.

A span is cut where its range was split, or where one pass over a merged range can read no further.
Spans are joined again when one range holds both. A joined span continues from the lower position,
and leaves out entries that come again for the keys ahead of it (x2.20: joining at the higher
position would skip entries, joining at the lower position without this rule would repeat entries).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from .protocol import limits
from .protocol.types import Entry
from .routing import Range

joined_seqs_max: Final = 4_096
"""Spans further apart are not joined: at most this many entries come again."""

Piece = tuple[bytes, bytes | None, int]
"""Start, end and position of a span of keys."""


@dataclass(slots=True, repr=False, eq=False)
class FollowSpan:
    """Keys with a position each, or a span of keys with one position."""

    start: bytes
    end: bytes | None
    next: int = 1
    keys: dict[bytes, int] | None = None
    caught_up: bool = False
    reached: int = 1
    """The position up to which the caller has taken entries; `next` is the reader's position."""
    reached_keys: dict[bytes, int] = field(default_factory=dict)
    rests: tuple["FollowSpan", ...] = ()
    """The spans that were cut off, in the order of the cuts."""
    ahead: Sequence[Piece] = ()
    """Parts that were ahead when spans were joined, sorted."""
    on: tuple[int, int] = (0, 0)
    """The range and the generation from which the span is read; (0, 0): not yet."""
    moves: int = 0
    """How often the position of a key was set."""
    told_caught_up: bool = False
    """Whether the last push said caught up, even if the caller has not taken that push yet."""
    apart: int = 0
    """Below this position no stream reads the span together with the span before it: they were
    parts of two ranges that were merged."""
    asked: bool = False
    """Whether the span was reopened to learn its position."""
    shared: bool = False
    """Whether the span is read with streams of several follows."""
    parked: bool = False
    """Whether there was no room for its entries: it is read on when the queue is empty."""

    def within(self, known: Range) -> bool:
        """Return whether the range holds all keys of the span."""
        if self.keys is not None:
            return all(map(known.contains, self.keys))
        return known.start <= self.start and (
            known.end is None or (self.end is not None and self.end <= known.end)
        )

    def cut(self, known: Range) -> "FollowSpan":
        """Keep the keys that the range holds; return the rest as a new span."""
        if self.keys is None:
            return self.cut_at(known.end or b"")
        rest = {key: n for key, n in self.keys.items() if not known.contains(key)}
        self.keys = {key: n for key, n in self.keys.items() if key not in rest}
        new = FollowSpan(min(rest), None, keys=rest)
        new.reached_keys = {key: self.reached_keys.pop(key) for key in rest}
        self.rests += (new,)
        return new

    def cut_at(self, boundary: bytes) -> "FollowSpan":
        """Keep the keys below `boundary`; return the others as a new span."""
        new = FollowSpan(boundary, self.end, self.next, reached=self.reached)
        new.ahead = _clipped(self.ahead, boundary, self.end)
        self.ahead = _clipped(self.ahead, self.start, boundary)
        self.end = boundary
        self.rests += (new,)
        return new

    def fresh(self, entries: list[Entry]) -> list[Entry]:
        """Return the entries that the caller has not taken yet."""
        if not self.ahead:
            return entries
        return [
            entry
            for entry in entries
            if not any(
                start <= entry.key and (end is None or entry.key < end) and entry.seq < until
                for start, end, until in self.ahead
            )
        ]

    def read_to(self, entries: list[Entry]) -> None:
        """Note that the reader has these entries."""
        if self.keys is not None and entries:
            self.keys.update((entry.key, entry.seq + 1) for entry in entries)
            self.moves += len(entries)

    def taken(self, push: "Push", cuts: int = 0) -> None:
        """Note that the caller has taken a push, made after `cuts` cuts: every span that was
        split off since then has caught up to the push too."""
        self.reached = max(self.reached, push.next)
        if self.ahead:
            self.ahead = [piece for piece in self.ahead if piece[2] > self.reached]
        keys = self.keys or {}
        self.reached_keys.update((e.key, e.seq + 1) for e in push.entries if e.key in keys)
        for rest in self.rests[cuts:]:
            rest.taken(push)

    @property
    def pieces(self) -> list[Piece]:
        """The position that the caller has reached, part by part."""
        found: list[Piece] = []
        at: bytes | None = self.start
        for start, end, until in self.ahead:
            if at is not None and at < start:
                found.append((at, start, self.reached))
            found.append((start, end, until))
            at = end
        if at is not None and at != self.end:
            found.append((at, self.end, self.reached))
        return found

    @property
    def rests_now(self) -> bool:
        """Whether the caller has taken everything that was committed when the last push left."""
        if self.keys is not None:
            return self.caught_up and self.keys == self.reached_keys
        return self.caught_up and self.next == self.reached


class Push(NamedTuple):
    """Entries that a reader hands over."""

    span: FollowSpan
    cuts: int
    """The number of cuts of the span when the push was made."""
    entries: list[Entry]
    next: int
    caught_up: bool
    fresh_at: float | None = None
    """The time on the client's clock up to which the member knew every acknowledged append;
    None: unknown."""


def may_join(one: FollowSpan, other: FollowSpan) -> bool:
    """Return whether both spans can be read as one from now on, or could at closer positions."""
    if one.on != other.on:
        return False
    if one.keys is None:
        fit = other.start == one.end or one.start == other.end
    else:
        fit = len(one.keys) + len(other.keys or ()) <= limits.follow_keys_max
    # Comparing all positions comes last: it takes long for many keys.
    return fit and one.rests_now and other.rests_now


def joins_at(one: FollowSpan, other: FollowSpan) -> int:
    """Return the position from which one stream reads both spans."""
    return max(one, other, key=lambda span: span.start).apart


def joined(one: FollowSpan, other: FollowSpan) -> FollowSpan:
    """Return the join of two spans; the caller has taken every push of both."""
    left, right = sorted((one, other), key=lambda span: span.start)
    if left.keys is not None:
        keys: Mapping[bytes, int] = {**left.keys, **(right.keys or {})}
        both = FollowSpan(left.start, None, keys=dict(keys), reached_keys=dict(keys))
    else:
        low = min(left.reached, right.reached)
        ahead = [piece for piece in (*left.pieces, *right.pieces) if piece[2] > low]
        both = FollowSpan(left.start, right.end, low, reached=low, ahead=ahead, apart=left.apart)
    both.caught_up = True
    return both


def _clipped(pieces: Sequence[Piece], start: bytes, end: bytes | None) -> list[Piece]:
    found = []
    for first, last, until in pieces:
        low = max(first, start)
        high = min((each for each in (last, end) if each is not None), default=None)
        if high is None or low < high:
            found.append((low, high, until))
    return found
