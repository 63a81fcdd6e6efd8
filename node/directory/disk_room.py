"""How much room a node's disk has, and what goes on without much of it: decisions, without I/O.

A full disk ends a node (S1: what cannot be written is not acknowledged), and a majority of full
disks ends a range. So a reserve is kept. What is in memory counts as if its segments were built
already, so that they can be, whenever appends are refused. While less than the reserve is free:

    level       free below          what no longer goes on
    AMPLE
    LOW         the reserve         appends to ranges that this node leads; it hands them to
                                    members with room, where there are any; and the WAL is kept
                                    as short as it may be
    SCARCE      half of it          fetching files of others' ranges, merging, scrubbing
    LAST        a quarter of it     building segments, but small ones: the rest is for the WAL and
                                    meta, and for what retention waits for before files go

What makes room goes on at every level: trim, delete, retention, the end of generations; and so do
reads and the controller. A range whose members mostly have no room refuses appends also where the
leader has: those who are to store them could not for long.

Whatever the operator says, the reserve is two WAL files at least, for one file of room is needed
to begin the next file. One WAL file is made ahead, so that a file can be begun also on a disk that
was filled from outside between two looks. A node that has no file ahead and no room to make one, or
less than a quarter of its reserve, takes no entries of ranges from their leaders either. It only
answers the leaders, as if the entries were lost on the way, and leaders that hear of it send none.
So what is left of the WAL serves terms, votes and the commands that make room.
"""

from collections.abc import Collection
from enum import IntEnum

from ...client.protocol import limits
from ...client.protocol.errors import Overloaded

RETRY_AFTER_S = 1.0
_BACK_SHARE = 8
"""A level is left again only when an eighth less than is free would do too, or it would flap."""
_FILL_BYTES_PER_S = 512 << 20
"""As fast as a disk could fill: the next look comes before the reserve can be used up."""
_GROWTH_BYTES = 1 << 20
"""With less free on a member of the controller the metadata does not become larger."""
_BUILD_LEAVES_BYTES = 8 << 20
"""Free while a segment is built; the next WAL file is there already."""
_LOOK_MIN_S = 0.25
_LOOK_MAX_S = 5.0


def reserve_bytes(wanted: int, wal_file_bytes: int) -> int:
    """The reserve of a node whose operator wants so many bytes: two WAL files at least, and a WAL
    file is as large as the largest entry at least."""
    return max(wanted, 2 * max(wal_file_bytes, limits.entry_bytes_max))


def file_bytes(entry_bytes: int) -> int:
    """What a segment of so many bytes of entries takes on disk at most. A block has 16 KiB or more
    and begins on a page of its own: a block of 16 KiB and a bit takes five pages of 4 KiB."""
    return entry_bytes + entry_bytes // 4


class Level(IntEnum):
    """How little room there is; see the module."""

    AMPLE = 0
    LOW = 1
    SCARCE = 2
    LAST = 3


def level_of(free: int, reserve: int, before: Level) -> Level:
    """The level with so many bytes free; `before`: the one until now."""
    found = _plain(free, reserve)
    if found >= before:
        return found
    return min(before, _plain(free - free // _BACK_SHARE, reserve))


def _plain(free: int, reserve: int) -> Level:
    if free >= reserve:
        return Level.AMPLE
    if free >= reserve // 2:
        return Level.LOW
    return Level.SCARCE if free >= reserve // 4 else Level.LAST


def next_look_s(free: int, reserve: int) -> float:
    """Seconds until the disk has to be looked at again."""
    return min(_LOOK_MAX_S, max(_LOOK_MIN_S, (free - reserve) / _FILL_BYTES_PER_S))


class DiskRoom:
    """What this node knows of its own room and of others'. Changed by `disk_watch.py`."""

    def __init__(self, node_id: int, reserve: int) -> None:
        self.node_id = node_id
        self.reserve = reserve
        self.free = -1
        """Bytes, as last seen; -1 before the first look."""
        self.to_use = -1
        """The same less what segments of all that is in memory would take."""
        self.level = Level.AMPLE
        self.others: dict[int, int] = {}
        """Other nodes with less than their reserve, and how many bytes they have; 0: they take no
        entries."""
        self.exhausted = False
        """No WAL file could be begun here when the current one is full."""

    def saw(self, free: int, unbuilt: int = 0) -> bool:
        """So many bytes are free now, and segments of so many are still to be built; whether the
        level is another one."""
        before, self.free = self.level, free
        self.to_use = max(0, free - file_bytes(unbuilt))
        self.level = level_of(self.to_use, self.reserve, before)
        return self.level != before

    def takes_entries(self) -> bool:
        """Whether entries of ranges are taken from their leaders."""
        return not self.exhausted and self.level < Level.LAST

    @property
    def told_free(self) -> int | None:
        """What other nodes are told: the bytes that are free, None for the reserve or more."""
        if not self.takes_entries():
            return 0
        return self.free if self.level else None

    @property
    def exhausted_others(self) -> set[int]:
        """Other nodes that take no entries."""
        return {node for node, free in self.others.items() if free <= 0}

    def growth_refusal(self, members: Collection[int]) -> Overloaded | None:
        """Why the controller of these members takes no command that makes the metadata larger."""
        full = [node for node in members if node in self.exhausted_others]
        is_full = self.exhausted or 0 <= self.free < _GROWTH_BYTES
        if is_full and self.node_id in members:
            full.append(self.node_id)
        if not full:
            return None
        return Overloaded(
            f"the disk of node {', '.join(map(str, full))} is full, and the node has a "
            "replica of the metadata: nothing is created until there is room; free some",
            retry_after=RETRY_AFTER_S,
            reason="disk",
        )

    def spent(self, size: int) -> None:
        """Entries of so many bytes have come since the last look: they go into the WAL, and into
        segments later."""
        self.to_use -= size + file_bytes(size)
        if self.free >= 0 and self.to_use < self.reserve:
            self.level = max(self.level, _plain(self.to_use, self.reserve))

    @property
    def short(self) -> dict[int, int]:
        """All nodes known to have less than their reserve, this one too."""
        own = {self.node_id: self.free} if self.level else {}
        return {**self.others, **own}

    def told(self, node: int, free: int | None) -> None:
        """Another node says how many bytes it has; None: its reserve, or more."""
        if free is None:
            self.others.pop(node, None)
        else:
            self.others[node] = free

    def has_room(self, node: int) -> bool:
        """Whether the node, as far as is known, has its reserve."""
        return not self.level if node == self.node_id else node not in self.others

    def refusal(self, members: Collection[int]) -> Overloaded | None:
        """Why this node, as the leader of these members, takes no append; None: it does."""
        if not self.level and not self.others:
            return None
        short = [member for member in members if not self.has_room(member)]
        if self.node_id not in short and 2 * (len(members) - len(short)) > len(members):
            return None
        nodes = ", ".join(map(str, short))
        return Overloaded(
            f"little disk is left on node {nodes}: appends are refused until there is room; "
            "trim, delete or retention make some, or free some outside of lognode",
            retry_after=RETRY_AFTER_S,
            reason="disk",
        )

    @property
    def may_fetch(self) -> bool:
        """Whether files of others may be fetched, merged or read over now."""
        return self.level < Level.SCARCE

    def may_merge(self, size: int) -> bool:
        """Whether so many bytes of segments may be written anew now, before the old ones go."""
        return self.free < 0 or (self.may_fetch and self.free >= size + self.reserve)

    def may_build(self, size: int) -> bool:
        """Whether a segment of so many bytes of entries may be built now, which must not fill the
        disk. Files go only when what was removed is in meta, with the tables of a flush: one that
        leaves half of the room is always made."""
        left = min(self.reserve // 4, _BUILD_LEAVES_BYTES)
        needed = file_bytes(size)
        return self.free < 0 or 2 * needed <= self.free or needed + left <= self.free

    @property
    def memtables_bytes_max(self) -> int:
        """Bytes of memtables that segments can be built of before the reserve is reached."""
        if self.free < 0:
            return limits.memtables_bytes_max
        room = max(0, self.free - self.reserve) // 2
        return min(limits.memtables_bytes_max, max(room, limits.memtable_cold_bytes))
