"""Entries that are written anew: a group that cannot be checkpointed lets the oldest files go."""

import random
import time

import pytest
from raft_wal import open_wal, sync

from lognode.chaos.sim.disk import Died, SimDisk
from lognode.client.protocol import limits
from lognode.client.protocol.errors import CorruptData
from lognode.raft.group_log import GroupLog
from lognode.raft.types import GroupId
from lognode.raft.wal import Wal

BUSY, STUCK = GroupId(1, 1), GroupId(2, 1)


def contents(log: GroupLog) -> list[tuple[int, bytes]]:
    return [(entry.term, entry.command) for entry in log.entries(log.first_index, log.last_index)]


def begun(disk: SimDisk) -> Wal:
    """A group with three entries that nobody commits, of two terms, behind a cut."""
    wal: Wal = open_wal(disk)
    wal.create_group(BUSY)
    stuck = wal.create_group(STUCK)
    for index, term in ((2, 1), (3, 1), (4, 1), (5, 3)):
        stuck.append(index, term, b"\0%d" % index)
    stuck.set_hard_state(4, 2)
    sync(wal)
    stuck.set_commit(2)
    stuck.cut_front(2)
    sync(wal)
    return wal


HELD = [(1, b"\x003"), (1, b"\x004"), (3, b"\x005")]


def check(disk: SimDisk) -> None:
    again = open_wal(disk)
    assert not again.recovery.damaged
    found = again.groups[STUCK]
    assert (found.base_index, found.base_term, found.term, found.vote) == (2, 1, 4, 2)
    assert contents(found) == HELD


def busy(wal: Wal, entries: int) -> None:
    log = wal.groups[BUSY]
    for _ in range(entries):
        log.append(log.last_index + 1, 1, b"\0" * 300)
        sync(wal)
        log.set_commit(log.last_index)
        log.cut_front(log.last_index)
        if wal.oldest_pins().get(STUCK, 1 << 30) < wal._file - 2:
            assert wal.rewrite(STUCK)
        wal.let_go(wal.reclaim())


def test_files_stay_few_though_a_group_is_never_committed() -> None:
    disk = SimDisk(random.Random(1))
    wal = begun(disk)
    most = 0
    for _ in range(40):
        busy(wal, 10)
        most = max(most, wal.file_count)
    assert most <= 7
    check(disk)
    assert contents(wal.groups[STUCK]) == HELD


@pytest.mark.parametrize("power", [False, True], ids=["kill", "power"])
def test_S1_S2_x3_crash_at_every_step_of_writing_anew(power: bool) -> None:
    whole = SimDisk(random.Random(0))
    wal = begun(whole)
    first = whole.operations + 1
    busy(wal, 60)
    for crash_at in range(first, whole.operations + 1):
        disk = SimDisk(random.Random(crash_at))
        wal = begun(disk)
        disk.die_at = crash_at
        with pytest.raises(Died):
            busy(wal, 60)
        disk.die_at = None
        if power:
            disk.lose_power()
        check(disk)


def test_S3_an_entry_replaced_while_it_is_written_anew_stays_replaced() -> None:
    disk = SimDisk(random.Random(1))
    wal = begun(disk)
    stuck = wal.groups[STUCK]
    stuck.append(6, 3, b"\x006")  # in the open round, not written yet
    assert wal.rewrite(STUCK)
    in_flight = wal.collect()
    assert in_flight is not None
    assert stuck.durable_index == 5, "what was durable stays so"
    stuck.append(4, 5, b"\0new")
    wal.write(in_flight)
    wal.complete(in_flight)
    assert stuck.last_index == 4
    sync(wal)
    for log in (stuck, open_wal(disk).groups[STUCK]):
        assert contents(log) == [(1, b"\x003"), (5, b"\0new")]


def test_entries_written_anew_are_read_back_from_where_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "log_cache_bytes_max", 0)
    disk = SimDisk(random.Random(1))
    begun(disk)
    wal = open_wal(disk)  # nothing is cached
    stuck = wal.groups[STUCK]
    assert wal.rewrite(STUCK)
    assert contents(stuck) == HELD  # from the old places
    in_flight = wal.collect()
    assert in_flight is not None
    assert contents(stuck) == HELD
    wal.write(in_flight)
    wal.complete(in_flight)
    assert contents(stuck) == HELD  # from the new


def test_S12_an_entry_that_cannot_be_read_back_queues_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Half of them would cut the other half."""
    monkeypatch.setattr(limits, "log_cache_bytes_max", 0)
    disk = SimDisk(random.Random(1))
    begun(disk)
    wal = open_wal(disk)  # nothing is cached
    place = wal.groups[STUCK]._places[2]
    disk.flip_bit("wal-0000000001", place.offset)
    with pytest.raises(CorruptData):
        wal.rewrite(STUCK)
    assert not wal.dirty
    assert wal.groups[STUCK].last_index == 5


def test_more_than_a_round_should_carry_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    wal = begun(SimDisk(random.Random(1)))
    monkeypatch.setattr(limits, "wal_rewrite_bytes_max", 5)
    assert not wal.rewrite(STUCK)
    assert not wal.dirty


def test_reclaiming_with_a_thousand_groups_takes_the_loop_a_moment() -> None:
    """A call of `reclaim` over 1,000 idle groups; the file size is that of a node."""
    disk = SimDisk(random.Random(1))
    wal = Wal.open(disk, entropy=random.Random(7).randbytes, file_bytes=1 << 20)
    wal.create_group(BUSY)
    for number in range(1_000):
        wal.create_group(GroupId(100 + number, 1))
    sync(wal)
    log = wal.groups[BUSY]
    while wal.file_count < 3:
        log.append(log.last_index + 1, 1, b"\0" * 100_000)
        sync(wal)
    log.set_commit(log.last_index)
    log.cut_front(log.last_index)
    sync(wal)
    longest, bytes_a_round = 0.0, 0
    while wal.file_count > 1:
        began = time.perf_counter()
        files = wal.reclaim()
        round_ = wal.collect()
        longest = max(longest, time.perf_counter() - began)
        wal.let_go(files)
        if round_ is not None:
            bytes_a_round = max(bytes_a_round, sum(map(len, round_.buffers)))
            wal.write(round_)
            wal.complete(round_)
    print(f"longest call {longest * 1e3:.2f} ms, {bytes_a_round} bytes a round")
    assert longest < 0.05
    assert bytes_a_round < 64 << 10
