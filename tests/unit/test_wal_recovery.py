"""The WAL through crashes at every disk operation, torn tails and flipped bits."""

import contextlib
import random
from collections.abc import Callable
from typing import Any

import pytest
from raft_wal import FILE_BYTES, open_wal, reclaim, sync

from lognode.chaos.sim.disk import Died, SimDisk
from lognode.client.protocol.invariants import InvariantError
from lognode.raft.types import DiskFailure, GroupId
from lognode.raft.wal_scan import file_number

G1, G2 = GroupId(1, 1), GroupId(2, 1)


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
        if step % 2:
            sync(wal)  # a round that is written and not synced
        if step == 8:
            logs[0].cut_front(6)
            sync(wal)
            promised["cut"] = 6
        if step == 11:
            for log in logs:
                log.cut_front(9)
            promised["cut"] = 9
        for _ in range(3 if step in (8, 12) else 0):
            reclaim(wal)
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
        assert log.base_index <= max(
            1, promised.get("cut", 9) if gid == G1 or promised.get("cut") == 9 else 1
        )
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


def test_S1_x4_recovered_entries_survive_the_next_loss_of_power() -> None:
    """A kill leaves the page cache: what is read from it is acknowledged as if it were on disk."""
    whole = SimDisk(random.Random(0))
    script(whole, {})
    for crash_at in range(1, whole.operations + 1):
        for seed in range(3):
            disk = SimDisk(random.Random(seed * 1000 + crash_at))
            disk.die_at = crash_at
            with pytest.raises(Died):
                script(disk, {})
            disk.die_at = None
            read = open_wal(disk)
            if G1 not in read.groups:
                read.create_group(G1)
            for log in read.groups.values():
                log.append(log.last_index + 1, max(1, log.last_term), b"\0after")
            sync(read)
            before = {gid: (log.last_index, log.term, log.vote) for gid, log in read.groups.items()}
            disk.lose_power()
            after = open_wal(disk)
            assert not after.recovery.damaged
            assert before == {
                gid: (log.last_index, log.term, log.vote) for gid, log in after.groups.items()
            }


def test_S5_x5_a_round_behind_the_torn_one_never_comes_back() -> None:
    disk = SimDisk(random.Random(1))
    wal = open_wal(disk)
    log = wal.create_group(G1)
    sync(wal)
    log.write_state(must_sync=False)
    torn = wal.collect()
    assert torn is not None
    wal.write(torn)
    wal.complete(torn)
    log.append(2, 1, b"\0" + b"entry" * 20)
    sync(wal)
    disk.flip_bit(disk.names()[0], torn.offset + 60)
    wal = open_wal(disk)
    assert wal.groups[G1].last_index == 1
    # Of the very length of the torn one: what lay behind it would follow without a gap.
    wal.groups[G1].write_state(must_sync=True)
    sync(wal)
    again = open_wal(disk)
    assert not again.recovery.damaged
    assert again.groups[G1].last_index == 1


def test_S3_a_conflict_replaces_what_it_replaces_and_nothing_else() -> None:
    disk = SimDisk(random.Random(1))
    wal = open_wal(disk)
    log = wal.create_group(G1)
    for index in range(2, 10):
        log.append(index, 1, b"\0old%d" % index)
    sync(wal)
    log.append(7, 2, b"\0new")
    assert (log.durable_index, log.last_index) == (6, 7)
    sync(wal)
    again = open_wal(disk)
    assert not again.recovery.damaged
    found = again.groups[G1]
    assert [entry.command for entry in found.entries(2, 99)] == [
        *(b"\0old%d" % index for index in range(2, 7)), b"\0new",
    ]  # fmt: skip
    assert [found.term_at(index) for index in (6, 7, 8)] == [1, 2, None]


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


def test_S12_hole_11_flipped_bit_before_the_end_is_damage_not_a_torn_tail() -> None:
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
        reclaim(wal)
        sync(wal)
    assert len(disk.names()) <= 3
    assert not wal.was_retired(GroupId(9, 1)), "the open WAL forgets with the file"
    again = open_wal(disk)
    assert (again.groups[G1].term, again.groups[G1].vote) == (7, 3)
    assert not again.was_retired(GroupId(9, 1)), "the record went with its file"
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


def test_entries_not_yet_written_stay_in_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lognode.client.protocol.limits.log_cache_bytes_max", 1000)
    wal = open_wal(SimDisk(random.Random(1)))
    log = wal.create_group(G1)
    for index in range(2, 20):
        log.append(index, 1, b"\0" + bytes([index]) * 200)
        if index == 10:
            in_flight = wal.collect()
    assert in_flight is not None
    for index in range(2, 20):
        assert log.entry(index).command == b"\0" + bytes([index]) * 200
    wal.write(in_flight)
    wal.complete(in_flight)
    sync(wal)
    log.append(20, 1, b"\0")
    assert log._cached_bytes <= 1000


def test_entries_beyond_the_cache_are_read_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lognode.client.protocol.limits.log_cache_bytes_max", 1000)
    disk = SimDisk(random.Random(1))
    wal = open_wal(disk)
    log = wal.create_group(G1)
    for index in range(2, 50):
        log.append(index, 1, b"\0" + bytes([index]) * 200)
        sync(wal)
    for index in range(2, 50):
        assert log.entry(index).command == b"\0" + bytes([index]) * 200
    assert [e.index for e in log.entries(2, 49, 450)] == [2, 3]


def test_x5_a_round_that_needs_no_sync_is_synced_before_the_next_file_begins() -> None:
    for seed in range(30):
        disk = SimDisk(random.Random(seed))
        wal = open_wal(disk)
        log = wal.create_group(G1)
        sync(wal)
        while wal._offset < FILE_BYTES - 1100:
            log.append(log.last_index + 1, 1, b"\0" * 200)
            sync(wal)
        for _ in range(10):  # more than a sector, so that it can be torn
            log.write_state(must_sync=False)
        sync(wal)
        log.append(log.last_index + 1, 1, b"\0" * 400)
        sync(wal)
        assert wal.file_count == 2
        disk.lose_power()
        again = open_wal(disk)
        assert not again.recovery.damaged, seed
        assert again.groups[G1].last_index == log.last_index


def test_x5_only_what_was_synced_is_said_to_be() -> None:
    for seed in range(30):
        disk = SimDisk(random.Random(seed))
        wal = open_wal(disk)
        log = wal.create_group(G1)
        log.append(2, 1, b"\0x")
        log.append(3, 1, b"\0y")
        sync(wal)
        synced = wal.synced_round
        for index in (2, 3):
            log.set_commit(index)
            sync(wal)
        wal.mark()
        sync(wal)
        assert wal.synced_round == synced
        assert wal.open_round == synced + 4
        disk.lose_power()
        assert not open_wal(disk).recovery.damaged, seed


def test_x3_a_file_goes_only_when_what_was_rewritten_of_it_is_synced() -> None:
    disk = SimDisk(random.Random(1))
    wal = open_wal(disk)
    idle, busy = wal.create_group(G1), wal.create_group(G2)
    idle.set_hard_state(7, 3)
    wal.create_group(GroupId(9, 1))
    sync(wal)
    wal.retire_group(GroupId(9, 1))
    sync(wal)
    while wal.file_count < 3:
        busy.append(busy.last_index + 1, 1, b"\0" * 300)
        sync(wal)
    busy.set_commit(busy.last_index)
    busy.cut_front(busy.last_index)
    sync(wal)
    names = disk.names()
    reclaim(wal)
    reclaim(wal)
    assert disk.names() == names, "a file went before its successors were synced"
    sync(wal)
    reclaim(wal)
    assert [name for name in disk.names() if file_number(name)] == names[-1:]
    reclaim(wal)
    assert not wal.dirty, "what was rewritten once is rewritten again"
    again = open_wal(disk)
    assert (again.groups[G1].term, again.groups[G1].vote) == (7, 3)
    assert again.groups[G2].base_index == busy.last_index
    assert GroupId(9, 1) not in again.groups


def test_x3_files_go_oldest_first_whatever_the_power_does() -> None:
    for crash in range(1, 12):
        for seed in range(5):
            disk = SimDisk(random.Random(seed * 100 + crash))
            wal = open_wal(disk)
            log = wal.create_group(G1)
            while wal.file_count < 5:
                log.append(log.last_index + 1, 1, b"\0" * 300)
                sync(wal)
            log.set_commit(log.last_index)
            log.cut_front(log.last_index)
            sync(wal)
            reclaim(wal)
            sync(wal)
            disk.die_at = disk.operations + crash
            with contextlib.suppress(Died):
                reclaim(wal)
            disk.lose_power()
            again = open_wal(disk)
            assert not again.recovery.damaged
            assert again.groups[G1].base_index == log.last_index


def test_x3_a_retired_group_is_never_created_again() -> None:
    disk = SimDisk(random.Random(1))
    wal = open_wal(disk)
    wal.create_group(G1)
    wal.retire_group(G1)
    sync(wal)
    for reopened in (wal, open_wal(disk)):
        with pytest.raises(InvariantError, match="the node would create a retired group again"):
            reopened.create_group(G1)


def test_x15_the_commit_index_is_never_outside_what_is_held() -> None:
    disk = SimDisk(random.Random(1))
    wal = open_wal(disk)
    log = wal.create_group(G1)
    log.append(2, 1, b"\0x")
    log.set_commit(90)
    assert log.commit_index == 2
    log.set_commit(50)
    assert log.stored_commit == 90
    sync(wal)
    assert open_wal(disk).groups[G1].commit_index == 2
    log.reset(40, 3)
    assert log.commit_index == 40


def test_an_entry_that_is_held_is_not_written_again() -> None:
    disk = SimDisk(random.Random(1))
    wal = open_wal(disk)
    log = wal.create_group(G1)
    for index in (2, 3, 4):
        log.append(index, 1, b"\0%d" % index)
    sync(wal)
    log.append(2, 1, b"\0%d" % 2)
    assert (log.last_index, wal.dirty) == (4, False)
    log.set_hard_state(1, None)
    sync(wal)
    log.set_hard_state(1, None)
    assert not wal.dirty


def test_S2_x2_5_changes_that_raft_forbids_break_an_invariant() -> None:
    log = open_wal(SimDisk(random.Random(1))).create_group(G1)
    for index in (2, 3, 4):
        log.append(index, 1, b"\0x")
    log.set_commit(3)
    log.set_hard_state(5, 2)
    everything: list[Callable[[], object]] = [
        lambda: log.append(3, 5, b"\0y"),  # committed
        lambda: log.append(6, 5, b"\0y"),  # a gap
        lambda: log.append(5, 0, b"\0y"),  # an older term
        lambda: log.set_hard_state(4, None),
        lambda: log.set_hard_state(5, 3),  # a second vote
        lambda: log.cut_front(4),
    ]
    for forbidden in everything:
        with pytest.raises(InvariantError):
            forbidden()
    assert (log.last_index, log.term, log.vote, log.base_index) == (4, 5, 2, 1)


def test_S1_x2_1_a_message_waits_for_its_entries_and_for_the_term_and_vote() -> None:
    disk = SimDisk(random.Random(1))
    wal = open_wal(disk)
    log = wal.create_group(G1)
    sync(wal)
    assert log.message_round(1) == 0
    log.append(2, 1, b"\0x")
    first = wal.open_round
    in_flight = wal.collect()
    assert in_flight is not None
    log.append(3, 1, b"\0y")
    log.set_hard_state(2, 3)
    assert [log.round_of(index) for index in (1, 2, 3)] == [0, first, first + 1]
    assert log.message_round(2) == first + 1, "the vote is not on disk yet"
    assert not log.hard_state_durable
    wal.write(in_flight)
    assert wal.complete(in_flight) == [G1]
    assert (log.durable_index, log.round_of(2), log.message_round(2)) == (2, 0, first + 1)
    log.cut_front(1)
    log.set_commit(2)
    log.cut_front(2)
    assert log.durable_index == 2
    sync(wal)
    assert (log.durable_index, log.message_round(3), log.hard_state_durable) == (3, 0, True)


def test_x1_a_reset_takes_the_base_s_term_when_it_is_newer_and_forgets_the_vote() -> None:
    disk = SimDisk(random.Random(1))
    wal = open_wal(disk)
    log = wal.create_group(G1)
    log.append(2, 1, b"\0x")
    log.set_hard_state(3, 2)
    log.reset(9, 2)
    assert (log.term, log.vote) == (3, 2)
    log.reset(12, 5)
    assert (log.term, log.vote, log.last_term) == (5, None, 5)
    assert log.entries(13, 99) == []
    log.append(13, 5, b"\0y")
    sync(wal)
    again = open_wal(disk).groups[G1]
    assert (again.base_index, again.term, again.vote) == (12, 5, None)
    assert [entry.index for entry in again.entries(13, 99)] == [13]


@pytest.mark.parametrize("seed", range(40))
def test_S1_x2_1_durability_against_a_model(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Appends, conflicts, cuts and resets between rounds in flight: what is durable is what was
    written, in its present content, in a round that is synced."""
    monkeypatch.setattr("lognode.client.protocol.limits.log_cache_bytes_max", 300)
    rng = random.Random(seed)
    disk = SimDisk(rng)
    wal = open_wal(disk)
    log = wal.create_group(G1)
    sync(wal)
    base, term = (1, 0), 1
    held: dict[int, tuple[int, bytes, int]] = {}
    in_flight = None
    for _ in range(150):
        action = rng.random()
        last = base[0] + len(held)
        if action < 0.45:
            index = last + 1
            if rng.random() < 0.3 and last > log.commit_index:
                index, term = rng.randrange(log.commit_index + 1, last + 1), term + 1
            held = {at: value for at, value in held.items() if at < index}
            command = b"\0" + rng.randbytes(40)
            held[index] = (term, command, wal.open_round)
            log.append(index, term, command)
        elif action < 0.55:
            log.set_commit(rng.randrange(1, last + 1))
        elif action < 0.65 and log.commit_index > base[0]:
            cut = rng.randrange(base[0] + 1, log.commit_index + 1)
            base = (cut, held[cut][0])
            held = {at: value for at, value in held.items() if at > cut}
            log.cut_front(cut)
        elif action < 0.68:
            at = rng.randrange(max(base[0], log.commit_index), last + 4)
            if at in held and rng.random() < 0.7:
                base = (at, held[at][0])
                held = {index: value for index, value in held.items() if index > at}
            elif at > base[0]:
                term += 1
                base, held = (at, term), {}
            log.reset(*base)
        elif in_flight is None:
            in_flight = wal.collect()
        else:
            wal.write(in_flight)
            wal.complete(in_flight)
            in_flight = None
        durable = base[0]
        while durable + 1 in held and held[durable + 1][2] <= wal.synced_round:
            durable += 1
        assert (log.base_index, log.base_term) == base
        assert log.last_index == base[0] + len(held)
        assert log.durable_index == durable
        for index, (entry_term, command, round_) in held.items():
            entry = log.entry(index)
            assert (entry.term, entry.command) == (entry_term, command)
            waits = log.round_of(index)
            assert (waits == 0) == (index <= durable)
            assert waits >= (round_ if round_ > wal.synced_round else 0)
    if in_flight is not None:
        wal.write(in_flight)
        wal.complete(in_flight)
    sync(wal)
    disk.lose_power()
    again = open_wal(disk)
    assert not again.recovery.damaged
    found = again.groups[G1]
    assert (found.base_index, found.base_term, found.term) == (*base, log.term)
    assert {index: (found.entry(index).term, found.entry(index).command) for index in held} == {
        index: (entry_term, command) for index, (entry_term, command, _) in held.items()
    }
