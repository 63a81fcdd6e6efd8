"""Which replicas take part after a start, and from which entry.

Meta says that a replica was started here, and what it had applied. The WAL holds the replica's log,
term and vote. Where the two do not fit, the replica forgot something that it had promised.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ...partitions.model import CONTROLLER_RANGE, Descriptor
from ...raft.types import GroupId
from ...statemachine.range_state import Base
from ..directory import meta_keys
from .durable_steps import (
    Begin,
    CheckFiles,
    Commit,
    Damaged,
    Entry,
    Held,
    LogView,
    RaiseCommit,
    ResetLog,
    RetireLogs,
    SetAside,
    Step,
    Steps,
)


class Stored(NamedTuple):
    """A replica as its row in meta describes it."""

    key: str
    row: Mapping[str, Any]
    descriptor: Descriptor
    applied: Entry
    """Index and term of the last entry that the stored state has."""

    @property
    def gid(self) -> GroupId:
        """The group of the replica."""
        return GroupId(self.descriptor.range_id, self.descriptor.generation)


def recover(stored: Stored, log: LogView | None, wal_damage: str | None) -> Steps:
    """Return the steps that let a replica take part again, or that keep it out for good.

    `log` is the replica's log in the WAL, None without one. `wal_damage` says what is wrong with
    the log, None when the WAL is whole.
    """
    gid, applied = stored.gid, stored.applied
    before: str | None = stored.row.get("damaged")
    if before:
        return (Damaged(gid, before),)
    if log is None or wal_damage is not None:
        return damaged(stored, wal_damage or "its log is not in the WAL")
    reason = misfit(log, applied, installed=bool(stored.row.get("installed")))
    if reason is not None:
        return damaged(stored, reason)
    steps: list[Step] = []
    if log.term_at(applied[0]) != applied[1]:
        # A base was installed, and the node crashed before the log was reset to it (x15, x2.10).
        # The log may also hold an entry of another term there, which never committed.
        steps.append(ResetLog(gid, applied))
    # Replay ends at the commit index, which is at least the durable applied index (x15).
    steps.append(RaiseCommit(gid, applied[0]))
    controller = gid.range_id == CONTROLLER_RANGE
    steps.append(Begin(gid, campaign=False) if controller else CheckFiles(gid))
    return tuple(steps)


def misfit(log: Held, applied: Entry, *, installed: bool) -> str | None:
    """Return why the log cannot be the one of a replica that applied this entry, or None.

    An entry is durable here before it is applied. Only a base comes before its log, and the row
    says `installed` until the next checkpoint, which follows the reset of the log (x15).
    """
    index, term = applied
    if log.base_index > index:
        return f"meta ends at entry {index}, its log begins after {log.base_index}"
    if installed:
        return None
    if log.last_index < index:
        return f"its log ends at entry {log.last_index}, meta applied {index}"
    found = log.term_at(index)
    if found == term:
        return None
    return f"its log has entry {index} of term {found}, meta applied that entry of term {term}"


def files_checked(stored: Stored, bad: Mapping[str, str]) -> Steps:
    """Return what follows a check of the base's files: `bad` has the damage of each damaged file.

    A peer can send the file again. The only member of a generation has no peer.
    """
    if not bad:
        return (Begin(stored.gid, campaign=False),)
    if len(stored.descriptor.members) == 1:
        return damaged(stored, next(iter(bad.values())))
    base = Base.from_wire(stored.row["base"])
    files = {info.content_id: info for info in base.manifest}
    return (SetAside(stored.gid, stored.descriptor, files, bad),)


def damaged(stored: Stored, reason: str) -> Steps:
    """Return the steps that keep a replica out for good.

    The damage is stored before anything is cut, so that no later start takes part (x2).
    """
    puts = {stored.key: {**stored.row, "damaged": reason}}
    return (Damaged(stored.gid, reason), Commit(puts))


def unknown_logs(
    logs: Iterable[GroupId], rows: Iterable[GroupId], marks: Mapping[int, int]
) -> Steps:
    """Return how logs of generations without a row in meta go.

    The node crashed after it had deleted the rows, and before the WAL's record of that. Such logs
    would keep WAL files for ever. A log that was created and never begun stays: it is empty, and
    begins when the metadata says so. `marks` are the highest generations started here (x3).
    """
    known = set(rows)
    over = sorted(
        gid for gid in logs if gid not in known and gid.generation <= marks.get(gid.range_id, 0)
    )
    return (RetireLogs(tuple(over)),) if over else ()


def row_gid(key: str) -> GroupId:
    """Return the group of the replica's row with that key."""
    if key.startswith(meta_keys.CONTROLLER):
        return GroupId(CONTROLLER_RANGE, int(key.removeprefix(meta_keys.CONTROLLER)))
    range_id, generation = key.removeprefix(meta_keys.REPLICA).split("/")
    return GroupId(int(range_id), int(generation))
