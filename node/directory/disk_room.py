"""How much room a node's disk has, and what the node refuses without it: decisions, without I/O.

A full disk ends a node (S1: an append that cannot be written is not acknowledged), and a majority
of full disks ends a range. So a reserve is kept. Entries in memory count as if their segments were
built already, so that these can be built when appends are refused. While less than the reserve is
free:

    level       free below          what the node no longer does
    AMPLE
    LOW         the reserve         appends to ranges that this node leads; it hands them to
                                    members with room, where there are any, and keeps the WAL as
                                    short as possible
    SCARCE      half of it          fetching files of others' ranges, merging, scrubbing
    LAST        a quarter of it     building segments, except small ones: the rest is for the WAL
                                    and meta, which retention needs before files can go

Work that frees room continues at every level: trim, delete, retention, the end of generations.
Reads and the controller continue too. A range whose members mostly have no room refuses appends
even where its leader has room, because these members could not store entries for long.

The reserve is at least two WAL files, whatever the operator sets, because the next file needs the
room of one file. One WAL file is made ahead, so that a file can be begun on a disk that was filled
from outside between two looks. A node takes no entries of ranges from their leaders when it has no
file ahead and no room to make one, or less than a quarter of its reserve. It answers the leaders as
if the entries were lost on the way, and leaders that hear of it send none. So the rest of the WAL
serves terms, votes and the commands that free room.
"""

from collections.abc import Collection, Iterable
from enum import IntEnum

from ...client.protocol import limits
from ...client.protocol.errors import Overloaded

RETRY_AFTER_S = 1.0
_BACK_SHARE = 8
"""A level is left only when an eighth less free room would suffice too; otherwise it would flap."""
_FILL_BYTES_PER_S = 512 << 20
"""The highest rate at which a disk could fill: the next look comes before the reserve is used."""
_GROWTH_BYTES = 1 << 20
"""With less free room on a controller member, the metadata must not grow."""
_BUILD_LEAVES_BYTES = 8 << 20
"""Room that stays free while a segment is built; the next WAL file exists already."""
_LOOK_MIN_S = 0.25
_LOOK_MAX_S = 5.0


def reserve_bytes(wanted: int, wal_file_bytes: int) -> int:
    """Return the reserve of a node, given the bytes that its operator wants.

    The reserve is at least two WAL files, and each is at least as large as the largest entry.
    """
    return max(wanted, 2 * max(wal_file_bytes, limits.entry_bytes_max))


def file_bytes(entry_bytes: int) -> int:
    """Return the most bytes on disk of a segment of so many bytes of entries.

    A block has 16 KiB or more and begins on a page of its own. A block of slightly more than 16 KiB
    takes five pages of 4 KiB.
    """
    return entry_bytes + entry_bytes // 4


class Level(IntEnum):
    """How little room is left; see the module."""

    AMPLE = 0
    LOW = 1
    SCARCE = 2
    LAST = 3


def level_of(free: int, reserve: int, before: Level) -> Level:
    """Return the level with so many bytes free; `before` is the previous level."""
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
    """Return the seconds until the disk must be checked again."""
    return min(_LOOK_MAX_S, max(_LOOK_MIN_S, (free - reserve) / _FILL_BYTES_PER_S))


class DiskRoom:
    """The free room of this node and of others, as far as known. Changed by `disk_watch.py`."""

    def __init__(self, node_id: int, reserve: int) -> None:
        self.node_id = node_id
        self.reserve = reserve
        self.free = -1
        """Free bytes, as last seen; -1 before the first look."""
        self.to_use = -1
        """Free bytes, less the size of the segments of all that is in memory."""
        self._spent: int | None = None
        """While a look is under way: the bytes of entries since it began, with their segments."""
        self.level = Level.AMPLE
        self.others: dict[int, int] = {}
        """Free bytes of other nodes with less than their reserve; 0: the node takes no entries."""
        self.exhausted = False
        """No WAL file could be begun here when the current file is full."""

    def looking(self) -> None:
        """Begin a look: the entries in memory are counted now, which takes several turns."""
        self._spent = 0

    def saw(self, free: int, unbuilt: int = 0) -> bool:
        """Note the free bytes, and the bytes of entries without a segment yet.

        Return whether the level has changed.
        """
        before, self.free = self.level, free
        # What came during the look counts as not in memory yet; some of it then counts twice.
        spent, self._spent = self._spent or 0, None
        self.to_use = max(0, free - file_bytes(unbuilt) - spent)
        self.level = level_of(self.to_use, self.reserve, before)
        return self.level != before

    def tried_wal_file(self, *, made: bool) -> None:
        """Note whether a WAL file was made ahead, or could not be."""
        self.exhausted = bool(self.level) and not made

    def takes_entries(self) -> bool:
        """Whether this node takes entries of ranges from their leaders."""
        return not self.exhausted and self.level < Level.LAST

    @property
    def told_free(self) -> int | None:
        """Return the free bytes as reported to other nodes; None for the reserve or more."""
        if not self.takes_entries():
            return 0
        return self.free if self.level else None

    @property
    def exhausted_others(self) -> set[int]:
        """Other nodes that take no entries."""
        return {node for node, free in self.others.items() if free <= 0}

    def growth_refusal(self, members: Collection[int]) -> Overloaded | None:
        """Return why the controller of these members refuses commands that enlarge the metadata."""
        full = [node for node in members if node in self.exhausted_others]
        is_full = self.exhausted or 0 <= self.free < _GROWTH_BYTES
        if is_full and self.node_id in members:
            full.append(self.node_id)
        if not full:
            return None
        return Overloaded(
            f"the disk of node {', '.join(map(str, full))} is full, and the node has a "
            "replica of the metadata: the cluster creates nothing until the disk has space; "
            "free some space",
            retry_after=RETRY_AFTER_S,
            reason="disk",
        )

    def spent(self, size: int) -> None:
        """Count entries since the last look: they go into the WAL, and later into segments."""
        needed = size + file_bytes(size)
        if self._spent is not None:
            self._spent += needed
        self.to_use -= needed
        if self.free >= 0 and self.to_use < self.reserve:
            self.level = max(self.level, _plain(self.to_use, self.reserve))

    @property
    def short(self) -> dict[int, int]:
        """All nodes known to have less than their reserve, this node included."""
        own = {self.node_id: self.free} if self.level else {}
        return {**self.others, **own}

    def told_all(self, free: Iterable[tuple[int, int]]) -> None:
        """Take the free bytes of all nodes with less than their reserve, as the leader tells."""
        self.others = {node: left for node, left in free if node != self.node_id}

    def told(self, node: int, free: int | None) -> None:
        """Note the free bytes that another node reports; None: its reserve, or more."""
        if free is None:
            self.others.pop(node, None)
        else:
            self.others[node] = free

    def has_room(self, node: int) -> bool:
        """Whether the node has its reserve, as far as known."""
        return not self.level if node == self.node_id else node not in self.others

    def refusal(self, members: Collection[int]) -> Overloaded | None:
        """Return why this node, as the leader of these members, takes no append, or None."""
        if not self.level and not self.others:
            return None
        short = [member for member in members if not self.has_room(member)]
        if self.node_id not in short and 2 * (len(members) - len(short)) > len(members):
            return None
        nodes = ", ".join(map(str, short))
        return Overloaded(
            f"the disk of node {nodes} is almost full: the node refuses appends until the "
            "disk has space; trim or delete keys, lower the retention, or delete other files",
            retry_after=RETRY_AFTER_S,
            reason="disk",
        )

    @property
    def may_fetch(self) -> bool:
        """Whether files of others may be fetched, and files merged or scrubbed now."""
        return self.level < Level.SCARCE

    def may_merge(self, size: int) -> bool:
        """Whether so many bytes of segments may be rewritten now, before the old files go."""
        return self.free < 0 or (self.may_fetch and self.free >= size + self.reserve)

    def may_build(self, size: int) -> bool:
        """Whether a segment of so many bytes of entries may be built now without filling the disk.

        Files go only when meta knows the removals, with the tables of a flush. So a segment that
        leaves half of the room is always built.
        """
        left = min(self.reserve // 4, _BUILD_LEAVES_BYTES)
        needed = file_bytes(size)
        return self.free < 0 or 2 * needed <= self.free or needed + left <= self.free

    @property
    def memtables_bytes_max(self) -> int:
        """Return the bytes of memtables whose segments fit on the disk above the reserve."""
        if self.free < 0:
            return limits.memtables_bytes_max
        room = max(0, self.free - self.reserve) // 2
        return min(limits.memtables_bytes_max, max(room, limits.memtable_cold_bytes))
