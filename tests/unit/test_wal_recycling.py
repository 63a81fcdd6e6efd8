"""WAL files that are used again: at every step of it, and with old bytes behind every end."""

import contextlib
import random
from functools import partial
from typing import Any

import pytest
import raft_wal
from raft_wal import sync

from lognode.chaos.sim.disk import Died, SimDisk
from lognode.client.protocol.errors import CorruptData
from lognode.raft import wal, wal_format, wal_scan
from lognode.raft.types import GroupId
from lognode.raft.wal import Wal
from lognode.raft.wal_files import SPARES_MAX, WalFiles
from lognode.raft.wal_recovery import read, recover
from lognode.raft.wal_scan import file_name, file_number, is_spare, spare_name

BUSY, IDLE, GONE = GroupId(1, 1), GroupId(2, 1), GroupId(3, 1)
FILE_BYTES = 2048
open_wal = partial(raft_wal.open_wal, file_bytes=FILE_BYTES)


class Watched(SimDisk):
    """Knows which files were used again."""

    recycled = 0

    def rename(self, old: str, new: str) -> None:
        content = self.read(old, wal_format.HEADER_BYTES, FILE_BYTES)
        if file_number(new) is not None and content.strip(b"\0"):
            self.recycled += 1
        super().rename(old, new)


def reclaim(wal: Wal) -> None:
    """What maintenance does, until nothing goes any more."""
    for _ in range(3):
        wal.let_go(wal.reclaim())
        sync(wal)


def payload(index: int) -> bytes:
    return b"\0%d " % index + random.Random(index).randbytes(90 + index % 200)


def grow(wal: Wal, entries: int, promised: dict[str, Any] | None = None) -> None:
    """A busy range: entries, commits, cuts; files come and go."""
    log = wal.groups[BUSY]
    promised = {} if promised is None else promised
    for index in range(log.last_index + 1, log.last_index + 1 + entries):
        log.append(index, 1, payload(index))
        sync(wal)
        promised["last"] = index
        log.set_commit(index)
        if index % 7 == 0:
            # Before it is: a cut may be durable although nobody was told.
            promised["cut"] = index - 2
            log.cut_front(index - 2)
            if index % 2:
                sync(wal)
            reclaim(wal)


def grow_pinned(wal: Wal) -> None:
    """Three files more, and nothing goes."""
    log = wal.groups[BUSY]
    until = wal.file_count + 3
    while wal.file_count < until:
        log.append(log.last_index + 1, 1, payload(log.last_index + 1))
        sync(wal)


def begun(disk: SimDisk, promised: dict[str, Any] | None = None) -> Wal:
    """A busy group, one that only voted, and one that is over."""
    promised = {} if promised is None else promised
    wal: Wal = open_wal(disk)
    for gid in (BUSY, IDLE, GONE):
        wal.create_group(gid)
    wal.groups[IDLE].set_hard_state(7, 3)
    sync(wal)
    wal.retire_group(GONE)
    sync(wal)
    promised["begun"] = True
    return wal


def names(disk: SimDisk) -> list[str]:
    """The files in use."""
    return [name for name in disk.names() if file_number(name) is not None]


def check(disk: SimDisk, promised: dict[str, Any]) -> None:
    wal = open_wal(disk)
    assert not wal.recovery.damaged, wal.recovery.notes
    if not promised.get("begun"):
        return
    assert (wal.groups[IDLE].term, wal.groups[IDLE].vote) == (7, 3)
    assert GONE not in wal.groups
    log = wal.groups[BUSY]
    assert log.last_index >= promised.get("last", 1)
    assert log.base_index <= promised.get("cut", 1)
    for index in range(log.first_index, log.last_index + 1):
        assert log.entry(index).command == payload(index)


def script(disk: SimDisk, promised: dict[str, Any]) -> None:
    grow(begun(disk, promised), 45, promised)


@pytest.mark.slow
@pytest.mark.parametrize("power", [False, True], ids=["kill", "power"])
def test_S1_S2_x3_x5_crash_at_every_step_of_recycling(power: bool) -> None:
    whole = Watched(random.Random(0))
    script(whole, {})
    assert whole.recycled > 3, "the script uses no file again"
    for crash_at in range(1, whole.operations + 1):
        for seed in range(3 if power else 1):
            disk = SimDisk(random.Random(seed * 1000 + crash_at))
            disk.die_at = crash_at
            promised: dict[str, Any] = {}
            with pytest.raises(Died):
                script(disk, promised)
            disk.die_at = None
            if power:
                disk.lose_power()
            check(disk, promised)
            check(disk, promised)  # recovery leaves what recovery can read
            # And it goes on, with the spares that are left.
            if promised.get("begun"):
                again = open_wal(disk)
                grow(again, 12, promised)
                assert len(disk.names()) <= 8
                disk.lose_power()
                check(disk, promised)


def test_x5_crash_while_a_recycled_file_is_recovered() -> None:
    whole = SimDisk(random.Random(0))
    script(whole, {})
    for crash_at in range(whole.operations // 2, whole.operations + 1, 2):
        disk = SimDisk(random.Random(crash_at))
        disk.die_at = crash_at
        promised: dict[str, Any] = {}
        with pytest.raises(Died):
            script(disk, promised)
        disk.lose_power()
        for second in range(1, 6):
            disk.die_at = disk.operations + second
            with contextlib.suppress(Died):
                open_wal(disk)
            disk.die_at = None
            disk.lose_power()
        check(disk, promised)


def test_files_and_spares_stay_few_and_nothing_is_made_anew() -> None:
    disk = Watched(random.Random(1))
    wal = begun(disk)
    grow(wal, 40)
    made = disk.recycled
    before = len(names(disk))
    grow(wal, 400)
    assert disk.recycled - made > 20
    assert len([name for name in disk.names() if is_spare(name)]) <= SPARES_MAX
    assert len(names(disk)) <= before + 2


def test_x5_old_bytes_behind_the_end_are_neither_damage_nor_entries() -> None:
    """At every end that the newest file can have, after an orderly stop too."""
    disk = Watched(random.Random(1))
    wal = begun(disk)
    grow(wal, 60)
    for step in range(60):
        grow(wal, 1)
        wal = open_wal(disk)
        assert not wal.recovery.damaged, step
        assert not wal.recovery.notes, step
        assert wal.groups[BUSY].last_index == 62 + step
    assert disk.recycled > 10


def test_S12_x5_a_flipped_bit_in_a_recycled_file_is_damage() -> None:
    """In whatever batch of a file with old bytes behind its end; also in the last of a file."""
    tried = 0
    for seed in range(80):
        disk = SimDisk(random.Random(seed))
        wal = begun(disk)
        grow(wal, 60)
        found = [
            (number, head)
            for number in map(file_number, names(disk))
            if number is not None
            for head in wal_scan.scan(disk, number, None).batches
        ]
        wal.mark()
        sync(wal)
        number, head = random.Random(seed).choice(found)
        next_item = head.end - head.payload_at == wal_format.LAST_BATCH_BYTES - 28
        at = random.Random(seed).randrange(head.offset, head.end)
        disk.flip_bit(file_name(number), at)
        again = open_wal(disk)
        if next_item:
            assert not again.recovery.damaged, "NEXT holds nothing of any group"
            continue
        tried += 1
        assert again.recovery.damage, (seed, number, head)
        assert file_name(number) in again.recovery.damage[0]
        assert again.recovery.damage == open_wal(disk).recovery.damage
    assert tried > 40


def test_x2_26_a_spare_file_is_not_the_newest_file() -> None:
    for content in (b"", bytes(100), bytes(FILE_BYTES), b"\x01torn", bytes(FILE_BYTES + 1)):
        disk = SimDisk(random.Random(1))
        wal = begun(disk)
        grow(wal, 30)
        newest = names(disk)[-1]
        disk.create(spare_name(99), len(content))
        disk.write(spare_name(99), 0, [content])
        disk.sync(spare_name(99))
        again = open_wal(disk)
        assert not again.recovery.damaged
        assert names(disk)[-1] == newest
        grow(again, 30)
        promised = {"begun": True, "last": 61, "cut": 60}
        check(disk, promised)
        assert (spare_name(99) in disk.names()) == (disk.names().count(spare_name(99)) == 1)


def test_x2_26_an_empty_file_that_was_begun_is_not_damage() -> None:
    """Its header tells the first round, so that the file before is known to be whole."""
    for lost in range(2):
        disk = SimDisk(random.Random(1))
        wal = begun(disk)
        grow(wal, 60)
        newest = file_number(names(disk)[-1])
        assert newest is not None
        round_ = wal.open_round
        header = wal_format.Header(newest + 1, FILE_BYTES, round_ + 1 + 2 * lost, b"s" * 16)
        WalFiles(disk, file_bytes=FILE_BYTES, spares=[]).begin(header)
        # Without NEXT: the crash came before it.
        again = open_wal(disk)
        assert bool(again.recovery.damaged) == bool(lost)
        grow_pinned(again)
        assert bool(open_wal(disk).recovery.damaged) == bool(lost)


def test_S2_S12_the_newest_file_lost_whole_is_refused_by_name() -> None:
    """Found by reading: nothing said that there had been one, and votes were forgotten."""
    disk = SimDisk(random.Random(1))
    wal = begun(disk)
    grow(wal, 61)
    newest = names(disk)[-1]
    disk.delete(newest)
    before = {name: disk.read(name, 0, FILE_BYTES) for name in disk.names()}
    with pytest.raises(CorruptData, match=f"{newest} is missing: .*delete all files of this WAL"):
        open_wal(disk)
    assert before == {name: disk.read(name, 0, FILE_BYTES) for name in disk.names()}


def test_S12_two_damaged_places_are_both_named() -> None:
    disk = SimDisk(random.Random(1))
    wal = begun(disk)
    log = wal.groups[BUSY]
    places = []
    for index in range(2, 8):
        log.append(index, 1, payload(index))
        round_ = wal.collect()
        assert round_ is not None
        wal.write(round_)
        wal.complete(round_)
        places.append((round_.file, round_.offset))
    for _ in range(2):
        wal.mark()
        sync(wal)
    for file, offset in (places[1], places[4]):
        disk.flip_bit(file_name(file), offset + 60)
    found = open_wal(disk)
    assert [line.split(" at byte ")[1] for line in found.recovery.damage] == [
        str(places[1][1]), str(places[4][1]),
    ]  # fmt: skip
    assert set(found.recovery.damaged) == {BUSY, IDLE}


@pytest.mark.parametrize("page", [512, 1024])
def test_S12_zeroed_pages_are_damage(page: int) -> None:
    """As a disk leaves that forgot a write; anywhere before the last mark."""
    for seed in range(30):
        disk = SimDisk(random.Random(seed))
        wal = begun(disk)
        grow(wal, 50)
        grow_pinned(wal)
        name = random.Random(seed).choice(names(disk)[:-1])
        at = random.Random(seed).randrange(FILE_BYTES // page) * page
        end = wal_scan.scan(disk, file_number(name) or 0, None).end.offset
        disk.write(name, at, [bytes(page)])
        found = open_wal(disk).recovery
        if at < end - wal_format.LAST_BATCH_BYTES:
            assert found.damage, (seed, name, at)
            assert name in found.damage[0]
        else:
            assert not found.damaged, "old bytes behind the end are nobody's"


def test_reading_changes_nothing_and_finds_what_recovery_does() -> None:
    for seed in range(20):
        disk = SimDisk(random.Random(seed))
        wal = begun(disk)
        grow(wal, 40)
        wal.groups[BUSY].append(wal.groups[BUSY].last_index + 1, 1, b"\0torn" * 100)
        round_ = wal.collect()
        assert round_ is not None
        disk.die_at = disk.operations + 1 + seed % 3
        with contextlib.suppress(Died):
            wal.write(round_)
        disk.lose_power()
        before = {name: disk.read(name, 0, FILE_BYTES) for name in disk.names()}
        operations = disk.operations
        found = read(disk)
        assert disk.operations == operations
        assert before == {name: disk.read(name, 0, FILE_BYTES) for name in disk.names()}
        again = recover(disk)
        assert (found.last_round, found.end_offset, found.damaged, found.retired) == (
            again.last_round, again.end_offset, again.damaged, again.retired,
        )  # fmt: skip


def test_x3_an_entry_alone_holds_no_term_and_vote() -> None:
    """Found by reading: an entry passed for the group's newest STATE, and the file that held it
    was deleted."""
    disk = SimDisk(random.Random(1))
    wal = begun(disk)
    grow(wal, 20)
    idle = wal.groups[IDLE]
    state_file = idle.state_file
    idle.append(2, 7, b"\0x")
    sync(wal)
    assert idle.state_file == state_file
    log = wal.groups[BUSY]
    log.cut_front(log.last_index - 1)
    for _ in range(3):
        reclaim(wal)
        disk_now = open_wal(disk)
        assert not disk_now.recovery.damaged
        assert (disk_now.groups[IDLE].term, disk_now.groups[IDLE].vote) == (7, 3)


def test_x3_rewritten_bytes_are_fewer_than_freed_bytes() -> None:
    """Found by this test: many groups over small files were rewritten for ever."""
    disk = SimDisk(random.Random(1))
    many = begun(disk)
    for number in range(100, 200):
        many.create_group(GroupId(number, 1))
    sync(many)
    rounds = many.open_round
    for _ in range(50):
        many.let_go(many.reclaim())
        sync(many)
    assert many.open_round - rounds < 10


def test_x3_records_of_groups_that_are_over_go_with_their_files() -> None:
    """Each generation of each range that ever was here left one, which was rewritten for ever."""
    disk = SimDisk(random.Random(1))
    wal: Wal = open_wal(disk)
    log = wal.create_group(BUSY)
    sync(wal)
    most = 0
    for number in range(100, 1_100):
        gid = GroupId(number, 1)
        wal.create_group(gid).append(2, 1, payload(2))
        sync(wal)
        wal.retire_group(gid)
        index = log.last_index + 1
        log.append(index, 1, payload(index))
        sync(wal)
        log.set_commit(index)
        log.cut_front(index)
        wal.let_go(wal.reclaim())
        if number % 50 == 0:
            recovered = open_wal(disk)
            assert set(recovered.groups) == {BUSY}, "a group that was over is back"
            most = max(most, len(recovered.recovery.retired))
            kept = sum(wal.was_retired(GroupId(each, 1)) for each in range(100, number + 1))
            assert kept < 50, "the open WAL remembers retired groups whose files are gone"
    assert 0 < most < 50


def test_x3_each_call_rewrites_a_bounded_number_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SimDisk(random.Random(1))
    many = begun(disk)
    for number in range(100, 180):
        many.create_group(GroupId(number, 1)).set_hard_state(number, 2)
        if number % 2:
            many.retire_group(GroupId(number, 1))
    sync(many)
    for _ in range(3):
        grow_pinned(many)
    log = many.groups[BUSY]
    log.set_commit(log.last_index)
    log.cut_front(log.last_index)
    sync(many)
    monkeypatch.setattr(wal, "_REWRITTEN_MAX", 10)
    first = names(disk)[0]
    calls = 0
    while first in names(disk):
        many.let_go(many.reclaim())
        round_ = many.collect()
        if round_ is not None:
            assert len(round_.buffers) <= 1 + 10, "the header, and the piece"
            many.write(round_)
            many.complete(round_)
        calls += 1
        assert calls < 30
    assert calls >= 4
    again = open_wal(disk)
    assert not again.recovery.damaged
    for number in range(100, 180):
        if number % 2:
            assert GroupId(number, 1) not in again.groups
        else:
            assert again.groups[GroupId(number, 1)].term == number


def test_x5_old_batches_are_nothing_whatever_their_round_or_signature() -> None:
    """A batch of the file's own signature and another round; of this round and another file's."""
    disk = Watched(random.Random(1))
    wal = begun(disk)
    grow_pinned(wal)
    log = wal.groups[BUSY]
    for _ in range(2):
        log.append(log.last_index + 1, 1, payload(log.last_index + 1))
        sync(wal)
    numbers = [number for number in map(file_number, disk.names()) if number is not None]
    scans = [wal_scan.scan(disk, number, None) for number in numbers]
    signatures = {found.header.signature for found in scans if found.header is not None}
    assert len(signatures) == len(numbers), "two files of one signature"
    newest, other = scans[-1], scans[-2]
    assert newest.header is not None
    assert other.header is not None
    last = log.last_index
    old = newest.batches[0]
    parts = [newest.data[old.payload_at : old.end]]
    for copied in (
        newest.data[old.offset : old.end],
        b"".join(wal_format.encode_batch(other.header.signature, newest.end.round, 1, parts)),
    ):
        disk.write(file_name(newest.number), newest.end.offset, [copied])
        again = open_wal(disk)
        assert not again.recovery.damaged
        assert again.groups[BUSY].last_index == last
        assert again.open_round == newest.end.round


def test_L2_a_file_let_go_does_not_take_the_place_of_a_spare_of_its_number() -> None:
    """A spare made for file 3 outlived two crashes, and file 3 was begun from another one: one
    file was counted as two, and the second could not be begun."""
    disk = SimDisk(random.Random(1))
    for number in (1, 3):
        disk.create(spare_name(number), FILE_BYTES)
    files = WalFiles(disk, file_bytes=FILE_BYTES, spares=[spare_name(1), spare_name(3)])
    for number in (3, 4):
        size = FILE_BYTES * (number - 2)  # a batch that needs more than a file has
        files.begin(wal_format.Header(number, size, number, bytes([number]) * 8))
    files.let_go(3)
    for number in (5, 6):
        files.begin(wal_format.Header(number, FILE_BYTES, number, bytes([number]) * 8))
    assert disk.names() == [file_name(number) for number in (4, 5, 6)]


def test_S1_a_file_made_ahead_is_begun_on_a_full_disk() -> None:
    """64 MiB were asked for when the disk was full already, and the node ended."""
    disk = SimDisk(random.Random(1))
    wal = open_wal(disk)
    wal.create_group(BUSY)
    sync(wal)
    assert not wal.has_spare
    settled: list[str] = []
    wal.make_spare(settled.append)
    wal.make_spare(settled.append)
    assert settled == [spare_name(0)]
    assert wal.has_spare
    assert [name for name in disk.names() if is_spare(name)] == [spare_name(0)]
    disk.full = True
    log = wal.groups[BUSY]
    for index in range(2, 9):
        log.append(index, 1, bytes(FILE_BYTES // 8))
        sync(wal)
    assert wal.file_count == 2
    assert not wal.has_spare
    with pytest.raises(OSError, match="no space"):
        wal.make_spare(settled.append)
    assert not [name for name in disk.names() if is_spare(name)], "what was half made is removed"
    disk.full = False
    grow(wal, 20)
    reopened = open_wal(disk)
    assert reopened.groups[BUSY].last_index == log.last_index
