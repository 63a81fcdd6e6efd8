"""Reading a WAL back: what is whole, what a crash tore off, and what is damaged.

An unsound round at the end of the newest file counts as torn off by a crash, unless a sound batch
says that the round was synced. Recovery cuts such a round, since no one was ever told of it.
Anything else is damage (x5): recovery still reads the sound batches after it, and reports every
group that may have lost an entry, a term or a vote. It never shortens a group's log silently.
"""

import itertools
from dataclasses import dataclass, field
from typing import Final

import google_crc32c

from ..client.protocol.errors import CorruptData
from . import wal_format
from .group_log import Place
from .types import Disk, GroupId
from .wal_format import BatchHead, EntryItem, NextItem, ResetItem, RetiredItem, StateItem
from .wal_scan import FileScan, Gap, file_name, file_number, is_spare, read_header, scan

_ZERO_CHUNK: Final = 1 << 20
GroupItem = EntryItem | StateItem | ResetItem | RetiredItem


@dataclass(slots=True)
class RecoveredGroup:
    """The recovered state of one group.

    The held entries follow (base_index, base_term) without a gap. That base lies above the base in
    `state` when an entry between them is missing; at the end of recovery that is damage.
    """

    base_index: int
    base_term: int
    state: StateItem | None = None
    places: list[Place] = field(default_factory=list)
    state_file: int = 0
    batches_at_state: int = 0

    @property
    def last_index(self) -> int:
        return self.base_index + len(self.places)

    @property
    def last_term(self) -> int:
        return self.places[-1].term if self.places else self.base_term

    def term_at(self, index: int) -> int:
        """Return the term of the base or of a held entry."""
        if index == self.base_index:
            return self.base_term
        return self.places[index - self.base_index - 1].term

    def begin_after(self, index: int, term: int) -> None:
        """Forget all entries: the log goes on after (index, term)."""
        self.places.clear()
        self.base_index, self.base_term = index, term

    def cut_after(self, index: int) -> None:
        """Forget the entries above `index`."""
        del self.places[max(0, index - self.base_index) :]

    def drop_front(self, index: int, term: int) -> None:
        """Forget the entries up to (index, term)."""
        if index >= self.last_index:
            self.begin_after(index, term)
        else:
            del self.places[: index - self.base_index]
            self.base_index, self.base_term = index, term


@dataclass(slots=True)
class Recovery:
    """The result of a recovery.

    `damaged` gives the reason per group; `notes` are for the operator.
    """

    files: list[int] = field(default_factory=list)
    spares: list[str] = field(default_factory=list)
    signature: bytes = b""
    """The signature of the newest file."""
    groups: dict[GroupId, RecoveredGroup] = field(default_factory=dict)
    retired: dict[GroupId, int] = field(default_factory=dict)
    damaged: dict[GroupId, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    damage: list[str] = field(default_factory=list)
    """Every damaged place."""
    last_round: int = 0
    end_offset: int = 0
    """The offset at which the newest file goes on. `end_limit`: the file's end, 0 if it must not be
    written any more."""
    end_limit: int = 0
    batches: int = 0
    torn: tuple[int, int, int] | None = None
    """The file, begin and end of the remains of rounds that were never synced."""


def recover(disk: Disk) -> Recovery:
    """Read all files, cut a torn tail, sync everything read. Raises OSError, CorruptData."""
    recovery = read(disk)
    if recovery.torn is not None:
        _zero(disk, *recovery.torn)
    for number in recovery.files:
        disk.sync(file_name(number))
    disk.sync_directory()
    return recovery


def read(disk: Disk) -> Recovery:
    """Find what `recover` finds, without any change. Memory: one file and the groups' indexes.

    Raises OSError, and CorruptData when a file is missing or has another version.
    """
    reader = _Reader(disk)
    numbers = reader.list_files()
    for number in numbers:
        header = read_header(disk, number + 1) if number != numbers[-1] else None
        reader.take(scan(disk, number, None if header is None else header.first_round))
    return reader.finish()


class _Reader:
    """Reads the files in order, and judges a damaged place as soon as it is known."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._recovery = Recovery()
        self._damage: list[tuple[str, int]] = []
        """The place, and the number of sound batches before it."""
        self._end: tuple[int, Gap] | None = None
        """The number and end of the file taken last, if its header was sound."""
        self._base = 0
        """The number of sound batches before the present file."""
        self._last_round = 0
        self._next: int | None = None

    def list_files(self) -> list[int]:
        """Return the numbers of the WAL's files. Raises CorruptData when a file is missing."""
        numbers = []
        for name in self._disk.names():
            number = file_number(name)
            if number is not None:
                numbers.append(number)
            elif is_spare(name):
                self._recovery.spares.append(name)
            else:
                self._recovery.notes.append(f"{name} is not a WAL file; the node ignores the file")
        numbers.sort()
        for before, after in itertools.pairwise(numbers):
            if after != before + 1:
                raise _missing(before + 1, "the file lies between "
                                           f"{file_name(before)} and "
                                           f"{file_name(after)}")  # fmt: skip
        self._recovery.files = numbers
        return numbers

    def take(self, found: FileScan) -> None:
        """Take the next file."""
        recovery, number = self._recovery, found.number
        newest = number == recovery.files[-1]
        self._next = None
        self._base = recovery.batches
        if found.header is None:
            self._hit(number, 0, "the header of the file is damaged")
            self._end = None
            recovery.end_limit = 0
            return
        self._follow(found)
        recovery.signature = found.header.signature
        recovery.end_limit = 0 if found.short else found.header.size
        recovery.end_offset = found.end.offset
        keep = self._judge(found) if newest else self._whole(found)
        for head in found.batches[:keep]:
            recovery.batches += 1
            self._replay(found.data, head, number)

    def finish(self) -> Recovery:
        """Return the result after all files were taken."""
        recovery = self._recovery
        if self._next is not None:
            raise _missing(
                self._next, f"the number of {file_name(recovery.files[-1])} ends the sequence"
            )
        recovery.last_round = self._last_round
        if recovery.files and not recovery.end_limit:
            # Lost rounds may have left no trace: the next round leaves a gap in the numbers, so
            # that every later start finds the damage again.
            recovery.last_round += 2
        for where, before in self._damage:
            recovery.notes.append(where)
            recovery.damage.append(where)
            for gid, group in recovery.groups.items():
                if group.batches_at_state <= before:
                    recovery.damaged.setdefault(gid, where)
        for gid, group in recovery.groups.items():
            if group.state is None:
                recovery.damaged.setdefault(gid, "its term and vote are missing")
            elif group.base_index > group.state.base_index:
                missing = f"entries {group.state.base_index + 1} to {group.base_index} are missing"
                recovery.damaged.setdefault(gid, missing)
        return recovery

    def _follow(self, found: FileScan) -> None:
        """Check that the previous file is whole to its end, now that the next round is known."""
        if self._end is None or found.header is None:
            return
        number, end = self._end
        if found.header.first_round < end.round:
            self._hit(found.number, 0, "its rounds do not follow each other")
        elif found.header.first_round > end.round + 1:
            # One round more is the round of NEXT, which holds no item of any group.
            self._hit(number, end.offset, "the file is damaged")

    def _whole(self, found: FileScan) -> int:
        """Return how many batches count in a file that another file follows.

        A file begins only when all earlier files are synced, so any missing batch is damage.
        """
        for gap in found.gaps:
            self._hit(found.number, gap.offset, "the file is damaged", gap.before)
        self._end = (found.number, found.end)
        self._last_round = found.end.round - 1
        return len(found.batches)

    def _judge(self, found: FileScan) -> int:
        """Return how many batches of the newest file count, without those that a crash tore off."""
        recovery, number = self._recovery, found.number
        for gap in (*found.gaps, found.end):
            behind = [*found.batches[gap.before :],
                      *(head for head in found.torn if head.offset >= gap.offset)]  # fmt: skip
            synced_through = max((head.synced_through for head in behind), default=0)
            if found.short or synced_through >= gap.round:
                self._hit(number, gap.offset, "it is cut" if found.short else "it is damaged",
                          gap.before)  # fmt: skip
                continue
            # No one was told of this round or of any later round.
            if behind:
                recovery.torn = (number, gap.offset, max(head.end for head in behind))
                recovery.notes.append(f"{file_name(number)}: a round that was never synced is cut "
                                      f"at byte {gap.offset}")  # fmt: skip
            recovery.end_offset = gap.offset
            self._last_round = gap.round - 1
            return gap.before
        heads = [*found.batches, *found.torn]
        recovery.end_offset = max((head.end for head in heads), default=found.end.offset)
        self._last_round = max((head.round for head in heads), default=found.end.round - 1)
        return len(found.batches)

    def _hit(self, number: int, offset: int, what: str, before: int = 0) -> None:
        """Note a damaged place after `before` sound batches of its file."""
        where = f"{file_name(number)}: {what} at byte {offset}"
        self._damage.append((where, self._base + before))

    def _replay(self, data: bytes, head: BatchHead, file: int) -> None:
        try:
            for item in wal_format.items(data, head):
                if isinstance(item, NextItem):
                    self._next = item.number
                else:
                    _apply(self._recovery, data, item, file)
        except ValueError as error:
            raise CorruptData(
                f"{file_name(file)}: {error}; a newer lognode wrote the file"
            ) from None


def _missing(number: int, how: str) -> CorruptData:
    return CorruptData(
        f"WAL file {file_name(number)} is missing: {how}. Restore the file; if the file is "
        "lost, delete all files of this WAL: after the next start the node rebuilds its "
        "replicas from their peers"
    )


def _apply(recovery: Recovery, data: bytes, item: GroupItem, file: int) -> None:
    gid = item.gid
    if isinstance(item, RetiredItem):
        recovery.groups.pop(gid, None)
        recovery.retired[gid] = file
        return
    group = recovery.groups.get(gid)
    if group is None:
        group = recovery.groups[gid] = RecoveredGroup(*_before(item))
    if isinstance(item, EntryItem):
        _apply_entry(group, data, item, file)
    elif isinstance(item, ResetItem):
        group.begin_after(item.position, item.term)
    else:
        _apply_state(group, item)
        group.state_file = file
        group.batches_at_state = recovery.batches


def _before(item: EntryItem | StateItem | ResetItem) -> tuple[int, int]:
    """Return the position of the log before the first item of a group in the files."""
    if isinstance(item, EntryItem):
        return item.position - 1, item.previous_term
    if isinstance(item, StateItem):
        return item.last_index, item.last_term
    return item.position, item.term


def _apply_entry(group: RecoveredGroup, data: bytes, item: EntryItem, file: int) -> None:
    before = item.position - 1
    group.cut_after(before)
    if (group.last_index, group.last_term) != (before, item.previous_term):
        # The writer held other entries than this group: an item between is lost, or was in a file
        # that was freed since all of its entries were cut.
        group.begin_after(before, item.previous_term)
    command = data[item.offset : item.offset + item.size]
    place = Place(item.term, item.size, google_crc32c.value(command))
    place.file, place.offset = file, item.offset
    group.places.append(place)


def _apply_state(group: RecoveredGroup, item: StateItem) -> None:
    if (group.last_index, group.last_term) != (item.last_index, item.last_term):
        group.begin_after(item.last_index, item.last_term)
    if item.base_index >= group.base_index:
        group.drop_front(item.base_index, item.base_term)
    group.state = item


def _zero(disk: Disk, file: int, begin: int, end: int) -> None:
    for start in range(begin, end, _ZERO_CHUNK):
        disk.write(file_name(file), start, [bytes(min(_ZERO_CHUNK, end - start))])
