"""How replicas end: damaged in their generation, or retired with it; and which files then go."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ...partitions.model import CONTROLLER_RANGE
from ...raft.types import GroupId
from ...statemachine.range_state import RangeState
from ...statemachine.segment_format import SegmentInfo
from ..directory import meta_keys
from .durable_steps import CollectFiles, Commit, Damaged, RetireLogs, Steps, Stop


def damage(gid: GroupId, row: Mapping[str, Any] | None, reason: str) -> Steps:
    """Return the steps after which a replica never serves or votes again in its generation.

    The damage is stored before it is told, so that it survives a restart (S12, x2). A replica
    without a row was retired.
    """
    return damage_all({gid: row}, reason)


def damage_all(rows: Mapping[GroupId, Mapping[str, Any] | None], reason: str) -> Steps:
    """Return the steps that do the same for several replicas, with the row of each.

    All of them stop first, and one transaction has all rows: a row that is stored later could be
    older than the replica's, or bring a replica back that was retired meanwhile (x3).
    """
    stored = {gid: row for gid, row in rows.items() if row is not None}
    stop = (Stop(tuple(rows)),) if rows else ()
    if not stored:
        return stop
    puts = {meta_keys.row_key(gid): {**row, "damaged": reason} for gid, row in stored.items()}
    return (*stop, Commit(puts), *(Damaged(gid, reason) for gid in stored))


def retire(gids: Iterable[GroupId]) -> Steps:
    """Return the steps that free rows, logs and files of generations that are over for good.

    The rows go first: a row without a log would be damage at the next start, while a log without a
    row is retired there (`recovering.unknown_logs`). The mark stays, so that none of them begins
    again (x3). The caller has a positive record that the generations are over (x2.17).
    """
    over = tuple(gids)
    if not over:
        return ()
    keys = [meta_keys.row_key(gid) for gid in over]
    keys += [meta_keys.kept_key(gid) for gid in over if gid.range_id != CONTROLLER_RANGE]
    prefixes = [
        meta_keys.controller_buckets(gid.generation)
        for gid in over
        if gid.range_id == CONTROLLER_RANGE
    ]
    return (Stop(over), Commit({}, keys, prefixes), RetireLogs(over), CollectFiles())


def files_of(rows: Iterable[Mapping[str, Any] | None]) -> set[str]:
    """Return the content ids that rows of replicas, or of prepared states, name in their base."""
    return {str(info[0]) for row in rows if row for info in row["base"]["manifest"]}


def needed(
    states: Iterable[RangeState], rows: Iterable[Mapping[str, Any] | None], pinned: Iterable[str]
) -> set[str]:
    """Return the content ids of the files that must stay.

    `states` are those of running replicas: the files of the durable base, which a start reads, and
    of the base that is about to become durable. `rows` are of replicas that do not run and of
    prepared states. `pinned` are files that work in progress uses.
    """
    return {
        *files_of(rows),
        *pinned,
        *(info.content_id for state in states for info in _files(state)),
    }


def need(state: RangeState, content_id: str) -> SegmentInfo | None:
    """Return the file of this content id that a running replica needs, or None."""
    return next((info for info in _files(state) if info.content_id == content_id), None)


def _files(state: RangeState) -> Iterator[SegmentInfo]:
    yield from state.durable_base.manifest
    yield from state.manifest


def before(generation: int, gids: Iterable[GroupId]) -> Sequence[GroupId]:
    """Return the controller's groups of earlier generations."""
    return [gid for gid in gids if gid.range_id == CONTROLLER_RANGE and gid.generation < generation]
