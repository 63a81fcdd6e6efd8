"""Decides which entries a log's policy asks to be removed: pure functions for a range's leader.

Replicas agree on what is visible because every removal is a command of the range's own log
(docs/design.md#removal). The leader decides from what it holds. It removes whole segments, so that
their files can go. It decides per lineage span, since the seqs of merged spans are not related
(x12). In a log that is also compacted, segments are joined with newer ones again and again, and
would seldom be old as a whole: there the leader looks for the seq at which the old entries end, and
the next join drops them. A limit on bytes applies to the whole range: the oldest segment by time
goes first, from any span. Deciding twice, or by an old manifest, is harmless: a floor never falls.
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Final, NamedTuple

from ...client.protocol import limits
from ...partitions.policy import Policy
from ...statemachine import commands
from ...statemachine.chains import Chain, chains
from ...statemachine.floors import Compaction, Marks
from ...statemachine.range_state import RangeState
from ...statemachine.segment_format import SegmentInfo

NEVER: Final = Compaction()
_STEPS: Final = 16
_STEP_MS: Final = 1_000
"""The retention of a compacted log goes on in steps of a sixteenth, and of a second at least: each
step is a command."""
_SPREAD: Final = 2_654_435_769
"""Multiples of it are spread evenly over any step: Knuth's multiplicative hashing."""


class Piece(NamedTuple):
    """Entries that go together, up to `end_seq`: a segment, or all entries not in a segment yet.

    The size of a segment of several spans counts only in the first span.
    """

    end_seq: int
    size: int
    max_timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Holding:
    """The entries that a range holds of one lineage span. `segments` are sorted by seq."""

    start: bytes
    end: bytes | None
    segments: Sequence[Piece]
    unflushed: Piece
    """Entries that are not in a segment yet; their size does not count."""
    trimmed: int = 0
    """Everything below this seq is already being removed."""
    compacted: Compaction = NEVER
    snapshots: int = 0
    """Histories before logical snapshots below this seq are already being removed."""
    old: int = 0
    """Entries below this seq are older than the retention, whatever else is in their segment."""


Needed = tuple[Holding, tuple[int, ...]] | None
"""A span, and the rest of the command for it; None: the span needs no command."""


class Proposal(NamedTuple):
    """A command that the leader must propose."""

    kind: int
    payload: Any

    @property
    def place(self) -> Hashable:
        """The subject of the command: a later proposal on the same subject replaces it."""
        if self.kind == commands.TRIM_SPANS:
            return self.kind, self.payload[0][0]
        start, _, _, mode, _ = self.payload
        return self.kind, start, mode


def decide(policy: Policy, holdings: Sequence[Holding], now_ms: int) -> list[Proposal]:
    """Return the removals of a range that are due and not yet proposed.

    The spans are in the order of keys and together make the range. Neighbours with the same need
    share one command.
    """
    trims = [
        max(_by_time(policy, holding, now_ms), by_bytes)
        for holding, by_bytes in zip(holdings, _by_bytes(policy, holdings), strict=True)
    ]
    needed: list[Needed] = [
        (holding, (trim,)) if trim > holding.trimmed else None
        for holding, trim in zip(holdings, trims, strict=True)
    ]
    found = [Proposal(commands.TRIM_SPANS, rows) for rows in _portions(_joined(needed))]
    if policy.compacts:
        needed = [_compaction(policy, holding, now_ms) for holding in holdings]
        found += [Proposal(commands.COMPACT_TO, row) for row in _joined(needed)]
    if policy.snapshot_delay_ms is not None:
        older_ms = now_ms - policy.snapshot_delay_ms
        ends = [_end_of(_older(holding, older_ms)) for holding in holdings]
        needed = [
            (holding, (end, commands.SNAPSHOT, 0)) if end > max(holding.snapshots, trim) else None
            for holding, end, trim in zip(holdings, ends, trims, strict=True)
        ]
        found += [Proposal(commands.COMPACT_TO, row) for row in _joined(needed)]
    return found


def cutoff_ms(policy: Policy, range_id: int, now_ms: int) -> int | None:
    """Return the time before which a compacted log's entries are older than its retention. None:
    whole segments alone are removed. The ranges do not take their steps together."""
    if not policy.compacts or policy.retention_ms is None:
        return None
    step = max(policy.retention_ms // _STEPS, _STEP_MS)
    phase = range_id * _SPREAD % step
    return max(0, (now_ms - policy.retention_ms - phase) // step * step + phase)


def _by_time(policy: Policy, holding: Holding, now_ms: int) -> int:
    if policy.retention_ms is None:
        return 0
    return max(holding.old, _end_of(_older(holding, now_ms - policy.retention_ms)))


def _by_bytes(policy: Policy, holdings: Sequence[Holding]) -> list[int]:
    """Return below which seq each span goes, so that the range keeps the policy's bytes."""
    found = [0] * len(holdings)
    if policy.retention_bytes is None:
        return found
    live = [
        (piece, at) for at, holding in enumerate(holdings)
        for piece in holding.segments if piece.end_seq > holding.trimmed
    ]  # fmt: skip
    size = sum(piece.size for piece, _ in live)
    # The sort is stable: pieces of a span, whose timestamps never fall, stay in their order.
    for piece, at in sorted(live, key=lambda each: each[0].max_timestamp_ms):
        size -= piece.size
        if size < policy.retention_bytes:
            break
        found[at] = piece.end_seq
    return found


def _compaction(policy: Policy, holding: Holding, now_ms: int) -> Needed:
    before = max((piece.end_seq for piece in holding.segments), default=0)
    if before > holding.compacted.before or _tombstones_due(policy, holding, now_ms):
        return holding, (before, commands.COMPACT, policy.tombstones_ms)
    return None


def _joined(needed: Iterable[Needed]) -> list[list[Any]]:
    """Return start, end and need of all spans that need something; equal neighbours are joined."""
    rows: list[list[Any]] = []
    for holding, what in filter(None, needed):
        if rows and rows[-1][1:] == [holding.start, *what]:
            rows[-1][1] = holding.end
        else:
            rows.append([holding.start, holding.end, *what])
    return rows


def _portions(rows: list[Any]) -> Iterator[list[Any]]:
    """Yield as many rows at a time as a command takes."""
    for at in range(0, len(rows), limits.removal_keys_max):
        yield rows[at : at + limits.removal_keys_max]


def _older(holding: Holding, than_ms: int) -> Iterable[Piece]:
    """Return the oldest pieces whose entries are all older. Timestamps never fall within a span."""
    return takewhile(
        lambda piece: piece.max_timestamp_ms < than_ms, (*holding.segments, holding.unflushed)
    )


def _end_of(pieces: Iterable[Piece]) -> int:
    return max((piece.end_seq for piece in pieces), default=0)


def _tombstones_due(policy: Policy, holding: Holding, now_ms: int) -> bool:
    """Whether the youngest tombstone that the last compaction may have left is old enough now.

    In an idle log nothing else would start another compaction.
    """
    done = holding.compacted
    newest = max(
        (p.max_timestamp_ms for p in holding.segments if p.end_seq <= done.before), default=None
    )
    if newest is None:
        return False
    return done.cutoff_ms <= newest < now_ms - policy.tombstones_ms


def holdings(state: RangeState) -> list[Holding]:
    """Return what a replica holds of each of its lineage spans.

    Segments flushed since a merge made the range belong to all of them.
    """
    return [
        _holding(state, chain) for chain in chains(state.manifest, (state.start, state.end))
    ]  # fmt: skip


def _holding(state: RangeState, chain: Chain) -> Holding:
    marks, span = state.removal.marks, (chain.start, chain.end)
    compactions = [mark for _, _, mark in marks.compactions.within(*span)]
    return Holding(
        start=span[0],
        end=span[1],
        segments=[_piece(state, info, chain) for info in chain.rows],
        unflushed=Piece(state.next_seq, 0, state.last_timestamp_ms),
        trimmed=trimmed(marks, *span),
        compacted=Compaction(
            min(mark.before for mark in compactions), min(mark.cutoff_ms for mark in compactions)
        ),
        snapshots=min(before for _, _, before in marks.snapshots.within(*span)),
    )


def _piece(state: RangeState, info: SegmentInfo, chain: Chain) -> Piece:
    """Return the file as a piece; an unknown share counts as 0, as late removal does no harm."""
    first = max(info.start, state.start) == chain.start
    share = state.shares.of(info) if first else None
    return Piece(info.end_seq, 0 if share is None else share.size, info.max_timestamp_ms)


def trimmed(marks: Marks, start: bytes, end: bytes | None) -> int:
    """Return the seq below which retention removed everything in the span of keys."""
    return min(before for _, _, before in marks.trims.within(start, end))
