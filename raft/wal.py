"""The write-ahead log of a node, shared by all its groups: one write and one sync a round.

Between two rounds every group queues its items. `collect` takes all items as one batch. `write`
writes the batch to the disk and syncs it, on a thread that may block. `complete` tells the groups.
A file is used until the next batch does not fit. The next file is written only after the last round
of this file is synced, so that a power loss tears only the very end (x5). The oldest files are
freed first, and are used again.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

from ..client.protocol import limits
from ..client.protocol.errors import CorruptData
from ..client.protocol.invariants import invariant
from . import wal_format
from .group_log import GroupLog, Move, Place
from .types import SENTINEL_INDEX, SENTINEL_TERM, Disk, DiskFailure, GroupId
from .wal_files import WalFiles
from .wal_format import Header
from .wal_recovery import Recovery, recover
from .wal_scan import file_name

_REWRITTEN_MAX = 256
"""The number of groups whose state one `reclaim` writes again: a millisecond of the event loop."""
_LARGE_ROUND_BYTES = 64 << 10
"""The most bytes without need of a sync that wait for a round with a sync."""


@dataclass(frozen=True, slots=True)
class Rotation:
    """A file to begin before a round is written."""

    header: Header
    last: list[bytes] | None
    """The batch with NEXT that ends the previous file, at `last_offset`; None if that file must not
    be written."""
    last_offset: int


@dataclass(slots=True)
class Round:
    """The content of one round: a batch in one file."""

    number: int
    must_sync: bool
    file: int
    offset: int
    buffers: list[bytes]
    rotation: Rotation | None
    groups: list[GroupId] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)


class Wal:
    """See the module. `open` recovers; `write` blocks; all other calls come from one thread."""

    def __init__(
        self, disk: Disk, *, entropy: Callable[[int], bytes], file_bytes: int, recovery: Recovery
    ) -> None:
        self._disk = disk
        self._entropy = entropy
        self._file_bytes = file_bytes
        self._on_disk = WalFiles(disk, file_bytes=file_bytes, spares=recovery.spares)
        self.recovery = recovery
        self.groups: dict[GroupId, GroupLog] = {}
        self.synced_round = recovery.last_round
        self.open_round = recovery.last_round + 1
        self._files: list[int] = list(recovery.files)
        self._signature = recovery.signature
        self._retired: dict[GroupId, int] = dict(recovery.retired)
        self._file = recovery.files[-1] if recovery.files else 0
        self._offset = recovery.end_offset
        self._size = recovery.end_limit
        self._parts: list[bytes] = []
        self._part_bytes = 0
        self._pending_places: list[tuple[Place, int]] = []
        self._pending_moves: list[Move] = []
        self._touched: dict[GroupId, None] = {}
        self._stated: dict[GroupId, None] = {}
        self._pending_retired: list[GroupId] = []
        self._must_sync = False
        self._in_flight = False
        self._unsynced_write = False
        self._going: int | None = None
        """The last of the files that `reclaim` is about to free; None while it frees no files."""
        self._going_round: int | None = None
        """The round that must be synced before these files are freed."""
        self.syncs = 0
        """The number of file syncs."""
        for gid, recovered in recovery.groups.items():
            log = GroupLog(gid, self, base_index=recovered.base_index,
                           base_term=recovered.base_term)  # fmt: skip
            log.adopt(recovered.places, recovered.state)
            log.state_file = recovered.state_file
            self.groups[gid] = log

    @classmethod
    def open(
        cls,
        disk: Disk,
        *,
        entropy: Callable[[int], bytes],
        file_bytes: int = limits.wal_file_bytes,
    ) -> "Wal":
        """Recover the content of the disk, make it durable (x4), and go on after it.

        Raises DiskFailure, and CorruptData when a file is not a WAL file.
        """
        try:
            recovery = recover(disk)
            return cls(disk, entropy=entropy, file_bytes=file_bytes, recovery=recovery)
        except OSError as error:
            raise DiskFailure.of("recovery of", error, "the WAL") from error

    # Groups.

    def create_group(
        self, gid: GroupId, *, index: int = SENTINEL_INDEX, term: int = SENTINEL_TERM
    ) -> GroupLog:
        """Create a group whose log begins after the sentinel (index, term)."""
        invariant(gid not in self.groups, "the node would create a group twice", gid=gid)
        invariant(gid not in self._retired, "the node would create a retired group again", gid=gid)
        log = GroupLog(gid, self, base_index=index, base_term=term)
        self.groups[gid] = log
        log.write_state(must_sync=True)
        return log

    def retire_group(self, gid: GroupId) -> None:
        """Retire the group: its entries may be freed, and it can never be created again."""
        if self.groups.pop(gid, None) is not None:
            self.queue(wal_format.encode_retired(gid), must_sync=True)
            self._retired[gid] = 0
            self._pending_retired.append(gid)

    def was_retired(self, gid: GroupId) -> bool:
        """Whether the group was here and was retired, according to the present files."""
        return gid in self._retired

    # Queueing, for GroupLog.

    def queue(self, item: bytes, *, must_sync: bool) -> None:
        """Add an item to the open round."""
        self._parts.append(item)
        self._part_bytes += len(item)
        self._must_sync |= must_sync

    def queue_entry(self, head: bytes, command: bytes, place: Place) -> None:
        """Add an entry to the open round. `collect` sets its place."""
        self._pending_places.append((place, self._part_bytes + len(head)))
        self._parts += (head, command)
        self._part_bytes += len(head) + len(command)
        self._must_sync = True

    def queue_move(self, head: bytes, command: bytes, move: Move) -> None:
        """Add an already written entry to the open round, so that it is there as well."""
        self._pending_moves.append(move)
        self.queue_entry(head, command, move.new)

    def touched(self, log: GroupLog, *, state: bool) -> None:
        """Note that the group has an item in the open round.

        `state`: the item is its newest STATE.
        """
        self._touched[log.gid] = None
        if state:
            self._stated[log.gid] = None

    def read_place(self, place: Place) -> bytes:
        """Read an entry's command from the disk."""
        invariant(place.file > 0, "the node would read an entry that was never written")
        try:
            return self._disk.read(file_name(place.file), place.offset, place.size)
        except OSError as error:
            raise CorruptData(f"{file_name(place.file)} cannot be read: {error}") from error

    # Rounds.

    @property
    def dirty(self) -> bool:
        """Whether the open round holds anything."""
        return bool(self._parts)

    @property
    def urgent(self) -> bool:
        """Whether to write the open round now: it must be durable, or has become large."""
        return self._must_sync or self._part_bytes > _LARGE_ROUND_BYTES

    @property
    def all_synced(self) -> bool:
        """Whether everything that was ever queued is on the disk."""
        return not self._parts and self.synced_round == self.open_round - 1

    def require_sync(self) -> int:
        """Make the open round sync, and with it everything queued before. Return its number."""
        if not self._parts:
            self.mark()
        self._must_sync = True
        return self.open_round

    def collect(self) -> Round | None:
        """Close the open round and take it; None when it is empty.

        Only one round is in flight at a time.
        """
        invariant(not self._in_flight, "a WAL round would begin during another round")
        if not self._parts:
            return None
        batch_bytes = wal_format.BATCH_HEADER_BYTES + self._part_bytes
        rotation = None
        if self._offset + batch_bytes + wal_format.LAST_BATCH_BYTES > self._size:
            rotation = self._rotate(batch_bytes)
        number = self.open_round
        buffers = wal_format.encode_batch(self._signature, number, self.synced_round, self._parts)
        payload_at = self._offset + wal_format.BATCH_HEADER_BYTES
        for place, position in self._pending_places:
            place.file = self._file
            place.offset = payload_at + position
        for gid in self._stated:
            log = self.groups.get(gid)
            if log is not None:
                log.state_file = self._file
        for gid in self._pending_retired:
            self._retired[gid] = self._file
        round_ = Round(
            number, self._must_sync, self._file, self._offset, buffers, rotation,
            list(self._touched), self._pending_moves,
        )  # fmt: skip
        self._offset += batch_bytes
        self.open_round += 1
        self._parts = []
        self._part_bytes = 0
        self._pending_places = []
        self._pending_moves = []
        self._touched = {}
        self._stated = {}
        self._pending_retired = []
        self._must_sync = False
        self._in_flight = True
        return round_

    def _rotate(self, batch_bytes: int) -> Rotation:
        """Go on in the next file, after a batch with NEXT that names it."""
        number = self._file + 1
        last = None
        if self._size:
            next_item = [wal_format.encode_next(number)]
            last = wal_format.encode_batch(
                self._signature, self.open_round, self.synced_round, next_item
            )
            self.open_round += 1
        last_offset = self._offset
        needed = wal_format.HEADER_BYTES + batch_bytes + wal_format.LAST_BATCH_BYTES
        self._signature = self._entropy(wal_format.SIGNATURE_BYTES)
        header = Header(number, max(self._file_bytes, needed), self.open_round, self._signature)
        self._file, self._offset, self._size = number, wal_format.HEADER_BYTES, header.size
        self._files.append(number)
        return Rotation(header, last, last_offset)

    def write(self, round_: Round) -> None:
        """Write the round, and sync it if it must be synced. Blocks.

        Raises DiskFailure; after that the node may write and send nothing any more (hole 12).
        """
        name = file_name(round_.file)
        try:
            if round_.rotation is not None:
                self._begin_file(round_.rotation)
            self._disk.write(name, round_.offset, round_.buffers)
            self._unsynced_write = True
            if round_.must_sync:
                self._sync(name)
        except OSError as error:
            raise DiskFailure.of("writing", error, name) from error

    def written(self, *, synced: bool) -> None:
        """Note that another writer has written a round, as `write` does, and whether the sync of
        the round has succeeded."""
        self._unsynced_write = not synced
        self.syncs += synced

    def complete(self, round_: Round) -> list[GroupId]:
        """Note that the round was written. Return the groups that had an item in it."""
        self._in_flight = False
        if round_.must_sync:
            self.synced_round = round_.number
        for move in round_.moves:
            move.log.moved(move)
        return round_.groups

    def mark(self) -> None:
        """Queue an empty batch that repeats `synced_through` (x5)."""
        self.queue(b"", must_sync=False)

    # Files.

    def reclaim(self) -> list[int]:
        """Return the oldest files that nothing needs any more, to be given to `let_go`.

        A file without a live entry may still hold the newest STATE of some groups. These STATE
        items are queued again first, a bounded number a call. A later call returns the files, once
        everything queued is synced, including the items that freed their entries (x3). A RETIRED
        item goes with its file: everything of that group lies in this file and in older files,
        which go first. The node's mark in meta ensures that the generation is not begun again.
        """
        if self._going is None:
            oldest_live = min(
                (log.oldest_file or self._file for log in self.groups.values()),
                default=self._file,
            )
            last = min(oldest_live, self._file) - 1
            if not self._worth_it(last):
                return []
            self._going = last
        if self._rewrite(self._going):
            return []
        if self._going_round is None:
            self._going_round = self.require_sync()
        if self._going_round > self.synced_round:
            return []
        going = [file for file in self._files if file <= self._going]
        del self._files[: len(going)]
        for gid in [gid for gid, file in self._retired.items() if 0 < file <= self._going]:
            del self._retired[gid]
        self._going = self._going_round = None
        return going

    def _worth_it(self, last: int) -> bool:
        """Whether the files up to `last` have more than twice the bytes that must be rewritten.

        Otherwise many groups over small files would be rewritten for ever.
        """
        files = sum(1 for file in self._files if file <= last)
        states = sum(1 for log in self.groups.values() if log.state_file <= last)
        return files * self._file_bytes > 2 * wal_format.STATE_BYTES * states

    def _rewrite(self, last: int) -> bool:
        """Queue the STATE items of files up to `last` again. Return whether there was one."""
        states = (
            log for gid, log in self.groups.items()
            if log.state_file <= last and gid not in self._stated
        )  # fmt: skip
        stale = list(itertools.islice(states, _REWRITTEN_MAX))
        for log in stale:
            log.write_state(must_sync=True)
        return bool(stale)

    def let_go(self, files: list[int]) -> None:
        """Make these files spares or delete them, the oldest first. Blocks.

        Call this on the thread of `write`, never while it writes. Another writer may write to the
        newest file meanwhile. Raises DiskFailure.
        """
        for file in files:
            try:
                self._on_disk.let_go(file)
            except OSError as error:
                raise DiskFailure.of("freeing", error, file_name(file)) from error

    def rewrite(self, gid: GroupId) -> bool:
        """Write all entries of a group again, so that it no longer keeps the oldest files.

        This is for a group that cannot be checkpointed. Returns False for a group with more bytes
        than a round should carry. Raises CorruptData, with nothing queued, when an entry cannot be
        read back.
        """
        log = self.groups[gid]
        if log.held_bytes > limits.wal_rewrite_bytes_max:
            return False
        log.rewrite()
        return True

    def oldest_pins(self) -> dict[GroupId, int]:
        """Return, per group with live entries, the number of the oldest file that holds one."""
        found = ((gid, log.oldest_file) for gid, log in self.groups.items())
        return {gid: file for gid, file in found if file is not None}

    @property
    def file_bytes(self) -> int:
        """The usual size of a file."""
        return self._file_bytes

    @property
    def has_spare(self) -> bool:
        """Whether the next file of the usual size needs no room on the disk."""
        return self._on_disk.has_spare

    def make_spare(self, settle: Callable[[str], None]) -> None:
        """Make a file ahead, unless a spare exists. Blocks; on any thread, one call at a time.

        `settle` is called with the name of the written file, before the file is synced: `settle`
        may write the file back at its own pace. Raises OSError, with nothing changed: a full disk
        is not a failure yet.
        """
        self._on_disk.make_spare(settle)

    @property
    def file_count(self) -> int:
        """The number of files."""
        return len(self._files)

    def _begin_file(self, rotation: Rotation) -> None:
        number = rotation.header.number
        if self._unsynced_write:
            self._sync(file_name(number - 1))
        self._on_disk.begin(rotation.header)
        self.syncs += 1
        if rotation.last is not None:
            self._disk.write(file_name(number - 1), rotation.last_offset, rotation.last)
            self._sync(file_name(number - 1))

    def _sync(self, name: str) -> None:
        try:
            self._disk.sync(name)
        except OSError as error:
            raise DiskFailure.of("fdatasync of", error, name) from error
        self._unsynced_write = False
        self.syncs += 1
