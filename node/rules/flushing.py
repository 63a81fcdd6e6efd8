"""How a replica's memory becomes durable outside its log: freeze, base, cut; and how it is sealed.

A checkpoint or a merge of files gives the replica another base. The files of the base are durable
before the row that names them, and the log is cut only behind the row. A crash between two steps
leaves files that nothing names, or a log that is longer than needed.
"""

from collections.abc import Iterable

from ...partitions.model import Descriptor
from ...raft.types import GroupId
from ...statemachine.range_state import Base
from .durable_steps import Adopt, Commit, CutLog, LogView, Rows, Steps


def store_base(descriptor: Descriptor, base: Base) -> Steps:
    """Return the steps that make a base, whose files are durable, the base of a running replica.

    The row no longer says `installed`: the log holds what the base has, or was reset to an earlier
    base durably (x15). Memory is freed last, so that a failed transaction loses nothing. The tables
    in the row are those of exactly the base's entry (x16).
    """
    rows = Rows.of_range(descriptor, base)
    return (Commit(rows.puts()), Adopt(GroupId(descriptor.range_id, descriptor.generation)))


def cut_log(
    gid: GroupId, log: LogView, wanted: int | None, durable: int, pins: Iterable[int] = ()
) -> tuple[CutLog, ...]:
    """Return how the log is cut behind the entry `wanted`; None: not at all.

    `durable` is the entry of the base that meta has: entries behind it are in the log alone (x16).
    `pins` are the entries behind which members still read the log while they fetch a base (x2.18).
    """
    if wanted is None:
        return ()
    last = min(wanted, durable, log.commit_index, *pins)
    return (CutLog(gid, last),) if last > log.base_index else ()


def may_propose(*, leads: bool, ended: bool, seal_proposed: bool) -> bool:
    """Whether a member proposes an entry by itself: it leads, its generation has not ended, and it
    has not proposed the seal, the last entry of a generation."""
    return leads and not ended and not seal_proposed


def freeze_pending(applied: int, frozen_at: int, last: int) -> bool:
    """Whether a FREEZE that this member proposed at the entry `frozen_at` is still to be applied.

    The entry is lost when another leader has cut the log before it: `last` is the log's last entry.
    """
    return applied < frozen_at <= last


def may_freeze(*, leads: bool, ended: bool, seal_proposed: bool, pending: bool) -> bool:
    """Whether a member proposes that all members begin a new memtable at one entry.

    At the end of the generation every member flushes anyway.
    """
    return leads and not (ended or seal_proposed or pending)
