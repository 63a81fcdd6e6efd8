"""How a generation begins on a node, at most once."""

from collections.abc import Container, Mapping

from ...client.protocol.errors import Unavailable
from ...raft.types import GroupId
from ..directory import meta_keys
from .durable_steps import (
    Begin,
    Commit,
    CreateLog,
    Damaged,
    Entry,
    LogView,
    Mark,
    ResetLog,
    Rows,
    Steps,
    SyncLogs,
)


def may_begin(gid: GroupId, groups: Container[GroupId], marks: Mapping[int, int]) -> bool:
    """Whether the generation may begin here: neither it nor a later one ever did (x3).

    `groups` are those that run or are about to begin. `marks` are the highest generations that were
    started here.
    """
    return gid not in groups and marks.get(gid.range_id, 0) < gid.generation


def begin(gid: GroupId, rows: Rows, base: Entry, left: LogView | None, *, campaign: bool) -> Steps:
    """Return the steps by which a generation begins from a base whose files are here.

    `rows` hold the base at the entry `base`. `left` is a log of the group that is in the WAL
    already, None without one. Raises Unavailable where the generation was about to begin from a
    later base, which will be sent again.

    - The WAL's record of the group is durable before meta says that the replica was started: a row
      without a log is damage (x2), while a log without a row has promised nothing.
    - The row, the base in it and the mark are one transaction (x3), and durable before the first
      message, so that a vote or an acknowledgement is never given by a replica that a start would
      not know (x2).
    """
    reason = None if left is None else _played(gid, left, base)
    if reason is not None:
        puts = meta_keys.begun(gid, rows.puts(damaged=reason))
        return (Commit(puts, (), rows.prefixes, level=rows.level), Mark(gid), Damaged(gid, reason))
    if left is not None and left.base_index > base[0]:
        raise Unavailable(f"{gid} was about to begin here from a later base: send that")
    # A log that is left may have been about to begin from an earlier base.
    log = CreateLog(gid, base) if left is None else ResetLog(gid, base)
    return (
        log,
        SyncLogs(),
        Commit(
            meta_keys.begun(gid, rows.puts()),
            (),
            rows.prefixes,
            joint=not rows.prefixes,
            level=rows.level,
        ),
        Mark(gid),
        Begin(gid, campaign),
    )


def _played(gid: GroupId, left: LogView, base: Entry) -> str | None:
    """Return the damage when the replica whose log is left took part once, else None.

    A node that crashed between the WAL's record and meta's has promised nothing in the generation.
    Such a log is empty, and its term is that of a base.
    """
    if left.last_index == left.base_index and left.term <= max(left.base_term, base[1]):
        return None
    return (
        f"the WAL holds a log of range {gid.range_id} generation {gid.generation} "
        "that meta does not know: meta is older than the WAL"
    )
