"""Reading a WAL back: what is whole, what a crash tore off, and what is damaged.

A batch whose checksum fails is a torn tail when nothing sound comes after it and nothing sound
says that its round was synced; it is then cut, since nobody was ever told of it. Anything else is
damage (executions 1.5): sound batches after it are still read, and every group that may have lost
an entry, a term or a vote is reported, never silently shortened.
"""

import itertools
import re
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
_HASHED_MAX_FACTOR: Final = 64


def file_name(number: int) -> str:
    """The name of file `number`."""
    return f"{_PREFIX}{number:010d}"


@dataclass(slots=True)
class RecoveredGroup:
    """What the files say of one group.

    The entries held follow (base_index, base_term) without a gap. That base lies above the one in
    `state` when an entry between them is missing; at the end that is damage.
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
    """The outcome. `damaged` gives the reason per group; `notes` are for the operator."""

    files: list[int] = field(default_factory=list)
    signatures: dict[int, bytes] = field(default_factory=dict)
    groups: dict[GroupId, RecoveredGroup] = field(default_factory=dict)
    retired: dict[GroupId, int] = field(default_factory=dict)
    damaged: dict[GroupId, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    last_round: int = 0
    end_offset: int = 0
    """Where the newest file goes on, and where it ends; 0 when it must not be written any more."""
    end_limit: int = 0
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
    certain: bool
    """It is damage whatever comes after: the file is shorter than it was made, or was in use
    without a sound header. No crash of ours does that."""


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
        if group.state is None:
            recovery.damaged.setdefault(gid, "its term and vote are missing")
        elif group.base_index > group.state.base_index:
            missing = f"entries {group.state.base_index + 1} to {group.base_index} are missing"
            recovery.damaged.setdefault(gid, missing)
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
    recovery.files.append(number)
    recovery.end_limit = 0  # nor is the file before it written any more
    if header is None or header.number != number:
        # The header is durable before the first batch is written.
        used = _content_end(data) > wal_format.HEADER_BYTES
        bad.append(_Bad(number, 0, next_round, len(batches), certain=used))
        return
    signature = header.signature
    recovery.signatures[number] = signature
    short = len(data) < header.size
    recovery.end_limit = 0 if short else header.size
    content_end = _content_end(data)
    offset = wal_format.HEADER_BYTES
    while True:
        head = wal_format.decode_batch(data, offset, signature)
        if head is None:
            next_round = batches[-1].head.round + 1 if batches else 1
            if short or offset < content_end:
                bad.append(_Bad(number, offset, next_round, len(batches), certain=short))
            head = _next_sound(data, offset, content_end, signature, next_round)
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
        # A file is begun only when the one before it is synced to its end.
        followed = place.file != recovery.files[-1]
        if place.certain or followed or synced_through >= place.round:
            damage.append(place)
            continue
        # Nobody was told of this round or of any after it.
        del batches[place.before :]
        _cut(disk, recovery, place)
        break
    return damage


def _cut(disk: Disk, recovery: Recovery, place: _Bad) -> None:
    """Take the torn tail off the newest file."""
    if place.offset == 0:
        disk.delete(file_name(place.file))
        recovery.files.remove(place.file)
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
    recovery.last_round = head.round
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
    """Where the log stood before the first item of a group that the files hold."""
    if isinstance(item, EntryItem):
        return item.position - 1, item.previous_term
    if isinstance(item, StateItem):
        return item.last_index, item.last_term
    return item.position, item.term


def _apply_entry(group: RecoveredGroup, data: bytes, item: EntryItem, file: int) -> None:
    before = item.position - 1
    group.cut_after(before)
    if (group.last_index, group.last_term) != (before, item.previous_term):
        # What is held is not what the writer held: an item between is lost, or in a file that
        # was let go since all of its entries were cut.
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


def _next_sound(
    data: bytes, offset: int, content_end: int, signature: bytes, first_round: int
) -> BatchHead | None:
    """The first sound batch after a bad place, wherever it begins.

    Candidates are bytes that could be the round of one. What users write can look like that, so
    the bytes that may be hashed are bounded. Raises CorruptData when that is not enough.
    """
    skipped = wal_format.batch_end(data, offset)
    head = wal_format.decode_batch(data, skipped, signature) if skipped else None
    if head is not None:
        return head
    budget = _HASHED_MAX_FACTOR * len(data)
    last_round = first_round + _ROUND_AHEAD_MAX
    for found in _rounds(first_round, last_round).finditer(data, offset + 9, content_end):
        at = found.start() - 8
        end = wal_format.batch_end(data, at)
        round_ = int.from_bytes(data[at + 8 : at + 16], "big")
        if not end or not first_round <= round_ <= last_round:
            continue
        budget -= end - at
        if budget < 0:
            raise CorruptData(
                "a damaged WAL file cannot be told apart from what was written into it; "
                "remove this node and join it anew"
            )
        head = wal_format.decode_batch(data, at, signature)
        if head is not None:
            return head
    return None


def _rounds(first: int, last: int) -> "re.Pattern[bytes]":
    """Where eight bytes may stand that are a round from `first` to `last`, not much above it."""
    patterns = []
    for prefix in sorted({(round_ >> 24).to_bytes(5, "big") for round_ in (first, last)}):
        zeros = prefix == bytes(5)  # there is no round 0, and files are full of zeros
        patterns.append(re.escape(prefix) + (rb"(?!\0\0\0)" if zeros else b""))
    return re.compile(b"(?=" + b"|".join(patterns) + b")", re.DOTALL)


def _content_end(data: bytes) -> int:
    """The offset behind the last byte that is not zero."""
    end = len(data)
    while end:
        start = max(0, end - _ZERO_CHUNK)
        kept = len(data[start:end].rstrip(b"\0"))
        if kept:
            return start + kept
        end = start
    return 0


def _zero(disk: Disk, file: int, offset: int) -> None:
    size = disk.size(file_name(file))
    for start in range(offset, size, _ZERO_CHUNK):
        disk.write(file_name(file), start, [bytes(min(_ZERO_CHUNK, size - start))])
