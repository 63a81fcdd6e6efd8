"""How a replica continues in its generation from other rows: from a later base, or alone.

Both stop the replica, change its rows, and begin the replica again from rows and log, as a start
would. So a crash at any step leaves what a start can continue from.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...client.protocol.errors import Unavailable
from ...partitions.model import Descriptor
from ...raft.types import GroupId
from .durable_steps import (
    Begin,
    CheckPresent,
    CollectFiles,
    Commit,
    Entry,
    ResetLog,
    Rows,
    Steps,
    Stop,
    SyncLogs,
)


def reinstall(gid: GroupId, rows: Rows, base: Entry, applied: int) -> Steps:
    """Return the steps by which a replica continues from a base that a member sent.

    `rows` hold the base at the entry `base`, whose files are here. `applied` is the last entry that
    the replica has applied. Term and vote stay. Raises Unavailable for a base that is not later.

    - Meta comes before the log: a start in between finds the row, which says `installed`, and
      resets the log to the base (x2.10, x15).
    - A log that holds the base's entry keeps what is behind it: the member may have acknowledged
      those entries (x1).
    - The reset is durable before the replica goes on. Its next checkpoint no longer says
      `installed`, and a start then takes a log that ends below the base for damage (x15).
    - A replica that was retired meanwhile stays retired: rows or a log written after that would
      bring the generation back (x3).
    """
    if base[0] <= applied:
        raise Unavailable(f"the base of {gid} ends at entry {base[0]}, entry {applied} is applied")
    return (
        Stop((gid,)),
        Commit(rows.puts(installed=True), (), rows.prefixes, level=rows.level),
        CheckPresent(gid),
        ResetLog(gid, base),
        SyncLogs(),
        CheckPresent(gid),
        Begin(gid, campaign=False),
        CollectFiles(),  # the files of its earlier base
    )


def alone(descriptor: Descriptor, node_id: int) -> Descriptor:
    """Return the descriptor of a generation whose only member is left to end it."""
    return replace(descriptor, members=(node_id,), state="SEALING")


def go_alone(gid: GroupId, key: str, row: Mapping[str, Any] | None, node_id: int) -> Steps:
    """Return the steps by which a replica goes on as the only member (unsafe recovery).

    The replica keeps its log and base. Its row is written first: from then on the replica shares no
    descriptor with the other members, so that neither side takes messages of the other side, not
    even after a restart (x2.24). Nothing is committed alone before that. Raises Unavailable without
    a row: the replica was retired.
    """
    if row is None:
        raise Unavailable(f"{gid} was retired meanwhile")
    descriptor = alone(Descriptor.from_wire(row["descriptor"]), node_id)
    return (
        Stop((gid,)),
        Commit({key: {**row, "descriptor": descriptor.to_wire()}}),
        CheckPresent(gid),
        Begin(gid, campaign=True),
    )
