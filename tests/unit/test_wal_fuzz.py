"""Any bytes of a WAL of recycled files changed in any way: damaged, refused, or exactly what was
synced. Hypothesis prints the seed of a failure."""

import random
from functools import partial

import pytest
import raft_wal
from hypothesis import event, given, note, settings
from hypothesis import strategies as st
from raft_wal import sync

from lognode.chaos.sim.disk import SimDisk
from lognode.client.protocol.errors import CorruptData
from lognode.raft.group_log import GroupLog
from lognode.raft.types import GroupId
from lognode.raft.wal import Wal
from lognode.raft.wal_scan import file_name, file_number, scan

FILE_BYTES = 2048
open_wal = partial(raft_wal.open_wal, file_bytes=FILE_BYTES)
GROUPS = [GroupId(number, 1) for number in range(1, 5)]
GONE = GroupId(9, 1)

Contents = dict[GroupId, tuple[object, ...]]


def contents(wal: Wal) -> Contents:
    return {gid: contents_of(log) for gid, log in wal.groups.items()}


def contents_of(log: GroupLog) -> tuple[object, ...]:
    entries = log.entries(log.first_index, log.last_index)
    return (log.term, log.vote, log.commit_index, log.base_index, log.base_term, entries)


def written(disk: SimDisk, rng: random.Random) -> Contents:
    """A life of some groups: conflicts, votes, cuts, resets, files used again, starts."""
    wal = open_wal(disk)
    for gid in (*GROUPS, GONE):
        wal.create_group(gid)
    sync(wal)
    wal.retire_group(GONE)
    term = 1
    for _ in range(rng.randint(30, 80)):
        log = wal.groups[rng.choice(GROUPS)]
        what = rng.random()
        if what < 0.6:
            log.append(log.last_index + 1, max(1, log.last_term), b"\0" + rng.randbytes(150))
        elif what < 0.7 and log.last_index > log.commit_index:
            term += 1
            log.append(log.last_index, term, b"\0" + rng.randbytes(50))
        elif what < 0.8:
            term += 1
            log.set_hard_state(max(term, log.term + 1), rng.randint(1, 3))
        elif what < 0.9:
            log.set_commit(log.last_index)
            log.cut_front(max(log.base_index, log.last_index - rng.randrange(3)))
        elif what < 0.93:
            term += 1
            log.reset(log.last_index + 3, term)
        if rng.random() < 0.8:
            sync(wal)
        if rng.random() < 0.3:
            wal.let_go(wal.reclaim())
        if rng.random() < 0.03:
            sync(wal)
            wal = open_wal(disk)
    sync(wal)
    wal.mark()
    wal.groups[GROUPS[0]].write_state(must_sync=True)
    sync(wal)
    return contents(open_wal(disk))


def spoil(disk: SimDisk, rng: random.Random, newest: int, end: int, *, alone: bool) -> str:
    """Change something, though not the last mark: damage to the last round looks like a torn tail
    without one (x5). So does the loss of the newest file, if the end of the one before
    it, which names it, is lost as well: only `alone`."""
    sizes = {name: disk.size(name) for name in disk.names() if file_number(name)}
    sizes[file_name(newest)] = end
    name = rng.choice([name for name, size in sizes.items() if size])  # one may be cut to nothing
    size = sizes[name]
    at = rng.randrange(size)
    length = min(rng.choice([1, 8, 28, 56, 300, FILE_BYTES]), size - at)
    how = rng.choice(["flip", "zero", "noise", "copy", "cut", "delete", "swap"])
    if how == "flip":
        disk.flip_bit(name, at, rng.randrange(8))
    elif how == "zero":
        disk.write(name, at, [bytes(length)])
    elif how == "noise":
        disk.write(name, at, [rng.randbytes(length)])
    elif how == "copy":
        source = rng.choice(disk.names())
        disk.write(name, at, [disk.read(source, rng.randrange(FILE_BYTES), length)])
    elif how == "cut":
        disk.truncate(name, at)
    elif how == "delete":
        if alone or name != file_name(newest):
            disk.delete(name)
    else:
        other = rng.choice([name for name in disk.names() if file_number(name)])
        mine, its = (disk.read(each, 0, FILE_BYTES) for each in (name, other))
        if other != file_name(newest) != name:
            disk.write(name, 0, [its])
            disk.write(other, 0, [mine])
    return f"{how} {name} {at} {length}"


@pytest.mark.slow
@settings(max_examples=400, deadline=None, print_blob=True)
@given(seed=st.integers(0, 1 << 32))
def test_S12_x5_x2_11_any_damage_is_damaged_refused_or_the_synced_state(seed: int) -> None:
    rng = random.Random(seed)
    disk = SimDisk(rng)
    before = written(disk, rng)
    marked = open_wal(disk)
    newest = max(filter(None, map(file_number, disk.names())))
    found = scan(disk, newest, None)
    end = found.end.offset
    for _ in range(2):
        marked.mark()
        sync(marked)
    if max(filter(None, map(file_number, disk.names()))) != newest:
        newest, end = newest + 1, 1  # the marks began a file: its header may be hit
    count = rng.randint(1, 3)
    for _ in range(count):
        if any(file_number(name) for name in disk.names()):
            note(spoil(disk, rng, newest, end, alone=count == 1))
    try:
        wal = open_wal(disk)
    except CorruptData as error:
        event("refused")
        refusal = error.message
    else:
        refusal = ""
    if refusal:
        assert "wal-" in refusal
        return
    after = contents(wal)
    event("damaged" if wal.recovery.damaged else "whole")
    if not wal.recovery.files:
        return  # nothing is left: meta's `started` says that there was something
    for gid, held in before.items():
        # A group of which nothing is left is missing, which meta's `started` tells.
        if gid not in wal.recovery.damaged and gid in after:
            assert after[gid] == held, (gid, wal.recovery.notes)
    assert GONE not in after or GONE in wal.recovery.damaged
    again = open_wal(disk)
    assert set(again.recovery.damaged) == set(wal.recovery.damaged)
    assert contents(again) == after
