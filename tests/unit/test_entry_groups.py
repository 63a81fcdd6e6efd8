"""Groups without an order: entries of one key with many consumers, whatever happens (G1 to G6)."""

from pathlib import Path

import pytest
from entry_model import EntryModel, run
from group_model import GROUP
from lineages import KEYS

from lognode.client.protocol import limits
from lognode.client.protocol.errors import InvalidArgument
from lognode.node.dispatch.entry_leases import EntryLeases
from lognode.node.dispatch.leases import GIVEN_BACK
from lognode.statemachine import commands
from lognode.statemachine.groups import forms
from lognode.statemachine.groups.row import Decision, Row
from lognode.statemachine.groups.stored import are_groups, clipped
from lognode.statemachine.groups.units import UNIT_BYTES_MAX, entry_unit, key_of, seq_of

A, B = KEYS[:2]


@pytest.mark.parametrize("seed", range(40))
def test_G1_to_G6_hold_for_single_entries(tmp_path: Path, seed: int) -> None:
    model = run(tmp_path / "log", seed, 160)
    assert model.given


def test_many_entries_of_a_key_are_with_consumers_at_once(tmp_path: Path) -> None:
    model = EntryModel(tmp_path / "log", 1)
    (state,) = model.log.ranges
    model.log.append(state, [A] * 6)
    leader = model.lead(state)
    model.read(leader, 99)
    assert [model.take(leader, consumer, 2, claims=False) for consumer in (11, 12, 13)] == [2, 2, 2]
    assert model.most_of_a_key == 6
    last = [unit for unit in model.held[13] if seq_of(unit) == 6]
    model.send(leader, 13, "ack", last[0], model.held[13][last[0]])
    while model.apply_one(leader):
        pass
    assert model.done == {entry_unit(A, 6)}, "in any order"
    group = model.group(state)
    assert (group.floors.values, group.rows) == ([1], {entry_unit(A, 6): Row(7)})
    model.check()
    model.finish()
    assert group.floors.values == [7]


def test_G5_a_parked_entry_stops_no_other_entry_of_its_key(tmp_path: Path) -> None:
    model = EntryModel(tmp_path / "log", 1)
    (state,) = model.log.ranges
    model.log.append(state, [A] * 3)
    leader = model.lead(state)
    model.read(leader, 99)
    model.take(leader, 11, 3, claims=False)
    first, *others = sorted(model.held[11])
    model.send(leader, 11, "reject", first, model.held[11][first])
    for unit in others:
        model.send(leader, 11, "ack", unit, model.held[11][unit])
    while model.apply_one(leader):
        pass
    for _ in range(2):
        model.now += 2_000
        model.tick(leader)
        while model.apply_one(leader):
            pass
    group = model.group(state)
    assert (group.floors.values, list(group.rows)) == ([4], [first])
    assert group.rows[first].parked
    assert [each.what for each in group.decisions] == [forms.REJECT]
    assert (group.decisions[0].start, group.decisions[0].begin) == (A, 1)


def test_a_single_key_has_no_position_to_reset(tmp_path: Path) -> None:
    model = EntryModel(tmp_path / "log", 1)
    (state,) = model.log.ranges
    model.lead(state)
    reply = model.do(state, commands.GROUP_RESET, [GROUP, [], [[b"a" * 20, 1]], "ann"])
    assert reply["error"]["code"] == InvalidArgument.code
    reply = model.do(state, commands.GROUP_RESET, [GROUP, [[b"", None, 1]], [], "ann"])
    assert reply["status"] == "ok"


def test_the_loss_of_an_undone_entry_is_recorded_and_that_of_a_done_entry_is_not(
    tmp_path: Path,
) -> None:
    model = EntryModel(tmp_path / "log", 1)
    (state,) = model.log.ranges
    model.log.append(state, [A, B])
    model.lead(state)
    group = model.group(state)
    group.rows = {entry_unit(A, 1): Row(2), entry_unit(B, 2): Row(2, 1, False, "bad")}
    model.log.trim_keys(state, [A, B], 3)
    assert not group.rows
    (lost,) = group.decisions
    assert lost == Decision(lost.at_ms, forms.LOST, "", B, B + b"\0", 2, 3, "bad")


def test_rows_go_with_their_keys_though_units_sort_among_other_keys() -> None:
    unit = entry_unit(b"k", 5)
    assert (key_of(unit), seq_of(unit)) == (b"k", 5)
    rows = {unit: list(Row(5, 1, False, "bad")), entry_unit(b"k\0", 6): list(Row(7))}
    table = {GROUP: [3, False, [[b""], [4]], rows, [], True]}
    assert are_groups(table, lambda steps: True)
    (left,) = clipped(table, (b"", b"k\0")).values()
    (right,) = clipped(table, (b"k\0", None)).values()
    assert (list(left[3]), list(right[3])) == ([unit], [entry_unit(b"k\0", 6)])
    assert left[5:] == right[5:] == [True]
    for bad in ([3, False, [[b""], [4]], {b"short": list(Row(1))}, [], True],
                [3, False, [[b""], [4]], {}, [], False],
                [3, False, [[b""], [4]], {}, [], True, True]):  # fmt: skip
        assert not are_groups({GROUP: bad}, lambda steps: True)


def test_units_are_bounded() -> None:
    longest = entry_unit(b"k" * limits.key_bytes_max, limits.number_max)
    assert len(longest) == UNIT_BYTES_MAX
    assert forms.is_ack([1, 1, [longest], [1], [2]])
    assert not forms.is_ack([1, 1, [longest + b"x"], [1], [2]])
    assert forms.is_open([1, 1, False, True])
    assert not forms.is_open([1, 1, False, False])


def test_a_token_names_its_entry_until_another_one_does() -> None:
    leases = EntryLeases(1)
    unit = entry_unit(A, 1)
    first = leases.begin(unit, 11, 1, 2, 100)
    leases.end(first, GIVEN_BACK)
    assert leases.unit(first.token) == unit, "a repetition of the release is recognised"
    second = leases.begin(unit, 12, 1, 2, 100)
    assert {leases.unit(first.token), leases.unit(second.token)} == {unit}
    leases.end(second, 2)
    assert (leases.unit(first.token), leases.unit(second.token)) == (None, unit)
    third = leases.begin(entry_unit(A, 2), 12, 2, 3, 100)
    leases.drop(third)
    assert leases.unit(third.token) is None
