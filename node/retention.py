"""What a log's policy asks to be removed: pure decisions, which a leader proposes.

Replicas agree on what is visible because every removal is a command of the range's own log
(storage.md section 5). The leader decides by what it holds: in whole segments, so that their files
can go, and per lineage span, since the seqs of spans that were merged have nothing to do with each
other (executions 1.12). Deciding twice, or by an old manifest, is harmless: a floor never falls.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Final, NamedTuple

from ..partitions.policy import Policy
from ..statemachine import commands
from ..statemachine.marks import Compaction, Marks
from ..statemachine.range_state import RangeState
from ..statemachine.segment_format import SegmentInfo

NEVER: Final = Compaction()


class Piece(NamedTuple):
    """Entries that go together, up to `end_seq`: a segment, or what is not in one yet."""

    end_seq: int
    size: int
    max_timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Holding:
    """What a range holds of one lineage span. `segments` are sorted by seq."""

    start: bytes
    end: bytes | None
    segments: Sequence[Piece]
    unflushed: Piece
    """What is not in a segment yet; its size does not count."""
    trimmed: int = 0
    """What is below goes already."""
    compacted: Compaction = NEVER
    snapshots: int = 0
    """Histories before logical snapshots below this go already."""


class Proposal(NamedTuple):
    """A command to be proposed."""

    kind: int
    payload: Any


def decide(policy: Policy, holding: Holding, now_ms: int) -> list[Proposal]:
    """What is to be removed of the span now and is not yet."""
    found = []
    trim = _trim_to(policy, holding, now_ms)
    if trim > holding.trimmed:
        found.append(Proposal(commands.TRIM_SPANS, [[holding.start, holding.end, trim]]))
    if policy.cleanup == "compact":
        before = max((piece.end_seq for piece in holding.segments), default=0)
        if before > holding.compacted.before or _tombstones_due(policy, holding, now_ms):
            found.append(_compact_to(holding, before, commands.COMPACT, policy.tombstones_ms))
    if policy.snapshot_delay_ms is not None:
        before = _end_of(_older(holding, now_ms - policy.snapshot_delay_ms))
        if before > max(holding.snapshots, trim):
            found.append(_compact_to(holding, before, commands.SNAPSHOT, 0))
    return found


def _trim_to(policy: Policy, holding: Holding, now_ms: int) -> int:
    by_time = by_bytes = 0
    if policy.retention_ms is not None:
        by_time = _end_of(_older(holding, now_ms - policy.retention_ms))
    if policy.retention_bytes is not None:
        live = [piece for piece in holding.segments if piece.end_seq > holding.trimmed]
        size = sum(piece.size for piece in live)
        for piece in live:
            size -= piece.size
            if size < policy.retention_bytes:
                break
            by_bytes = piece.end_seq
    return max(by_time, by_bytes)


def _older(holding: Holding, than_ms: int) -> Iterable[Piece]:
    """The oldest pieces, all of whose entries are older. Timestamps never fall within a span."""
    return takewhile(
        lambda piece: piece.max_timestamp_ms < than_ms, (*holding.segments, holding.unflushed)
    )


def _end_of(pieces: Iterable[Piece]) -> int:
    return max((piece.end_seq for piece in pieces), default=0)


def _tombstones_due(policy: Policy, holding: Holding, now_ms: int) -> bool:
    """Whether the youngest tombstone that the last compaction may have left is old enough now.

    Of a log that rests nobody else would propose another one.
    """
    done = holding.compacted
    newest = max(
        (p.max_timestamp_ms for p in holding.segments if p.end_seq <= done.before), default=None
    )
    if newest is None:
        return False
    return done.cutoff_ms <= newest < now_ms - policy.tombstones_ms


def _compact_to(holding: Holding, before: int, mode: int, delete_retention_ms: int) -> Proposal:
    return Proposal(
        commands.COMPACT_TO, [holding.start, holding.end, before, mode, delete_retention_ms]
    )


def holding(state: RangeState) -> Holding:
    """What a replica holds of its span."""
    marks, span = state.removal.marks, (state.start, state.end)
    compactions = [mark for _, _, mark in marks.compactions.within(*span)]
    return Holding(
        start=state.start,
        end=state.end,
        segments=[_piece(state, info) for info in state.manifest],
        unflushed=Piece(state.next_seq, 0, state.last_timestamp_ms),
        trimmed=trimmed(marks, *span),
        compacted=Compaction(
            min(mark.before for mark in compactions), min(mark.cutoff_ms for mark in compactions)
        ),
        snapshots=min(before for _, _, before in marks.snapshots.within(*span)),
    )


def _piece(state: RangeState, info: SegmentInfo) -> Piece:
    """A file whose share is unknown counts nothing: what is removed too late does no harm."""
    share = state.shares.of(info)
    return Piece(info.end_seq, 0 if share is None else share.size, info.max_timestamp_ms)


def trimmed(marks: Marks, start: bytes, end: bytes | None) -> int:
    """Below which seq everything in the span of keys was removed by retention."""
    return min(before for _, _, before in marks.trims.within(start, end))
