"""WAL files that something other than a crash has changed: found, never silently shortened."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from raft_wal import FILE_BYTES, open_wal, reclaim, sync

from lognode.chaos.sim.disk import SimDisk
from lognode.client.protocol.errors import CorruptData
from lognode.client.protocol.invariants import InvariantError
from lognode.raft import wal_format
from lognode.raft.group_log import GroupLog
from lognode.raft.types import GroupId
from lognode.raft.wal import Wal
from lognode.raft.wal_scan import file_name

G1, G2, G3 = GroupId(1, 1), GroupId(2, 1), GroupId(3, 1)


def marked(wal: Wal) -> None:
    """Twice what an idle node does: everything but the very last mark is known to be synced."""
    for _ in range(2):
        wal.mark()
        sync(wal)


def damaged(disk: SimDisk) -> set[GroupId]:
    return set(open_wal(disk).recovery.damaged)


def payload(index: int, term: int) -> bytes:
    return b"\0%d %d " % (index, term) + bytes(200)


def append(log: GroupLog, first: int, last: int, term: int) -> None:
    for index in range(first, last + 1):
        log.append(index, term, payload(index, term))


def overwrite(disk: SimDisk, name: str, offset: int, data: bytes) -> None:
    disk.write(name, offset, [data])
    disk.sync(name)


@dataclass(frozen=True)
class Written:
    """Where a round was written."""

    file: int
    offset: int
    end: int


def sync_at(wal: Wal) -> Written:
    """As `sync`, and where."""
    round_ = wal.collect()
    assert round_ is not None
    wal.write(round_)
    wal.complete(round_)
    return Written(round_.file, round_.offset, round_.offset + sum(map(len, round_.buffers)))


def spoil(disk: SimDisk, written: Written) -> None:
    """Flip a byte in the middle of a round."""
    at = (written.offset + wal_format.BATCH_HEADER_BYTES + written.end) // 2
    data = disk.read(file_name(written.file), at, 1)
    overwrite(disk, file_name(written.file), at, bytes([data[0] ^ 1]))


def grow(wal: Wal, log: GroupLog, files: int) -> None:
    """Append until that many files are there."""
    while wal.file_count < files:
        append(log, log.last_index + 1, log.last_index + 1, max(1, log.last_term))
        sync(wal)


# A file that is not what it was made.


@pytest.mark.parametrize("which", ["last", "before"])
def test_S2_S12_a_used_file_with_a_bad_header_is_damage_and_is_kept(which: str) -> None:
    """Found by reading: the newest file was deleted, with all that it held."""
    disk = SimDisk(random.Random(1))
    wal = open_wal(disk)
    log = wal.create_group(G1)
    grow(wal, log, 3)
    append(log, log.last_index + 1, log.last_index + 2, 1)
    sync(wal)
    name = disk.names()[-1 if which == "last" else -2]
    disk.flip_bit(name, 20)
    assert damaged(disk) == {G1}
    again = open_wal(disk)
    assert name in disk.names()
    # The node goes on: others are created behind it, and are whole at every later start.
    other = again.create_group(G2)
    append(other, 2, 9, 1)
    sync(again)
    for _ in range(2):
        again = open_wal(disk)
        assert set(again.recovery.damaged) == {G1}
        assert again.groups[G2].last_index == 9
    again.retire_group(G1)
    other = again.groups[G2]
    for _ in range(30):
        append(other, other.last_index + 1, other.last_index + 1, 1)
        other.set_commit(other.last_index)
        other.cut_front(other.last_index - 1)
        sync(again)
        reclaim(again)
    sync(again)
    assert name not in disk.names()
    assert not damaged(disk)


def test_S12_entries_written_after_a_cut_file_are_whole_at_later_starts() -> None:
    disk = SimDisk(random.Random(1))
    wal = open_wal(disk)
    log = wal.create_group(G1)
    sync(wal)
    append(log, 2, 5, 1)
    sync(wal)
    disk.truncate(file_name(1), 600)
    again = open_wal(disk)
    assert set(again.recovery.damaged) == {G1}
    append(again.create_group(G2), 2, 5, 1)
    sync(again)
    assert damaged(disk) == {G1}


def test_S2_S12_a_missing_first_file_is_damage() -> None:
    disk = SimDisk(random.Random(1))
    wal = open_wal(disk)
    log = wal.create_group(G1)
    grow(wal, log, 3)
    log.set_commit(5)
    sync(wal)
    disk.delete(file_name(1))
    assert "are missing" in open_wal(disk).recovery.damaged[G1]


def test_S12_a_file_under_the_name_of_another_is_damage() -> None:
    disk = SimDisk(random.Random(1))
    wal = open_wal(disk)
    grow(wal, wal.create_group(G1), 3)
    data = disk.read(file_name(2), 0, FILE_BYTES)
    overwrite(disk, file_name(3), 0, data)
    assert damaged(disk) == {G1}


def test_S12_a_missing_file_between_two_is_refused() -> None:
    disk = SimDisk(random.Random(1))
    wal = open_wal(disk)
    grow(wal, wal.create_group(G1), 3)
    disk.delete(file_name(2))
    with pytest.raises(CorruptData, match="wal-0000000002 is missing"):
        open_wal(disk)


# Damage or a torn tail.


def test_x5_a_bad_round_in_a_file_that_is_followed_is_damage() -> None:
    """Found by reading: the round before a rotation, never told to be synced, was cut, and with
    it the file after it, which held what was acknowledged."""
    disk = SimDisk(random.Random(1))
    wal = open_wal(disk)
    log = wal.create_group(G1)
    append(log, 2, 15, 1)
    sync(wal)
    log.set_commit(5)
    unsynced = sync_at(wal)
    append(log, 16, 20, 1)
    behind = sync_at(wal)
    assert (unsynced.file, behind.file) == (1, 2)
    spoil(disk, unsynced)
    assert damaged(disk) == {G1}
    assert open_wal(disk).groups[G1].last_index == 20


def test_x5_the_last_round_before_its_mark_is_taken_for_torn() -> None:
    """The documented residue, and why a mark follows within a second."""
    for with_mark in (False, True):
        disk = SimDisk(random.Random(1))
        wal = open_wal(disk)
        log = wal.create_group(G1)
        sync(wal)
        append(log, 2, 3, 1)
        written = sync_at(wal)
        if with_mark:
            wal.mark()
            sync(wal)
        spoil(disk, written)
        assert damaged(disk) == ({G1} if with_mark else set())


def test_x2_11_only_groups_whose_state_is_older_than_the_bad_batch_are_hit() -> None:
    disk = SimDisk(random.Random(1))
    wal = open_wal(disk)
    logs = [wal.create_group(gid) for gid in (G1, G2)]
    for log in logs:
        append(log, 2, 3, 1)
    sync(wal)
    wal.create_group(G3)
    lost = sync_at(wal)
    logs[0].set_hard_state(4, 2)
    sync(wal)
    marked(wal)
    spoil(disk, lost)
    again = open_wal(disk)
    assert set(again.recovery.damaged) == {G2}
    assert (again.groups[G1].term, again.groups[G1].vote) == (4, 2)
    assert G3 not in again.groups


def test_S3_x2_11_a_lost_conflict_is_not_papered_over() -> None:
    """Found by reading: entries 8 and 9 of the old leader stood between those of the new one."""
    disk = SimDisk(random.Random(1))
    wal = open_wal(disk)
    log = wal.create_group(G1)
    append(log, 2, 9, 1)
    sync(wal)
    append(log, 8, 9, 2)
    lost = sync_at(wal)
    append(log, 10, 10, 2)
    log.set_hard_state(2, 3)
    sync(wal)
    marked(wal)
    spoil(disk, lost)
    again = open_wal(disk)
    assert "entries 2 to 9 are missing" in again.recovery.damaged[G1]
    assert again.groups[G1].term_at(9) == 2
    assert again.groups[G1].term_at(8) is None


def test_S3_x2_11_a_lost_conflict_at_the_end_is_found_by_the_state_behind_it() -> None:
    disk = SimDisk(random.Random(1))
    wal = open_wal(disk)
    log = wal.create_group(G1)
    append(log, 2, 9, 1)
    sync(wal)
    append(log, 8, 9, 2)
    lost = sync_at(wal)
    log.set_hard_state(3, 3)
    sync(wal)
    marked(wal)
    spoil(disk, lost)
    assert damaged(disk) == {G1}
    assert open_wal(disk).groups[G1].term_at(8) is None


def test_S3_a_lost_reset_brings_nothing_back() -> None:
    disk = SimDisk(random.Random(1))
    wal = open_wal(disk)
    log = wal.create_group(G1)
    append(log, 2, 12, 1)
    sync(wal)
    log.reset(5, 9)
    lost = sync_at(wal)
    log.set_hard_state(10, 1)
    sync(wal)
    marked(wal)
    spoil(disk, lost)
    again = open_wal(disk).groups[G1]
    assert (again.base_index, again.base_term, again.last_index) == (5, 9, 5)


def test_x3_a_conflict_at_the_cut_is_not_damage() -> None:
    """Found by reading: the first entry that the files still held was above the one live."""
    disk = SimDisk(random.Random(1))
    wal = open_wal(disk)
    log = wal.create_group(G1)
    grow(wal, log, 2)
    log.set_commit(5)
    sync(wal)
    assert wal.file_count == 2
    append(log, 6, 8, 3)  # the new leader's
    sync(wal)
    log.cut_front(5)
    for _ in range(3):
        reclaim(wal)
        sync(wal)
    assert file_name(1) not in disk.names()
    again = open_wal(disk)
    assert not again.recovery.damaged
    found = again.groups[G1]
    assert (found.base_index, found.last_index) == (5, 8)
    assert [found.entry(index).command for index in (6, 7, 8)] == [
        payload(index, 3) for index in (6, 7, 8)
    ]


def test_x15_a_reset_behind_what_was_cut_breaks_an_invariant() -> None:
    log = open_wal(SimDisk(random.Random(1))).create_group(G1)
    append(log, 2, 9, 1)
    log.set_commit(8)
    log.cut_front(8)
    with pytest.raises(InvariantError, match="a reset would go behind the base"):
        log.reset(5, 1)


# Looking for what is sound behind what is not.


@pytest.mark.parametrize(
    "filler",
    [bytes, lambda n: b"\1" * n, random.Random(1).randbytes, lambda n: b"\0\1" * (n // 2)],
    ids=["zeros", "ones", "random", "mixed"],
)
def test_S12_the_search_behind_a_bad_place_takes_no_time(filler: Callable[[int], bytes]) -> None:
    """Found by reading: it took an hour for a file of zero-heavy values."""
    disk = SimDisk(random.Random(1))
    wal = Wal.open(disk, entropy=random.Random(7).randbytes, file_bytes=8 << 20)
    log = wal.create_group(G1)
    for index in (2, 3, 4):
        log.append(index, 1, b"\0" + filler(2 << 20))
        sync(wal)
    marked(wal)
    overwrite(disk, file_name(1), wal_format.HEADER_BYTES, b"\xff" * 30)  # its length too
    began = time.perf_counter()
    assert damaged(disk) == {G1}
    assert time.perf_counter() - began < 5.0


def test_S12_values_that_look_like_batches_cannot_stall_the_search() -> None:
    """Found by reading: with old bytes behind every tail they would keep a sound node down."""
    disk = SimDisk(random.Random(1))
    wal = Wal.open(disk, entropy=random.Random(7).randbytes, file_bytes=4 << 20)
    log = wal.create_group(G1)
    sync(wal)
    length, checksums = (1 << 20).to_bytes(4, "big"), bytes(8)
    fake = length + checksums + (9).to_bytes(8, "big") + (3).to_bytes(8, "big")
    log.append(2, 1, b"\0" + fake * 40_000)
    lost = sync_at(wal)
    marked(wal)
    overwrite(disk, file_name(1), lost.offset, b"\xff" * 30)
    began = time.perf_counter()
    assert damaged(disk) == {G1}
    assert time.perf_counter() - began < 5.0


# Bytes at random.


def full_wal(disk: SimDisk) -> dict[GroupId, tuple[object, ...]]:
    """Groups with conflicts, cuts, votes and a reset over several files; what they hold."""
    wal = open_wal(disk)
    logs = [wal.create_group(gid) for gid in (G1, G2, G3)]
    for step in range(1, 9):
        for log in logs:
            log.set_hard_state(step, step % 3 + 1)
            append(log, log.last_index + 1, log.last_index + 2, step)
        sync(wal)
        for log in logs[:2]:
            log.set_commit(log.last_index - 2)
        if step % 3 == 0:
            append(logs[1], logs[1].last_index - 1, logs[1].last_index, step + 1)
            logs[0].cut_front(logs[0].commit_index - 2)
    logs[2].reset(40, 8)
    append(logs[2], 41, 43, 9)
    sync(wal)
    assert wal.file_count > 3
    return contents(open_wal(disk))


def contents(wal: Wal) -> dict[GroupId, tuple[object, ...]]:
    return {
        gid: (
            log.term, log.vote, log.commit_index, log.base_index, log.base_term,
            [log.entry(index) for index in range(log.first_index, log.last_index + 1)],
        )
        for gid, log in wal.groups.items()
    }  # fmt: skip


def mutate(disk: SimDisk, rng: random.Random) -> str:
    """Change some bytes, not those of the marks at the end: without them a torn tail looks so."""
    sizes = {name: len(disk.read(name, 0, FILE_BYTES).rstrip(b"\0")) for name in disk.names()}
    marked(open_wal(disk))
    name = rng.choice(list(sizes))
    size = sizes[name]
    at = rng.randrange(size)
    kind = rng.choice(["flip", "flips", "zero", "noise", "copy", "truncate"])
    length = min(rng.choice([1, 8, 24, 512]), size - at)
    if kind == "flip":
        disk.flip_bit(name, at)
    elif kind == "flips":
        for _ in range(5):
            disk.flip_bit(name, rng.randrange(size))
    elif kind == "zero":
        overwrite(disk, name, at, bytes(length))
    elif kind == "noise":
        overwrite(disk, name, at, rng.randbytes(length))
    elif kind == "copy":
        source = rng.randrange(size)
        overwrite(disk, name, at, disk.read(name, source, length))
    else:
        disk.truncate(name, at)
    return f"{kind} {name} {at} {length}"


@pytest.mark.slow
def test_S12_x5_after_any_change_of_the_bytes_a_group_is_whole_or_damaged() -> None:
    refused = hit = 0
    for seed in range(600):
        rng = random.Random(seed)
        disk = SimDisk(rng)
        before = full_wal(disk)
        what = mutate(disk, rng)
        try:
            wal = open_wal(disk)
        except CorruptData:
            refused += 1
            continue
        found = contents(wal)
        for gid, held in before.items():
            if gid in wal.recovery.damaged:
                hit += 1
            else:
                assert found.get(gid) == held, (seed, what, gid, wal.recovery.notes)
        # And again: what recovery leaves is read in the same way.
        again = open_wal(disk)
        assert set(again.recovery.damaged) == set(wal.recovery.damaged), (seed, what)
        assert contents(again) == found, (seed, what)
    print(f"{hit} groups damaged, {refused} directories refused")
    assert hit > 150


def test_S12_items_of_a_forged_batch_are_an_error_not_a_crash() -> None:
    rng = random.Random(5)
    for _ in range(2_000):
        body = bytes([rng.randrange(6)]) + rng.randbytes(rng.randrange(120))
        head, *parts = wal_format.encode_batch(b"s" * 16, 3, 2, [body])
        data = head + b"".join(parts)
        batch = wal_format.decode_head(data, 0, b"s" * 16)
        assert batch is not None
        assert wal_format.payload_sound(data, batch, b"s" * 16)
        try:
            for item in wal_format.items(data, batch):
                if isinstance(item, wal_format.EntryItem):
                    assert item.offset + item.size <= len(data)
        except ValueError:
            pass


def test_a_batch_of_a_newer_version_is_named_and_refused() -> None:
    disk = SimDisk(random.Random(1))
    wal = open_wal(disk)
    wal.create_group(G1)
    wal.queue(b"\x09future", must_sync=True)
    sync(wal)
    with pytest.raises(CorruptData, match=r"wal-0000000001: WAL item of unknown kind 9"):
        open_wal(disk)


@pytest.mark.parametrize("version", [1, 3])
def test_x2_a_file_of_another_format_is_refused_by_name_and_not_taken_for_a_damaged_one(
    version: int,
) -> None:
    disk = SimDisk(random.Random(1))
    wal = open_wal(disk)
    marked(wal)
    header = disk.read(file_name(1), 0, wal_format.HEADER_BYTES)
    # Its layout behind the version is its own: here, all but the magic and the version differ.
    other = wal_format.MAGIC + version.to_bytes(4, "big") + bytes(b ^ 85 for b in header[12:])
    disk.write(file_name(1), 0, [other])
    with pytest.raises(CorruptData, match=f"{file_name(1)} has format {version}, .*format 2"):
        open_wal(disk)


def test_x2_a_header_with_a_damaged_version_is_damage_and_not_another_format() -> None:
    disk = SimDisk(random.Random(1))
    wal = open_wal(disk)
    marked(wal)
    header = bytearray(disk.read(file_name(1), 0, wal_format.HEADER_BYTES))
    header[11] ^= 1
    assert wal_format.decode_header(bytes(header)) is None
    disk.write(file_name(1), 0, [bytes(header)])
    assert any(
        "the header of the file is damaged" in what for what in open_wal(disk).recovery.damage
    )
