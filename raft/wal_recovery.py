"""Reading a WAL back: what is whole, what a crash tore off, and what is damaged.

A batch whose checksum fails is a torn tail when nothing sound comes after it and nothing sound
says that its round was synced; it is then cut, since nobody was ever told of it. Anything else is
damage (executions 1.5): sound batches after it are still read, and every group that may have lost
an entry, a term or a vote is reported, never silently shortened.
"""

import itertools
from dataclasses import dataclass, field
from typing import Final

import google_crc32c

from ..client.errors import CorruptData
from . import wal_format
from .group_log import Place
from .types import Disk, GroupId
from .wal_format import BatchHead, EntryItem, ResetItem, RetiredItem, StateItem

_PREFIX: Final = "wal-"
_ROUND_AHEAD_MAX: Final = 1 << 20
_ZERO_CHUNK: Final = 1 << 20


def file_name(number: int) -> str:
    """The name of file `number`."""
    return f"{_PREFIX}{number:010d}"


@dataclass(slots=True)
class RecoveredGroup:
    """What the files say of one group."""

    state: StateItem
    places: list[Place] = field(default_factory=list)
    state_file: int = 0
    missing_to: int = 0
    """The highest index known to be missing; no damage when the base is above it in the end."""
    has_state: bool = False
    batches_at_state: int = 0

    @property
    def last_index(self) -> int:
        return self.state.base_index + len(self.places)


@dataclass(slots=True)
class Recovery:
    """The outcome. `damaged` gives the reason per group; `notes` are for the operator."""

    files: list[int] = field(default_factory=list)
    signatures: dict[int, bytes] = field(default_factory=dict)
    groups: dict[GroupId, RecoveredGroup] = field(default_factory=dict)
    retired: dict[GroupId, int] = field(default_factory=dict)
    damaged: dict[GroupId, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    last_round: int = 0
    end_offset: int = 0
    batches: int = 0


@dataclass(frozen=True, slots=True)
class _Batch:
    """A sound batch and the file it is in."""

    file: int
    head: BatchHead


@dataclass(frozen=True, slots=True)
class _Bad:
    """A place where bytes stand that are no sound batch.

    `round` is the one that should begin there, `before` counts the sound batches before it.
    """

    file: int
    offset: int
    round: int
    before: int
    short: bool
    """The file is shorter than it was made: something cut it, and no crash of ours does."""


def recover(disk: Disk) -> Recovery:
    """Read all files, cut a torn tail, sync everything read. Raises OSError, CorruptData."""
    recovery = Recovery()
    numbers = _file_numbers(disk, recovery)
    batches: list[_Batch] = []
    bad: list[_Bad] = []
    for number in numbers:
        _scan(disk, number, recovery, batches, bad)
    damage = _judge(disk, recovery, bad, batches)
    _replay_all(disk, recovery, batches)
    for place in damage:
        _mark_damage(recovery, place)
    for gid, group in recovery.groups.items():
        if group.missing_to > group.state.base_index:
            recovery.damaged.setdefault(gid, f"entries up to {group.missing_to} are missing")
        if not group.has_state:
            recovery.damaged.setdefault(gid, "its term and vote are missing")
    for number in recovery.files:
        disk.sync(file_name(number))
    disk.sync_directory()
    return recovery


def _scan(
    disk: Disk, number: int, recovery: Recovery, batches: list[_Batch], bad: list[_Bad]
) -> None:
    """Find the sound batches of a file and the places where there should be one."""
    data = disk.read(file_name(number), 0, disk.size(file_name(number)))
    header = wal_format.decode_header(data)
    next_round = batches[-1].head.round + 1 if batches else 1
    if header is None or header.number != number:
        bad.append(_Bad(number, 0, next_round, len(batches), short=False))
        return
    signature = header.signature
    recovery.files.append(number)
    recovery.signatures[number] = signature
    short = len(data) < header.size
    offset = wal_format.HEADER_BYTES
    while True:
        head = wal_format.decode_batch(data, offset, signature)
        if head is None:
            next_round = batches[-1].head.round + 1 if batches else 1
            if not _any_nonzero(data, offset):
                if short:
                    bad.append(_Bad(number, offset, next_round, len(batches), short))
                return
            bad.append(_Bad(number, offset, next_round, len(batches), short))
            head = _next_sound(data, offset, signature, next_round)
            if head is None:
                return
        batches.append(_Batch(number, head))
        offset = head.end


def _judge(disk: Disk, recovery: Recovery, bad: list[_Bad], batches: list[_Batch]) -> list[_Bad]:
    """Cut the torn tail, if there is one; return the places that are damage."""
    damage = []
    for place in bad:
        behind = batches[place.before :]
        synced_through = max((batch.head.synced_through for batch in behind), default=0)
        if place.short or synced_through >= place.round or (place.offset == 0 and behind):
            damage.append(place)
            continue
        # Nobody was told of this round or of any after it: all of them go, across files.
        del batches[place.before :]
        _cut(disk, recovery, place)
        break
    return damage


def _cut(disk: Disk, recovery: Recovery, place: _Bad) -> None:
    for number in [file for file in recovery.files if file > place.file]:
        disk.delete(file_name(number))
        recovery.files.remove(number)
        del recovery.signatures[number]
    if place.offset == 0:
        disk.delete(file_name(place.file))
        recovery.notes.append(f"{file_name(place.file)} was not finished when the node ended")
        return
    _zero(disk, place.file, place.offset)
    recovery.notes.append(
        f"{file_name(place.file)}: a round that was never synced is cut at byte {place.offset}"
    )


def _replay_all(disk: Disk, recovery: Recovery, batches: list[_Batch]) -> None:
    data, loaded = b"", 0
    for batch in batches:
        if batch.file != loaded:
            loaded = batch.file
            data = disk.read(file_name(loaded), 0, disk.size(file_name(loaded)))
        _replay(recovery, data, batch.head, batch.file)
    if recovery.files:
        last = recovery.files[-1]
        ends = [batch.head.end for batch in batches if batch.file == last]
        recovery.end_offset = ends[-1] if ends else wal_format.HEADER_BYTES


def _file_numbers(disk: Disk, recovery: Recovery) -> list[int]:
    numbers = []
    for name in disk.names():
        if name.startswith(_PREFIX) and name[len(_PREFIX) :].isdigit():
            numbers.append(int(name[len(_PREFIX) :]))
        else:
            recovery.notes.append(f"{name} is not a WAL file; it is left alone")
    numbers.sort()
    for before, after in itertools.pairwise(numbers):
        if after != before + 1:
            raise CorruptData(
                f"WAL file {file_name(before + 1)} is missing between {file_name(before)} and "
                f"{file_name(after)}; bring it back, or remove this node and join it anew"
            )
    return numbers


def _mark_damage(recovery: Recovery, place: _Bad) -> None:
    where = f"{file_name(place.file)} is damaged at byte {place.offset}"
    recovery.notes.append(where)
    for gid, group in recovery.groups.items():
        if group.batches_at_state <= place.before:
            recovery.damaged.setdefault(gid, where)


def _replay(recovery: Recovery, data: bytes, head: BatchHead, file: int) -> None:
    recovery.batches += 1
    recovery.last_round = max(recovery.last_round, head.round)
    try:
        for item in wal_format.items(data, head):
            _apply(recovery, data, item, file)
    except ValueError as error:
        raise CorruptData(f"{file_name(file)}: {error}; a newer lognode wrote it") from None


def _apply(recovery: Recovery, data: bytes, item: wal_format.Item, file: int) -> None:
    gid = item.gid
    if isinstance(item, RetiredItem):
        recovery.groups.pop(gid, None)
        recovery.retired[gid] = file
        return
    if gid in recovery.retired:
        return
    group = recovery.groups.get(gid)
    if group is None:
        base = item.position - 1 if isinstance(item, EntryItem) else _base_of(item)
        group = RecoveredGroup(StateItem(gid, 0, 0, 0, base, base, 0))
        recovery.groups[gid] = group
    if isinstance(item, EntryItem):
        _apply_entry(group, data, item, file)
    elif isinstance(item, ResetItem):
        group.places.clear()
        group.missing_to = 0
        group.state = group.state._replace(base_index=item.position, base_term=item.term)
    else:
        _apply_state(group, item, file, recovery.batches)


def _base_of(item: StateItem | ResetItem) -> int:
    return item.base_index if isinstance(item, StateItem) else item.position


def _apply_entry(group: RecoveredGroup, data: bytes, item: EntryItem, file: int) -> None:
    base = group.state.base_index
    if item.position <= base:
        # Of a file that should be gone: what it holds lies behind the base.
        return
    if item.position > group.last_index + 1:
        group.missing_to = max(group.missing_to, item.position - 1)
        group.places.clear()
        group.state = group.state._replace(base_index=item.position - 1, base_term=0)
    del group.places[item.position - group.state.base_index - 1 :]
    command = data[item.offset : item.offset + item.size]
    place = Place(item.term, item.size, google_crc32c.value(command))
    place.file, place.offset = file, item.offset
    group.places.append(place)


def _apply_state(group: RecoveredGroup, item: StateItem, file: int, batches: int) -> None:
    if item.last_index != group.last_index and item.last_index > item.base_index:
        group.missing_to = max(group.missing_to, item.last_index, group.last_index)
    base = group.state.base_index
    if item.base_index >= base:
        gone = item.base_index - base
        if gone > len(group.places):
            group.places.clear()
        else:
            del group.places[:gone]
        group.state = item
    else:
        group.state = item._replace(base_index=base, base_term=group.state.base_term)
    group.has_state = True
    group.state_file = file
    group.batches_at_state = batches


def _next_sound(data: bytes, offset: int, signature: bytes, first_round: int) -> BatchHead | None:
    """The first sound batch after a bad place, looked for at every byte that could begin one."""
    limit = len(data) - wal_format.BATCH_HEADER_BYTES
    at = offset + 1
    while at <= limit:
        length = int.from_bytes(data[at : at + 4], "big")
        round_ = int.from_bytes(data[at + 8 : at + 16], "big")
        if first_round <= round_ <= first_round + _ROUND_AHEAD_MAX and at + length <= limit:
            head = wal_format.decode_batch(data, at, signature)
            if head is not None:
                return head
        at += 1
        if data[at] == 0 and not _any_nonzero(data, at):
            return None
    return None


def _any_nonzero(data: bytes, offset: int) -> bool:
    for start in range(offset, len(data), _ZERO_CHUNK):
        if data[start : start + _ZERO_CHUNK].strip(b"\0"):
            return True
    return False


def _zero(disk: Disk, file: int, offset: int) -> None:
    size = disk.size(file_name(file))
    for start in range(offset, size, _ZERO_CHUNK):
        disk.write(file_name(file), start, [bytes(min(_ZERO_CHUNK, size - start))])
