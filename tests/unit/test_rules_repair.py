"""The repair of a damaged file, without a node: a machine dies before each of its steps."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count, product
from typing import Final

import pytest
from rule_machine import DESCRIPTOR, GID, Machine, file_of, rows_of

from lognode.node.directory import meta_keys
from lognode.node.rules import repairing
from lognode.node.rules.beginning import begin
from lognode.node.rules.durable_steps import (
    Begin,
    CheckAside,
    CheckFile,
    Commit,
    Damaged,
    Distrust,
    FetchFile,
    Resume,
    SetAside,
    SettleRows,
    Stop,
    Suspend,
    SyncLogs,
)
from lognode.partitions.model import Descriptor
from lognode.raft.types import GroupId
from lognode.statemachine.range_state import Base

FILE: Final = "one"
BASE: Final = Base(1, 0, [file_of(FILE)])


def rotten(seed: int = 0, *, peers_have_files: bool = True) -> Machine:
    """A machine whose only file was read back sound once, and has rotted since."""
    machine = Machine(seed)
    machine.do(begin(GID, rows_of(BASE), (1, 0), None, campaign=True))
    machine.append(5, 1)
    machine.meta.commit({meta_keys.sound_key(FILE): True})
    machine.rotten.add(FILE)
    machine.peers_have_files = peers_have_files
    return machine


def found_by_a_read(machine: Machine, most: int = 1_000) -> int:
    return machine.repair(FILE, most)


def found_by_a_step(machine: Machine, most: int = 1_000) -> int:
    steps = repairing.step_failed(DESCRIPTOR, BASE.manifest, FILE, "a checksum")
    machine.do(steps, most)
    left = most - len(steps)
    return len(steps) + machine.repair(FILE, left) if left > 0 else most


Found = Callable[..., int]
FOUND: Final = [found_by_a_read, found_by_a_step]


def crashes(found: Found, *, peers_have_files: bool) -> Iterator[tuple[int, Machine]]:
    """A machine that died before each step of a repair; with the number of steps done."""
    for most in count():
        for power, seed in product((False, True), range(3)):
            machine = rotten(seed, peers_have_files=peers_have_files)
            done = found(machine, most)
            if not most or done == most:
                machine.crash(power=power)
                yield most, machine
        if most and done < most:
            return


# Order.


def test_x2_28_nothing_of_a_file_in_doubt_is_served_until_it_is_repaired_or_given_up() -> None:
    for found, have in product(FOUND, (True, False)):
        whole = found(rotten(peers_have_files=have))
        served = []
        for most in range(whole + 1):
            machine = rotten(peers_have_files=have)
            found(machine, most)
            if machine.serves(FILE) and FILE in machine.rotten:
                served.append(most)
        assert served == [0], "only before the first step"


def test_x28_a_start_no_longer_trusts_a_file_before_it_is_checked() -> None:
    assert repairing.doubt(FILE) == (Suspend(FILE), Distrust(FILE), CheckFile(FILE))


def test_x2_28_the_damage_of_a_lost_file_is_stored_before_it_is_told_or_served() -> None:
    row = rows_of(BASE).row
    other = GroupId(2, 1)
    steps = repairing.lost(FILE, "a checksum", {GID: row, other: None})
    kinds = [type(step) for step in steps]
    assert kinds == [Stop, Commit, Damaged, Resume]
    assert steps[0] == Stop((GID, other)), "no row of a running replica is replaced"
    assert steps[1] == Commit({meta_keys.replica_key(GID): {**row, "damaged": "a checksum"}})


def test_x2_28_a_replica_comes_back_from_what_is_durable() -> None:
    steps = repairing.bring_back(GID)
    assert steps == (SyncLogs(), SettleRows(), CheckAside(GID), Begin(GID, campaign=False))


# What follows from a check, and whom to ask.


def test_a_file_that_is_sound_is_served_again_and_its_reader_is_given_up() -> None:
    rows = {GID: rows_of(BASE).row}
    sound = repairing.checked(FILE, "a checksum", damaged=False, mended=False, rows=rows)
    assert [type(step) for step in sound] == [Stop, Commit, Damaged, Resume]
    late = repairing.checked(FILE, "a checksum", damaged=False, mended=True, rows=rows)
    assert late == (Resume(FILE),), "an earlier read reported the damage that is repaired"
    gone = repairing.checked(FILE, "a checksum", damaged=False, mended=False, rows={})
    assert gone == (Resume(FILE),)
    bad = repairing.checked(FILE, "a checksum", damaged=True, mended=True, rows=rows)
    assert bad == (FetchFile(FILE),)


def test_damage_of_no_known_file_ends_the_replica_unless_a_file_is_damaged() -> None:
    rows = {GID: rows_of(BASE).row}
    assert repairing.searched("a checksum", rows, ["one"]) == ()
    given_up = repairing.searched("a checksum", rows, [])
    assert [type(step) for step in given_up] == [Stop, Commit, Damaged]


def test_the_other_members_of_each_generation_that_needs_a_file_are_asked() -> None:
    later = replace(DESCRIPTOR, range_id=2, generation=4, members=(3, 4))
    asked = repairing.sources(3, [DESCRIPTOR, later])
    assert asked == [(GID, 1), (GID, 2), (GroupId(2, 4), 4)]
    assert repairing.sources(1, [replace(DESCRIPTOR, members=(1,))]) == []


@pytest.mark.parametrize(
    ("waited_s", "all_asked", "follows"),
    [(0.0, True, "lost"), (29.0, False, "again"), (31.0, False, "lost")],
)
def test_a_member_that_cannot_be_asked_is_waited_for(
    waited_s: float, all_asked: bool, follows: str
) -> None:
    assert repairing.after_asking(waited_s, all_asked=all_asked) == follows


def test_a_replica_returns_when_all_of_its_files_are_sound() -> None:
    aside = {GID: ["one", "two"], GroupId(2, 1): ["three"]}
    assert repairing.returning(aside, {"two"}.__contains__) == [GroupId(2, 1)]
    assert repairing.returning(aside, set[str]().__contains__) == list(aside)


# Killed at every step.


@pytest.mark.parametrize("found", FOUND)
def test_x2_a_repair_that_is_broken_off_is_done_after_the_start_or_the_next_read(
    found: Found,
) -> None:
    found_at_start = 0
    for most, machine in crashes(found, peers_have_files=True):
        assert not machine.damaged
        assert machine.log.last_index == 5, "the log is whole"
        found_at_start += bool(machine.aside)
        machine.start_repairs()
        if FILE in machine.rotten:  # the start trusts the file still: a read finds the damage
            assert machine.meta.get(meta_keys.sound_key(FILE))
            found(machine)
        assert FILE not in machine.rotten, most
        assert machine.serves(FILE), most
        assert not machine.aside
        machine.crash(power=True)
        assert machine.begun == {GID: False}
    assert found_at_start


@pytest.mark.parametrize("found", FOUND)
def test_S12_a_file_that_no_peer_has_ends_the_replica_whenever_the_machine_dies(
    found: Found,
) -> None:
    told = 0
    for _, machine in crashes(found, peers_have_files=False):
        told += bool(machine.damaged)
        machine.start_repairs()
        if GID in machine.begun:
            found(machine)
        assert machine.damaged == {GID: "a checksum"}
        assert not machine.begun
        machine.crash(power=True)
        assert machine.damaged == {GID: "a checksum"}
        assert not machine.begun
    assert told, "the damage is stored before the last step"


def test_x3_a_replica_that_is_retired_while_it_waits_for_a_file_does_not_return() -> None:
    machine = rotten()
    found_by_a_step(machine, 5)
    assert machine.aside
    machine.do((Stop((GID,)),))
    machine.repair(FILE)
    assert not machine.begun
    assert not machine.suspended


def test_a_start_tells_which_files_the_waiting_replica_needs() -> None:
    machine = rotten()
    machine.meta.commit({}, [meta_keys.sound_key(FILE)])
    machine.crash(power=True)
    aside = machine.aside[GID]
    assert aside == SetAside(GID, DESCRIPTOR, {FILE: file_of(FILE)}, {FILE: "a checksum"})
    assert isinstance(aside.descriptor, Descriptor)
