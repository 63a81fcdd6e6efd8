"""The write-ahead log of a node, shared by all its groups: one write and one sync a round.

Between two rounds every group queues what it wants written. `collect` takes all of it as one
batch, `write` puts it on the disk and syncs it, on a thread that may block, and `complete` tells
the groups. A file is used until the next batch does not fit; the next file is written only after
the last round of this one is synced, so that what a power loss tears is always at the very end
(executions 1.5).
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from ..client import limits
from ..client.errors import CorruptData
from ..client.invariants import invariant
from . import wal_format
from .group_log import GroupLog, Place
from .types import SENTINEL_INDEX, SENTINEL_TERM, Disk, DiskFailure, GroupId
from .wal_recovery import Recovery, file_name, recover


@dataclass(slots=True)
class Round:
    """What one round writes: a batch in one file."""

    number: int
    must_sync: bool
    file: int
    offset: int
    buffers: list[bytes]
    rotate_bytes: int
    """Size of the file to begin for it, or 0 to go on in the current one."""
    groups: list[GroupId] = field(default_factory=list)


class Wal:
    """See the module. `open` recovers; `write` blocks; everything else is for one thread."""

    def __init__(
        self, disk: Disk, *, entropy: Callable[[int], bytes], file_bytes: int, recovery: Recovery
    ) -> None:
        self._disk = disk
        self._entropy = entropy
        self._file_bytes = file_bytes
        self.recovery = recovery
        self.groups: dict[GroupId, GroupLog] = {}
        self.synced_round = recovery.last_round
        self.open_round = recovery.last_round + 1
        self._files: list[int] = list(recovery.files)
        self._signatures: dict[int, bytes] = dict(recovery.signatures)
        self._retired: dict[GroupId, int] = dict(recovery.retired)
        self._file = recovery.files[-1] if recovery.files else 0
        self._offset = recovery.end_offset
        self._size = recovery.end_limit
        self._parts: list[bytes] = []
        self._part_bytes = 0
        self._pending_places: list[tuple[Place, int]] = []
        self._pending_states: dict[GroupId, None] = {}
        self._must_sync = False
        self._in_flight = False
        self._unsynced_write = False
        self._deletable: tuple[list[int], int] | None = None
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
        """Recover what the disk holds, make it durable (executions 1.4), and go on after it.

        Raises DiskFailure, CorruptData when a file is not one of a WAL.
        """
        try:
            recovery = recover(disk)
        except OSError as error:
            raise DiskFailure(f"the WAL cannot be read: {error}") from error
        return cls(disk, entropy=entropy, file_bytes=file_bytes, recovery=recovery)

    # Groups.

    def create_group(
        self, gid: GroupId, *, index: int = SENTINEL_INDEX, term: int = SENTINEL_TERM
    ) -> GroupLog:
        """A new group whose log begins after the sentinel (index, term)."""
        invariant(gid not in self.groups, "a group is created twice", gid=gid)
        invariant(gid not in self._retired, "a retired group is created again", gid=gid)
        log = GroupLog(gid, self, base_index=index, base_term=term)
        self.groups[gid] = log
        log.write_state(must_sync=True)
        return log

    def retire_group(self, gid: GroupId) -> None:
        """The group is no more; its entries may go and it can never be created again."""
        if self.groups.pop(gid, None) is not None:
            self.queue(wal_format.encode_retired(gid), must_sync=True)
            self._retired[gid] = 0

    def was_retired(self, gid: GroupId) -> bool:
        """Whether the group was here and was retired."""
        return gid in self._retired

    # Queueing, for GroupLog.

    def queue(self, item: bytes, *, must_sync: bool) -> None:
        """Add an item to the open round."""
        self._parts.append(item)
        self._part_bytes += len(item)
        self._must_sync |= must_sync

    def queue_entry(self, head: bytes, command: bytes, place: Place) -> None:
        """Add an entry to the open round; its place is known when the round is collected."""
        self._pending_places.append((place, self._part_bytes + len(head)))
        self._parts += (head, command)
        self._part_bytes += len(head) + len(command)
        self._must_sync = True

    def touched(self, log: GroupLog) -> None:
        """The group has something in the open round."""
        self._pending_states[log.gid] = None

    def read_place(self, place: Place) -> bytes:
        """An entry's command, from the disk."""
        invariant(place.file > 0, "an entry that was never written is read back")
        try:
            return self._disk.read(file_name(place.file), place.offset, place.size)
        except OSError as error:
            raise CorruptData(f"{file_name(place.file)} cannot be read: {error}") from error

    # Rounds.

    @property
    def dirty(self) -> bool:
        """Whether the open round holds anything."""
        return bool(self._parts)

    def collect(self) -> Round | None:
        """Close the open round and take it; None when it is empty. One at a time."""
        invariant(not self._in_flight, "a WAL round begins while another is written")
        if not self._parts:
            return None
        number = self.open_round
        batch_bytes = wal_format.BATCH_HEADER_BYTES + self._part_bytes
        rotate_bytes = 0
        if self._file == 0 or self._offset + batch_bytes > self._size:
            rotate_bytes = max(self._file_bytes, wal_format.HEADER_BYTES + batch_bytes)
            self._file += 1
            self._files.append(self._file)
            self._signatures[self._file] = self._entropy(wal_format.SIGNATURE_BYTES)
            self._offset = wal_format.HEADER_BYTES
            self._size = rotate_bytes
        signature = self._signatures[self._file]
        buffers = wal_format.encode_batch(signature, number, self.synced_round, self._parts)
        payload_at = self._offset + wal_format.BATCH_HEADER_BYTES
        for place, position in self._pending_places:
            place.file = self._file
            place.offset = payload_at + position
        for gid in self._pending_states:
            log = self.groups.get(gid)
            if log is not None:
                log.state_file = self._file
        for gid, file in self._retired.items():
            if file == 0:
                self._retired[gid] = self._file
        round_ = Round(
            number, self._must_sync, self._file, self._offset, buffers, rotate_bytes,
            list(self._pending_states),
        )  # fmt: skip
        self._offset += batch_bytes
        self.open_round += 1
        self._parts = []
        self._part_bytes = 0
        self._pending_places = []
        self._pending_states = {}
        self._must_sync = False
        self._in_flight = True
        return round_

    def write(self, round_: Round) -> None:
        """Write the round, and sync it where it must be. Blocks.

        Raises DiskFailure, after which nothing may be written or said any more (raft.md 2.12).
        """
        name = file_name(round_.file)
        try:
            if round_.rotate_bytes:
                self._begin_file(round_)
            self._disk.write(name, round_.offset, round_.buffers)
            self._unsynced_write = True
            if round_.must_sync:
                self._disk.sync(name)
                self._unsynced_write = False
        except OSError as error:
            raise DiskFailure(f"writing {name} failed: {error}") from error

    def complete(self, round_: Round) -> list[GroupId]:
        """The round was written. Returns the groups that had something in it."""
        self._in_flight = False
        if round_.must_sync:
            self.synced_round = round_.number
        return round_.groups

    def mark(self) -> None:
        """Queue an empty batch that repeats `synced_through` (executions 1.5)."""
        self.queue(b"", must_sync=False)

    # Files.

    def reclaim(self) -> None:
        """Delete the oldest files that nothing needs; blocks for the unlink.

        What is still needed of a file that holds no live entry (the newest STATE and RETIRED of
        each group) is queued again first, and the file goes at a later call, once that is synced
        (executions 1.3).
        """
        if self._deletable is not None:
            files, after = self._deletable
            if self.synced_round < after:
                return
            self._delete(files)
            self._deletable = None
        oldest_live = min(
            (log.oldest_file or self._file for log in self.groups.values()), default=self._file
        )
        files = [file for file in self._files if file < min(oldest_live, self._file)]
        if not files:
            return
        for log in self.groups.values():
            if log.state_file <= files[-1]:
                log.write_state(must_sync=True)
        for gid, file in self._retired.items():
            if file <= files[-1]:
                self.queue(wal_format.encode_retired(gid), must_sync=True)
                self._retired[gid] = 0
        self.mark()
        self._must_sync = True
        self._deletable = (files, self.open_round)

    def oldest_pins(self) -> dict[GroupId, int]:
        """Per group with live entries, the number of the oldest file that holds one."""
        found = ((gid, log.oldest_file) for gid, log in self.groups.items())
        return {gid: file for gid, file in found if file is not None}

    @property
    def file_count(self) -> int:
        """How many files there are."""
        return len(self._files)

    def _begin_file(self, round_: Round) -> None:
        if self._unsynced_write:
            self._disk.sync(file_name(round_.file - 1))
        name = file_name(round_.file)
        self._disk.create(name, round_.rotate_bytes)
        # Its length is durable before its header is: a file with a header that is too short is
        # damage, whatever the power did.
        self._disk.sync(name)
        header = wal_format.Header(round_.file, round_.rotate_bytes, self._signatures[round_.file])
        self._disk.write(name, 0, [wal_format.encode_header(header)])
        self._disk.sync(name)
        self._disk.sync_directory()

    def _delete(self, files: list[int]) -> None:
        try:
            for file in files:
                self._disk.delete(file_name(file))
                self._disk.sync_directory()
                self._files.remove(file)
                self._signatures.pop(file, None)
        except OSError as error:
            raise DiskFailure(f"deleting a WAL file failed: {error}") from error
