"""How a damaged segment file is replaced by the file of a peer, in the same generation.

Segments are derived from the log. So a replica whose log is whole may get a segment again and stay
in its generation (x2). A file is named by its content, so that a peer's file of the same name is
the same file (x2.25).

- Nothing of a file in doubt is served, from the first step on. Reads go to other members.
- A replica that needs the file to apply an entry is set aside. It continues from its durable base
  and its log, as after a start.
- Where no other member has the file, the replicas that need the file are damaged, and rebuilt into
  the next generation. Their damage is stored before anything of the file may be served again.

The order is that of x2.28. A crash at any step leaves the damaged file, or the sound file, under
its name. A start or a read then finds the damage again.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, Literal, NamedTuple

from ...partitions.model import Descriptor
from ...raft.types import GroupId
from ...statemachine.segment_format import SegmentInfo
from . import ending
from .durable_steps import (
    Begin,
    CheckAside,
    CheckFile,
    Distrust,
    FetchFile,
    Resume,
    SetAside,
    SettleRows,
    Steps,
    Stop,
    Suspend,
    SyncLogs,
)

PATIENCE_S: Final = 30.0
"""How long a file is asked for while there are members that cannot be asked."""
RETRY_S: Final = 0.5
"""The pause before all members are asked again."""

Rows = Mapping[GroupId, Mapping[str, Any] | None]
"""The row in meta of each replica; None: the replica was retired."""


def step_failed(descriptor: Descriptor, files: Iterable[SegmentInfo], bad: str, why: str) -> Steps:
    """Return the steps for a replica that cannot apply an entry without the damaged file `bad`.

    `files` are those of its durable base and of its memory. The steps of `doubt` follow.
    """
    gid = GroupId(descriptor.range_id, descriptor.generation)
    needed = {info.content_id: info for info in files}
    return (Stop((gid,)), SetAside(gid, descriptor, needed, {bad: why}))


def doubt(content_id: str) -> Steps:
    """Return the steps for a file that a read, a check or a peer found damaged.

    The row by which a start trusts the file goes before the file is checked: after a crash the
    start hashes the file (x28).
    """
    return (Suspend(content_id), Distrust(content_id), CheckFile(content_id))


def checked(content_id: str, reason: str, *, damaged: bool, mended: bool, rows: Rows) -> Steps:
    """Return what follows a check of a file in doubt, whose damage was reported for `reason`.

    `mended`: the file was replaced lately, and an earlier read may report its damage still. `rows`
    has the row of the replica whose read failed, unless the replica has ended.

    A read of a sound file failed: the same bytes from a peer would not help, and the replica is
    given up.
    """
    if damaged:
        return (FetchFile(content_id),)
    given_up = () if mended else ending.damage_all(rows, reason)
    return (*given_up, Resume(content_id))


def searched(reason: str, rows: Rows, bad: Collection[str]) -> Steps:
    """Return what follows a check of all files of a replica, of which `bad` are damaged.

    The damage was reported for `reason`, without the name of a file. Each damaged file gets the
    steps of `doubt`. Without a damaged file the replica is given up, whose row is in `rows`.
    """
    return () if bad else ending.damage_all(rows, reason)


class Source(NamedTuple):
    """Whom to ask for a file: a member of a generation whose replica here needs the file."""

    gid: GroupId
    peer: int


def sources(node_id: int, holders: Iterable[Descriptor]) -> list[Source]:
    """Return whom to ask for a file, in this order.

    `holders` are the generations whose replicas here need the file.
    """
    return [
        Source(GroupId(held.range_id, held.generation), peer)
        for held in holders
        for peer in held.members
        if peer != node_id
    ]


def after_asking(waited_s: float, *, all_asked: bool) -> Literal["again", "lost"]:
    """Return what follows when all sources were asked and none has given the file.

    `all_asked`: each has said that it has no such file, or has sent another content. Otherwise a
    member that could not be asked may have the file, and is waited for.
    """
    return "lost" if all_asked or waited_s > PATIENCE_S else "again"


def fetched(content_id: str) -> Steps:
    """Return what follows when the peer's file is durable here under its name.

    Replicas that were set aside then continue: see `returning`.
    """
    return (Resume(content_id),)


def unneeded(content_id: str) -> Steps:
    """Return what follows when no replica here needs the file any more."""
    return (Resume(content_id),)


def lost(content_id: str, reason: str, rows: Rows) -> Steps:
    """Return what follows when no other member has the file; `rows` are of those that need it."""
    return (*ending.damage_all(rows, reason), Resume(content_id))


def returning(
    aside: Mapping[GroupId, Collection[str]], is_suspended: Callable[[str], bool]
) -> list[GroupId]:
    """Return the replicas that continue: they were set aside for files that are all sound now.

    `aside` has the damaged files of each replica that was set aside.
    """
    return [gid for gid, bad in aside.items() if not any(map(is_suspended, bad))]


def bring_back(gid: GroupId) -> Steps:
    """Return the steps by which a replica continues that was set aside.

    The log and the row are as a start would find them: what was queued about the replica when it
    stopped is durable first.
    """
    return (SyncLogs(), SettleRows(), CheckAside(gid), Begin(gid, campaign=False))
