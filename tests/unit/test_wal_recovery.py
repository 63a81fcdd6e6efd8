"""The WAL through crashes at every disk operation, torn tails and flipped bits."""

import random
from typing import Any

import pytest

from lognode.chaos.sim.disk import Died, SimDisk
from lognode.raft.types import DiskFailure, GroupId
from lognode.raft.wal import Wal

G1, G2 = GroupId(1, 1), GroupId(2, 1)
FILE_BYTES = 4096


def open_wal(disk: SimDisk) -> Wal:
    return Wal.open(disk, entropy=random.Random(7).randbytes, file_bytes=FILE_BYTES)


def sync(wal: Wal) -> None:
    """One whole round."""
    round_ = wal.collect()
    if round_ is not None:
        wal.write(round_)
        wal.complete(round_)


def script(disk: SimDisk, promised: dict[str, Any]) -> None:
    """Writes of two groups over several files; `promised` is what was told to be durable."""
    wal = open_wal(disk)
    logs = [wal.create_group(gid) for gid in (G1, G2)]
    sync(wal)
    for step in range(1, 13):
        for log in logs:
            log.set_hard_state(step, step % 3 + 1)
            log.append(step + 1, step, b"\0" + bytes([step]) * 150)
        commands = [b"\0" + bytes([n]) * 150 for n in range(1, step + 1)]
        promise = {
            "entries": {log.gid: commands for log in logs},
            "votes": {log.gid: (log.term, log.vote) for log in logs},
        }
        sync(wal)
        assert all(log.durable_index == step + 1 for log in logs)
        promised.update(promise)
        for log in logs:
            log.set_commit(step)
        if step == 8:
            logs[0].cut_front(6)
            sync(wal)
            promised["cut"] = 6
        if step % 4 == 0:
            wal.reclaim()
            sync(wal)


def check(disk: SimDisk, promised: dict[str, Any]) -> None:
    wal = open_wal(disk)
    assert not wal.recovery.damaged
    for gid, commands in promised.get("entries", {}).items():
        log = wal.groups[gid]
        held = {i: log.entry(i).command for i in range(log.first_index, log.last_index + 1)}
        assert log.last_index >= len(commands) + 1
        for index, command in enumerate(commands, 2):
            assert index <= log.base_index or held[index] == command
        assert log.base_index <= max(1, promised.get("cut", 6) if gid == G1 else 1)
    for gid, (term, vote) in promised.get("votes", {}).items():
        log = wal.groups[gid]
        assert log.term >= term
        assert log.term > term or log.vote == vote
    for log in wal.groups.values():
        assert log.durable_index == log.last_index
        assert log.hard_state_durable


@pytest.mark.parametrize("power", [False, True], ids=["kill", "power"])
def test_S1_x4_x5_crash_at_every_disk_operation_keeps_what_was_promised(power: bool) -> None:
    whole = SimDisk(random.Random(0))
    script(whole, {})
    for crash_at in range(1, whole.operations + 1):
        for seed in range(4 if power else 1):
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


def test_x5_crash_during_recovery_loses_nothing() -> None:
    whole = SimDisk(random.Random(0))
    script(whole, {})
    for crash_at in range(1, whole.operations + 1):
        disk = SimDisk(random.Random(crash_at))
        disk.die_at = crash_at
        promised: dict[str, Any] = {}
        with pytest.raises(Died):
            script(disk, promised)
        disk.lose_power()
        for second in range(1, 8):
            disk.die_at = disk.operations + second
            try:
                open_wal(disk)
            except Died:
                disk.lose_power()
            disk.die_at = None
        check(disk, promised)


def test_S12_flipped_bit_before_the_end_is_damage_not_a_torn_tail() -> None:
    for seed in range(60):
        disk = SimDisk(random.Random(seed))
        script(disk, {})
        wal = open_wal(disk)
        wal.mark()
        wal.groups[G1].write_state(must_sync=True)
        sync(wal)
        wal.mark()
        sync(wal)
        name = disk.names()[-2]
        disk.flip_bit(name, random.Random(seed).randrange(60, 3000))
        damaged = open_wal(disk).recovery.damaged
        notes = open_wal(disk).recovery.notes
        before = wal.groups[G2]
        after = open_wal(disk).groups.get(G2)
        if after is not None and G2 not in damaged:
            # Nothing that it held may be gone without a word.
            assert after.last_index == before.last_index, (seed, notes)
            assert (after.term, after.vote) == (before.term, before.vote), (seed, notes)


def test_S12_truncated_file_is_damage() -> None:
    disk = SimDisk(random.Random(1))
    script(disk, {})
    name = disk.names()[-1]
    disk.truncate(name, 600)
    assert set(open_wal(disk).recovery.damaged) == {G1, G2}


def test_x2_1_durability_counts_rounds_not_indexes() -> None:
    disk = SimDisk(random.Random(1))
    wal = open_wal(disk)
    log = wal.create_group(G1)
    log.append(2, 5, b"\0old")
    in_flight = wal.collect()
    assert in_flight is not None
    log.append(2, 6, b"\0new")
    wal.write(in_flight)
    wal.complete(in_flight)
    assert log.durable_index == 1
    assert log.message_round(2) == wal.open_round
    sync(wal)
    assert log.durable_index == 2
    assert open_wal(disk).groups[G1].entry(2).command == b"\0new"


def test_x1_reset_keeps_what_follows_the_base() -> None:
    disk = SimDisk(random.Random(1))
    wal = open_wal(disk)
    log = wal.create_group(G1)
    for index in range(2, 12):
        log.append(index, 1, b"\0" + bytes([index]))
    log.reset(5, 1)
    assert (log.base_index, log.last_index) == (5, 11)
    sync(wal)
    again = open_wal(disk).groups[G1]
    assert (again.base_index, again.last_index) == (5, 11)
    assert again.entry(11).command == b"\0\x0b"
    again_wal = open_wal(disk)
    again = again_wal.groups[G1]
    again.reset(20, 3)
    assert (again.base_index, again.last_index, again.last_term) == (20, 20, 3)
    sync(again_wal)
    assert open_wal(disk).groups[G1].last_index == 20


def test_x3_reclaimed_files_take_no_vote_with_them() -> None:
    disk = SimDisk(random.Random(1))
    wal = open_wal(disk)
    idle, busy = wal.create_group(G1), wal.create_group(G2)
    idle.set_hard_state(7, 3)
    wal.create_group(GroupId(9, 1))
    sync(wal)
    wal.retire_group(GroupId(9, 1))
    sync(wal)
    for index in range(2, 60):
        busy.append(index, 1, b"\0" * 300)
        sync(wal)
        busy.set_commit(index)
        busy.cut_front(index - 1)
        wal.reclaim()
        sync(wal)
    assert len(disk.names()) <= 3
    again = open_wal(disk)
    assert (again.groups[G1].term, again.groups[G1].vote) == (7, 3)
    assert again.was_retired(GroupId(9, 1))
    assert GroupId(9, 1) not in again.groups


def test_hole_12_a_failed_write_ends_it() -> None:
    disk = SimDisk(random.Random(1))
    wal = open_wal(disk)
    wal.create_group(G1)
    round_ = wal.collect()
    assert round_ is not None
    disk.fail_at = disk.operations + 1
    with pytest.raises(DiskFailure):
        wal.write(round_)


def test_entries_beyond_the_cache_are_read_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lognode.client.limits.log_cache_bytes_max", 1000)
    disk = SimDisk(random.Random(1))
    wal = open_wal(disk)
    log = wal.create_group(G1)
    for index in range(2, 50):
        log.append(index, 1, b"\0" + bytes([index]) * 200)
        sync(wal)
    for index in range(2, 50):
        assert log.entry(index).command == b"\0" + bytes([index]) * 200
    assert [e.index for e in log.entries(2, 49, 450)] == [2, 3]
