"""The rules of a replica's life, without a node: a machine dies before each of their steps."""

from collections.abc import Callable, Iterator
from itertools import product
from types import SimpleNamespace
from typing import Any, Final

import pytest
from rule_machine import DESCRIPTOR, GID, Machine, rows_of

from lognode.client.protocol.errors import Unavailable
from lognode.node.directory import meta_keys
from lognode.node.rules import recovering
from lognode.node.rules.beginning import begin, may_begin
from lognode.node.rules.durable_steps import (
    Adopt,
    Begin,
    CheckFiles,
    Commit,
    CreateLog,
    CutLog,
    Damaged,
    Mark,
    ResetLog,
    RetireLogs,
    Rows,
    SetAside,
    Steps,
    Stop,
    SyncLogs,
)
from lognode.node.rules.ending import before, damage, files_of, need, needed, retire
from lognode.node.rules.flushing import cut_log, freeze_pending, may_freeze, may_propose, store_base
from lognode.node.rules.reinstalling import go_alone, reinstall
from lognode.partitions.model import CONTROLLER_RANGE, Descriptor, Span
from lognode.raft.types import GroupId
from lognode.statemachine.range_state import Base

FIRST: Final = (1, 0)
FIRST_ROWS: Final = rows_of(Base())
LATER: Final = Base(8, 2)


def begun(seed: int = 0) -> Machine:
    machine = Machine(seed)
    machine.do(begin(GID, FIRST_ROWS, FIRST, None, campaign=True))
    return machine


def crashes(steps: Callable[[Machine], Steps], last: int, term: int) -> Iterator[Machine]:
    """A machine with entries up to `last`, dead before each step of a rule, and started again."""
    count = len(steps(begun()))
    for most, power, seed in product(range(count + 1), (False, True), range(4)):
        machine = begun(seed)
        machine.append(last, term)
        machine.do(steps(machine), most)
        machine.crash(power=power)
        yield machine


# Begin.


def test_x3_a_generation_begins_once() -> None:
    assert may_begin(GID, (), {})
    assert not may_begin(GID, (GID,), {})
    assert not may_begin(GID, (), {1: 1})
    assert not may_begin(GID, (), {1: 2})
    assert may_begin(GroupId(1, 3), (), {1: 2})


def test_x2_x3_a_begin_that_is_broken_off_begins_again_or_takes_part() -> None:
    steps = begin(GID, FIRST_ROWS, FIRST, None, campaign=True)
    for most, power in product(range(len(steps) + 1), (False, True)):
        machine = Machine(most)
        machine.do(steps, most)
        assert (GID in machine.begun) == (most == len(steps))
        machine.crash(power=power)
        assert not machine.damaged
        if machine.row is None:
            assert GID not in machine.begun
            assert may_begin(GID, machine.begun, machine.marks)
            left = machine.wal.groups.get(GID)
            machine.do(begin(GID, FIRST_ROWS, FIRST, left, campaign=True))
        assert GID in machine.begun
        assert machine.marks == {1: 1}


def test_x2_x3_no_message_leaves_before_log_row_and_mark_are_durable() -> None:
    steps = begin(GID, FIRST_ROWS, FIRST, None, campaign=True)
    assert [type(step) for step in steps] == [CreateLog, SyncLogs, Commit, Mark, Begin]
    commit = steps[2]
    assert isinstance(commit, Commit)
    assert set(commit.puts) == {FIRST_ROWS.key, meta_keys.mark_key(1)}


def test_a_controllers_rows_replace_the_earlier_ones_in_one_transaction() -> None:
    gid = GroupId(CONTROLLER_RANGE, 2)
    rows = Rows(
        meta_keys.controller_key(2), {"damaged": None}, {"metadata/2/a": 1}, ("metadata/2",)
    )
    commit = begin(gid, rows, FIRST, None, campaign=False)[2]
    assert commit == Commit(
        {"metadata/2/a": 1, rows.key: {"damaged": None}, meta_keys.mark_key(0): 2},
        (),
        ("metadata/2",),
    )
    assert not commit.joint


def test_a_log_that_is_left_begins_behind_the_base_that_is_sent_now() -> None:
    machine = Machine()
    machine.do((CreateLog(GID, (5, 2)), SyncLogs()))
    steps = begin(GID, rows_of(LATER), (8, 2), machine.log, campaign=False)
    assert steps[0] == ResetLog(GID, (8, 2))
    machine.do(steps)
    assert (machine.log.base_index, machine.log.base_term) == (8, 2)
    with pytest.raises(Unavailable, match="later base"):
        begin(GID, FIRST_ROWS, FIRST, machine.log, campaign=False)


def test_x2_a_log_that_took_part_without_a_row_is_damage() -> None:
    played = begun()
    played.append(3, 1)
    voted = begun()
    voted.log.set_hard_state(4, 2)
    for machine in (played, voted):
        steps = begin(GID, FIRST_ROWS, FIRST, machine.log, campaign=True)
        assert [type(step) for step in steps] == [Commit, Mark, Damaged]
        machine.do(steps)
        machine.crash(power=True)
        assert "meta is older than the WAL" in machine.damaged[GID]


# Recovery.


def stored(base: Base, **fields: object) -> recovering.Stored:
    rows = rows_of(base)
    row = {**rows.row, **fields}
    return recovering.Stored(rows.key, row, DESCRIPTOR, (base.applied_index, base.applied_term))


def test_x15_a_log_below_what_was_applied_is_damage_unless_a_base_was_installed() -> None:
    """The simulator reset such a log and went on: the node's rule was right, and both have it."""
    machine = begun()
    machine.append(6, 1)
    for base, reason in (
        (Base(8, 1), "its log ends at entry 6, meta applied 8"),
        (Base(6, 2), "its log has entry 6 of term 1, meta applied that entry of term 2"),
    ):
        lost, installed = stored(base), stored(base, installed=True)
        assert recovering.recover(lost, machine.log, None) == (
            Damaged(GID, reason),
            Commit({lost.key: {**lost.row, "damaged": reason}}),
        )
        assert recovering.recover(installed, machine.log, None)[0] == ResetLog(
            GID, (base.applied_index, base.applied_term)
        )


def test_x2_a_log_that_is_gone_damaged_or_cut_too_far_is_damage() -> None:
    machine = begun()
    machine.append(6, 1)
    machine.log.set_commit(6)
    machine.log.cut_front(5)
    for log, wal_damage, says in (
        (None, None, "not in the WAL"),
        (machine.log, "a bad batch", "a bad batch"),
        (machine.log, None, "its log begins after 5"),
    ):
        for fields in ({}, {"installed": True}):
            steps = recovering.recover(stored(Base(4, 1), **fields), log, wal_damage)
            assert isinstance(steps[0], Damaged)
            assert says in steps[0].reason


def test_x2_known_damage_stays_and_is_not_written_again() -> None:
    machine = begun()
    known = stored(Base(), damaged="a checksum")
    assert recovering.recover(known, machine.log, None) == (Damaged(GID, "a checksum"),)


def test_x2_a_damaged_file_is_fetched_from_a_peer_where_there_is_one() -> None:
    shared = stored(LATER)
    alone = shared._replace(descriptor=Descriptor(1, 1, 1, Span(b"", None), (1,)))
    bad = {"one": "segment one is cut"}
    assert recovering.files_checked(shared, {}) == (Begin(GID, campaign=False),)
    assert recovering.files_checked(shared, bad) == (SetAside(GID, DESCRIPTOR, {}, bad),)
    assert recovering.files_checked(alone, bad)[0] == Damaged(GID, "segment one is cut")


def test_a_controller_needs_no_files() -> None:
    machine = Machine()
    gid = GroupId(CONTROLLER_RANGE, 1)
    machine.do((CreateLog(gid, FIRST),))
    descriptor = Descriptor(0, 1, 0, Span(b"", None), (1,))
    row = stored(Base())._replace(descriptor=descriptor)
    assert recovering.recover(row, machine.wal.groups[gid], None)[-1] == Begin(gid, campaign=False)
    assert isinstance(recovering.recover(stored(Base()), begun().log, None)[-1], CheckFiles)


def test_x3_logs_without_a_row_go_unless_they_are_still_to_begin() -> None:
    logs = [GroupId(1, 1), GroupId(1, 3), GroupId(2, 1), GroupId(3, 1)]
    steps = recovering.unknown_logs(logs, [GroupId(2, 1)], {1: 2, 2: 1, 3: 1})
    assert steps == (RetireLogs((GroupId(1, 1), GroupId(3, 1))),)
    assert recovering.unknown_logs(logs, logs, {1: 5}) == ()


# Later bases.


def later(machine: Machine) -> Steps:
    return reinstall(GID, rows_of(LATER), (8, 2), 1)


@pytest.mark.parametrize(("last", "term", "kept"), [(12, 2, 12), (12, 1, 8), (5, 1, 8)])
def test_x1_x15_x2_10_a_base_that_is_broken_off_is_the_old_or_the_new_one(
    last: int, term: int, kept: int
) -> None:
    """Whatever the log holds at its entry: the very entry, another leader's, or nothing."""
    whole = 0
    for machine in crashes(later, last, term):
        assert not machine.damaged
        assert machine.begun == {GID: False}
        if machine.row["base"] == LATER.to_wire():
            whole += 1
            assert (machine.log.term_at(8), machine.log.last_index) == (2, kept)
            assert machine.log.commit_index >= 8
        else:
            assert (machine.log.base_index, machine.log.last_index) == (1, last)
    assert whole


def test_x15_a_checkpoint_after_a_base_finds_the_log_on_the_disk() -> None:
    """The simulator went on before the reset was durable: its next checkpoint said no longer that a
    base was installed, and a loss of power left a log that ends below it."""
    steps = later(begun())
    assert steps.index(SyncLogs()) < steps.index(Begin(GID, campaign=False))
    for seed in range(8):
        machine = begun(seed)
        machine.append(5, 1)
        machine.do(steps)
        machine.do((Commit(rows_of(Base(8, 2)).puts()),))  # a checkpoint
        machine.crash(power=True)
        assert not machine.damaged


def test_x3_a_replica_that_is_retired_while_a_step_waits_stays_retired() -> None:
    steps = later(begun())
    waits = [n for n, step in enumerate(steps, 1) if isinstance(step, Commit | SyncLogs)]
    assert len(waits) == 2
    for most in waits:
        machine = begun()
        machine.append(5, 1)
        machine.do(steps, most)
        machine.do(retire([GID]))
        machine.do(steps[most:])
        assert not machine.begun
        assert GID not in machine.wal.groups


def test_a_base_that_is_not_later_is_refused() -> None:
    for applied in (8, 9):
        with pytest.raises(Unavailable, match="entry 8"):
            reinstall(GID, rows_of(LATER), (8, 2), applied)


# Alone.


def test_x2_24_a_replica_that_goes_on_alone_is_alone_after_any_restart() -> None:
    def alone(machine: Machine) -> Steps:
        return go_alone(GID, FIRST_ROWS.key, machine.row, 1)

    for machine in crashes(alone, 5, 1):
        assert machine.begun == {GID: False}
        assert machine.log.last_index == 5
        members = machine.row["descriptor"]["members"]
        assert (members, machine.row["descriptor"]["state"]) in (
            ([1], "SEALING"),
            ([1, 2, 3], DESCRIPTOR.state),
        )
    steps = alone(begun())
    assert steps[0] == Stop((GID,))
    assert isinstance(steps[1], Commit)
    assert steps[-1] == Begin(GID, campaign=True)
    with pytest.raises(Unavailable, match="retired"):
        go_alone(GID, FIRST_ROWS.key, None, 1)


# Ends.


def test_x2_x3_a_retirement_that_is_broken_off_is_completed_and_final() -> None:
    for machine in crashes(lambda _: retire([GID]), 5, 1):
        assert not machine.damaged, "a row without its log"
        assert machine.marks == {1: 1}
        assert not may_begin(GID, (), machine.marks)
        if machine.row is None:
            assert GID not in machine.wal.groups
        else:
            assert machine.begun == {GID: False}


def test_x2_damage_is_remembered_from_the_first_transaction_on() -> None:
    def damaged(machine: Machine) -> Steps:
        return damage(GID, machine.row, "a checksum")

    found = [machine.damaged.get(GID) for machine in crashes(damaged, 5, 1)]
    assert set(found) == {None, "a checksum"}
    assert damage(GID, None, "a checksum") == (Stop((GID,)),)


def test_the_controllers_images_go_with_its_row() -> None:
    gid = GroupId(CONTROLLER_RANGE, 2)
    steps = retire([gid, GID])
    assert steps[1] == Commit(
        {},
        [meta_keys.controller_key(2), meta_keys.replica_key(GID), meta_keys.kept_key(GID)],
        [meta_keys.controller_buckets(2)],
    )
    assert retire([]) == ()
    assert before(2, [GID, GroupId(0, 1), GroupId(0, 2)]) == [GroupId(0, 1)]


def test_files_that_rows_name_stay() -> None:
    row = {"base": {"manifest": [["one", 1], ["two", 2]]}}
    assert files_of([row, None]) == {"one", "two"}


def test_x2_10_files_of_the_durable_base_and_of_the_next_base_stay() -> None:
    """A start reads the durable base, and the next base is about to take its place."""
    old, both, new = (SimpleNamespace(content_id=name) for name in ("old", "both", "new"))
    state: Any = SimpleNamespace(
        durable_base=SimpleNamespace(manifest=[old, both]), manifest=[both, new]
    )
    row = {"base": {"manifest": [["prepared", 1]]}}
    found = needed([state], [row, None], ["pinned"])
    assert found == {"old", "both", "new", "prepared", "pinned"}
    assert [need(state, name) for name in ("old", "both", "new", "prepared")] == [
        old, both, new, None,
    ]  # fmt: skip


# Checkpoints.


def test_x16_a_base_is_in_meta_before_memory_is_freed_and_the_log_is_cut() -> None:
    def stored(_: Machine) -> Steps:
        return store_base(DESCRIPTOR, Base(4, 1))

    steps = stored(begun())
    assert steps == (Commit(rows_of(Base(4, 1)).puts()), Adopt(GID))
    found = set()
    for machine in crashes(stored, 6, 1):
        assert machine.begun == {GID: False}
        assert machine.log.last_index == 6
        found.add(machine.row["base"]["applied"][0])
    assert found == {1, 4}


def test_x2_18_x16_the_log_is_cut_behind_the_durable_base_commit_and_pins() -> None:
    log = begun()
    log.append(9, 1)
    log.log.set_commit(8)
    for wanted, durable, pins, last in (
        (6, 9, (), 6),
        (6, 5, (), 5),
        (9, 9, (), 8),
        (6, 9, (4, 7), 4),
        (6, 9, (1,), None),
        (None, 9, (), None),
        (1, 9, (), None),
    ):
        expected = () if last is None else (CutLog(GID, last),)
        assert cut_log(GID, log.log, wanted, durable, pins) == expected


def test_x25_a_generation_is_sealed_once_by_its_leader() -> None:
    assert may_propose(leads=True, ended=False, seal_proposed=False)
    assert not may_propose(leads=False, ended=False, seal_proposed=False)
    assert not may_propose(leads=True, ended=True, seal_proposed=False)
    assert not may_propose(leads=True, ended=False, seal_proposed=True)


def test_members_freeze_at_one_entry_at_a_time() -> None:
    assert may_freeze(leads=True, ended=False, seal_proposed=False, pending=False)
    for reason in ("ended", "seal_proposed", "pending"):
        given = {"ended": False, "seal_proposed": False, "pending": False, reason: True}
        assert not may_freeze(leads=True, **given)
    assert not may_freeze(leads=False, ended=False, seal_proposed=False, pending=False)
    assert freeze_pending(4, 5, 5)
    assert not freeze_pending(5, 5, 5)
    assert not freeze_pending(4, 5, 4), "another leader cut the log before it"


def test_x2_damage_is_stored_before_it_is_told() -> None:
    """The disk was full in between: the replica was told damaged, and took part after the restart.

    Seeds 413 and 734 of the simulator found this.
    """
    row = {"damaged": None}
    stop, stored_damage, told = damage(GID, row, "a checksum")
    assert stop == Stop((GID,))
    assert isinstance(stored_damage, Commit)
    assert [put["damaged"] for put in stored_damage.puts.values()] == ["a checksum"]
    assert told == Damaged(GID, "a checksum")
