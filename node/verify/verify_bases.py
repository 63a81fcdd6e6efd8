"""Check that a replica could begin from the states of ranges that meta stores.

The rows' checksums are correct here. These checks find what a bug, a lost write or two rows that do
not belong together would leave. `verify_segments.py` checks the segment files themselves.
"""

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from ...client.protocol.errors import LognodeError
from ...partitions.model import Span
from ...raft.types import GroupId
from ...statemachine.chains import chains
from ...statemachine.range_state import Base, RangeState
from ...statemachine.segment_format import SegmentInfo
from ...statemachine.segments import SegmentStore
from ...statemachine.spans import common


@dataclass(frozen=True, slots=True)
class KnownBase:
    """A state that meta stores: of a replica, or prepared for a later generation."""

    name: str
    span: Span
    base: Base
    gid: GroupId
    """The generation whose state it is."""


def check_bases(directory: Path, bases: list[KnownBase]) -> tuple[str, list[str]]:
    """Return a summary of what was checked, and the failures. `directory` has the segment files."""
    wrong = []
    named: dict[str, SegmentInfo] = {}
    store = SegmentStore(directory)
    for known in bases:
        found = _manifest(known) or _tables(known, store)
        for info in known.base.manifest:
            other = named.setdefault(info.content_id, info)
            if other.file != info.file and found is None:
                found = f"another manifest has other values of segment {info.content_id}"
        if found is not None:
            wrong.append(f"{known.name}: {found}")
    store.close()
    entries = sum(info.entries for info in named.values())
    return f"{len(bases)} states, {len(named)} segments, {entries} entries in them", wrong


def _manifest(known: KnownBase) -> str | None:
    """Return what is wrong with the state's manifest, or None."""
    span, manifest = (known.span.start, known.span.end), known.base.manifest
    for info in manifest:
        reason = _info(info)
        if reason is not None:
            return f"the manifest has segment {info.content_id} with {reason}"
    try:
        strange = [info for info in manifest if common(info.clip, span) is None]
        found = chains(manifest, span)
    except TypeError:
        return f"{span!r} is not a span"
    for info in strange:
        return f"the manifest has segment {info.content_id} for keys of other ranges, {info.clip!r}"
    for chain in found:
        for before, after in pairwise(chain.rows):
            if before.end_seq > after.first_seq:
                return (
                    f"the manifest has segment {after.content_id}, from seq "
                    f"{after.first_seq} on, behind {before.content_id}, which ends at "
                    f"{before.end_seq}"
                )
    return None


def _info(info: SegmentInfo) -> str | None:
    if not 0 < info.first_seq < info.end_seq:
        return f"seqs from {info.first_seq} to {info.end_seq}"
    if not 0 < info.entries <= info.end_seq - info.first_seq:
        return f"{info.entries} entries with seqs from {info.first_seq} to {info.end_seq}"
    if info.min_key > info.max_key:
        return "a last key below its first key"
    if info.min_timestamp_ms > info.max_timestamp_ms:
        return "a last timestamp below its first timestamp"
    return None if info.size > 0 else "a size below 1"


def _tables(known: KnownBase, store: SegmentStore) -> str | None:
    """Return what is wrong with the state's tables, or None: build the state that a replica would
    begin from."""
    manifest, span = known.base.manifest, known.span
    try:
        state = RangeState(start=span.start, end=span.end, store=store, base=known.base)
        ends: Any = (state.next_seq, state.last_timestamp_ms)
        if list(map(type, ends)) != [int, int]:
            return f"the next seq and last timestamp are {ends!r}"
    except (LognodeError, LookupError, TypeError, ValueError, AttributeError) as error:
        return f"the tables cannot be read: {error!r}"
    end = max((info.end_seq for info in manifest), default=0)
    if end > state.next_seq:
        return f"the next seq is {state.next_seq}, but a segment ends at {end}"
    newest = max((info.max_timestamp_ms for info in manifest), default=0)
    if newest > state.last_timestamp_ms:
        return f"the last timestamp is {state.last_timestamp_ms}, but a segment has {newest}"
    return None
