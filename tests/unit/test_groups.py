"""The replicated state of consumer groups, one rule at a time; `test_groups_model` mixes them."""

import random
from pathlib import Path
from typing import Any

import msgpack
import pytest
from group_model import GROUP, GroupModel
from lineages import KEYS

from lognode.client.protocol import limits
from lognode.client.protocol.errors import CorruptData, InvalidArgument
from lognode.statemachine import commands
from lognode.statemachine.groups import forms
from lognode.statemachine.groups.group import Group
from lognode.statemachine.groups.lag import lag
from lognode.statemachine.groups.row import Row
from lognode.statemachine.range_state import RangeState
from lognode.statemachine.received_base import received
from lognode.statemachine.span_map import Steps

A, B, H = KEYS[0], KEYS[1], KEYS[7]


@pytest.fixture
def model(tmp_path: Path) -> GroupModel:
    """A range with entries 1 to 3 of A, B, H, and an open group at the first."""
    model = GroupModel(tmp_path / "log")
    (state,) = model.log.ranges
    model.log.append(state, [A, B, H])
    model.open(state, 1, False)
    return model


def only(model: GroupModel) -> tuple[RangeState, Group]:
    (state,) = model.log.ranges
    return state, state.groups.by_id[GROUP]


def ack(model: GroupModel, *acks: list[Any], fence: int | None = None) -> dict[str, Any]:
    state, group = only(model)
    fence = group.fence if fence is None else fence
    return model.do(state, commands.GROUP_ACK, [GROUP, fence, *map(list, zip(*acks, strict=True))])


def test_x30_an_ack_of_an_earlier_leaders_lease_is_refused(model: GroupModel) -> None:
    state, group = only(model)
    old = group.fence
    for _ in range(2):  # another node leads, then the first node leads again
        model.open(state, 1, False)
    reply = ack(model, [A, 1, 2], fence=old)
    assert reply["error"]["code"] == "FENCED"
    assert reply["error"]["fields"]["epoch"] == group.fence == old + 2
    assert group.position(A) == 1


def test_x30_an_ack_is_refused_after_a_reset_to_the_same_position(model: GroupModel) -> None:
    state, group = only(model)
    old = group.fence
    assert ack(model, [A, 1, 2]) == {"status": "ok"}
    model.reset(state, (b"", None), 1)
    assert ack(model, [A, 1, 2], fence=old)["error"]["code"] == "FENCED"
    assert group.position(A) == 1


def test_x30_a_claim_from_before_a_reset_does_not_pass_entries(model: GroupModel) -> None:
    state, group = only(model)
    assert ack(model, [A, 1, 2], [B, 1, 3], [H, 1, 4]) == {"status": "ok"}
    model.done = {A: {1}, B: {2}, H: {3}, **{key: set() for key in KEYS[2:7]}}
    model.claim(state, 99, 0)
    model.reset(state, (b"", None), 1)
    model.apply_claim(0)
    assert group.floors.values == [1]
    model.check()


def test_x30_a_claim_holds_for_a_key_whose_row_went_meanwhile(model: GroupModel) -> None:
    """H is at seq 3 when the leader reads, and has no row when the claim is applied."""
    state, group = only(model)
    model.claim(state, 99, 0)
    model.apply_claim(0)
    assert group.rows == {A: Row(1), B: Row(1), H: Row(1)}
    model.log.append(state, [H])  # seq 4
    model.claim(state, 99, 0)
    model.lease(state, H, 1)
    model.leases[H].through = 4  # nothing of H lies between: the leader moves H to the floor
    model.ack(state, H)
    assert H not in group.rows
    model.apply_claim(0)
    assert (group.floors.values, group.rows[H]) == ([5], Row(4))
    model.check()


def test_G2_G3_an_entry_is_acked_once_and_in_order(model: GroupModel) -> None:
    state, group = only(model)
    model.log.append(state, [A])
    assert ack(model, [A, 1, 2]) == {"status": "ok"}
    assert ack(model, [A, 1, 2], [B, 1, 3]) == {"status": "ok", "refused": [0], "actual": [2]}
    assert group.position(B) == 3
    assert ack(model, [A, 3, 5])["refused"] == [0]
    assert ack(model, [A, 2, 99])["refused"] == [0], "no entry is there yet"


def test_G1_a_parked_key_is_acked_by_nobody(model: GroupModel) -> None:
    state, group = only(model)
    note = [A, 1, 5, forms.PARK, "broken"]
    assert model.do(state, commands.GROUP_NOTE, [GROUP, 1, [note], "c"]) == {"status": "ok"}
    assert ack(model, [A, 1, 2])["refused"] == [0]
    assert group.rows[A] == Row(1, 5, parked=True, error="broken")
    assert group.decisions[-1][1:] == (forms.PARK, "c", A, A + b"\0", 1, 2, "broken")
    assert model.do(state, commands.GROUP_RETRY, [GROUP, [A], "ann"]) == {"status": "ok"}
    assert A not in group.rows
    assert ack(model, [A, 1, 2]) == {"status": "ok"}


def test_groups_begin_with_their_feature_level(tmp_path: Path) -> None:
    model = GroupModel(tmp_path / "log")
    state = RangeState(start=b"", end=None, store=model.log.store)
    model.do(state, commands.LEVEL, 3)
    reply = model.do(state, commands.GROUP_OPEN, [GROUP, 1, False])
    assert reply["error"]["code"] == "CONFLICT"
    assert "feature level 4" in reply["error"]["message"]
    assert model.do(state, commands.GROUP_ACK, [GROUP, 1, [A], [1], [2]])["status"] == "error"
    model.do(state, commands.LEVEL, 4)
    assert model.do(state, commands.GROUP_OPEN, [GROUP, 1, False])["fence"] == 1


def test_a_base_without_groups_is_as_earlier_versions_write_it(model: GroupModel) -> None:
    state, _ = only(model)
    assert model.do(state, commands.GROUP_FORGET, [GROUP]) == {"status": "ok"}
    model.log.flush(state)
    assert "groups" not in state.durable_base.tables
    model.log.split(state, b"c")
    model.log.unite(0)
    assert "groups" not in model.log.ranges[0].durable_base.tables


def test_a_range_has_few_groups_and_each_has_few_rows(
    model: GroupModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, group = only(model)
    for group_id in range(100, 99 + limits.groups_max):
        assert model.do(state, commands.GROUP_OPEN, [group_id, 1, False])["status"] == "ok"
    reply = model.do(state, commands.GROUP_OPEN, [99, 1, False])
    assert reply["error"]["code"] == "OVERLOADED"
    assert model.do(state, commands.GROUP_OPEN, [GROUP, 1, False])["fence"] == 2
    monkeypatch.setattr(limits, "group_rows_max", 2)
    assert ack(model, [A, 1, 2], [B, 1, 3], [H, 1, 4])["refused"] == [2]
    claim = [GROUP, 2, b"", None, 1, 4, [H], []]
    assert model.do(state, commands.GROUP_FLOOR, claim)["error"]["code"] == "OVERLOADED"
    assert group.floors.values == [1]
    claim[5:7] = [3, []]  # H begins at seq 3: the floor goes so far
    assert model.do(state, commands.GROUP_FLOOR, claim) == {"status": "ok"}
    assert (group.floors.values, group.rows) == ([3], {})


def test_an_ack_far_above_the_floor_is_refused(
    model: GroupModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "group_window_max", 2)
    assert ack(model, [B, 1, 3], [H, 1, 4])["refused"] == [1]


def test_G5_a_parked_key_does_not_hold_up_the_floor(model: GroupModel) -> None:
    state, group = only(model)
    model.lease(state, A, 1)
    model.fail(state, A, reject=True)
    for _ in range(20):
        model.log.append(state, [B, H])
        for key in (B, H):
            model.lease(state, key, 9)
            model.ack(state, key)
        model.claim(state, 0, 0)  # A has a row: no other row is needed
        model.apply_claim(0)
        assert group.floors.values == [state.next_seq]
        assert list(group.rows) == [A]
    model.check()


def test_the_last_decisions_are_kept(model: GroupModel) -> None:
    state, group = only(model)
    for number in range(limits.group_decisions_max + 5):
        model.reset(state, (b"", None), 1 + number % 3)
    assert len(group.decisions) == limits.group_decisions_max
    assert group.decisions[-1].what == forms.RESET
    assert group.decisions[-1].who == "ann"


def test_S6_retention_waits_for_the_slowest_key_of_a_group_that_asked(model: GroupModel) -> None:
    state, group = only(model)
    model.open(state, 1, True)
    assert ack(model, [A, 1, 2], [H, 1, 4]) == {"status": "ok"}
    claim = [GROUP, group.fence, b"", None, 1, 4, [B], []]
    assert model.do(state, commands.GROUP_FLOOR, claim) == {"status": "ok"}
    model.do(state, commands.TRIM_SPANS, [[b"", None, 4]])
    assert state.keys(limit=9) == [A, B, H], "B holds its span"
    assert ack(model, [B, 1, 4]) == {"status": "ok"}
    model.do(state, commands.TRIM_SPANS, [[b"", None, 4]])
    assert state.keys(limit=9) == []
    assert not group.decisions


def test_G2_what_retention_removes_is_recorded_as_lost(model: GroupModel) -> None:
    state, group = only(model)
    assert ack(model, [A, 1, 2]) == {"status": "ok"}
    model.do(state, commands.TRIM_SPANS, [[b"", b"c", 3]])
    assert group.decisions[0][1:7] == (forms.LOST, "", b"", b"c", 1, 3)
    assert group.decisions[1][1:7] == (forms.LOST, "", A, A + b"\0", 2, 3)
    assert (group.position(A), group.position(B), group.position(H)) == (3, 3, 1)
    assert not group.rows


def test_x12_floors_of_merged_ranges_stay_apart_until_they_are_equal(model: GroupModel) -> None:
    state, _ = only(model)
    model.split(state, b"c")
    left, right = model.log.ranges
    model.log.append(left, [A] * 50)
    for state, keys in ((left, [A, B]), (right, [H])):
        for key in keys:
            model.lease(state, key, 999)
            model.ack(state, key)
        model.claim(state, 9, 0)
        model.apply_claim(0)
    model.unite(0)
    state, group = only(model)
    assert (group.floors.starts, group.floors.values) == ([b"", b"c"], [54, 4])
    model.check()
    model.quiet(state)
    assert (group.floors.starts, group.floors.values) == ([b""], [54])


def test_a_group_that_one_parent_lacks_begins_there_by_its_next_leader(model: GroupModel) -> None:
    state, _ = only(model)
    model.split(state, b"c")
    _, right = model.log.ranges
    model.do(right, commands.GROUP_FORGET, [GROUP])
    model.unite(0)
    state, group = only(model)
    assert (group.position(A), group.position(H)) == (1, 0)
    assert ack(model, [H, 1, 4])["refused"] == [0]
    assert not lag(state, group).begun
    model.do(state, commands.GROUP_OPEN, [GROUP, limits.number_max, False])
    assert (group.position(A), group.position(H)) == (1, state.next_seq)


def test_S10_a_refused_reset_changes_nothing(
    model: GroupModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, group = only(model)
    before = group.to_wire()
    monkeypatch.setattr(limits, "group_rows_max", 1)
    payload = [GROUP, [[b"", None, 2]], [[A, 1], [B, 1]], "ann"]
    assert model.do(state, commands.GROUP_RESET, payload)["error"]["code"] == "OVERLOADED"
    assert group.to_wire() == before
    payload[2] = [[A, 1], [B, 2]]
    assert model.do(state, commands.GROUP_RESET, payload) == {"status": "ok"}
    assert group.rows == {A: Row(1)}


ROW = [1, 0, False, "", 0, 0]
DECISION = [1, 2, "ann", A, A + b"\0", 1, 2, ""]
GROUP_ROW = [1, False, [[b""], [1]], {A: ROW}, [DECISION]]


@pytest.mark.parametrize(
    "table",
    [
        [], {b"7": GROUP_ROW}, {7: GROUP_ROW[:4]}, {7: [-1, *GROUP_ROW[1:]]},
        {7: [1, 0, *GROUP_ROW[2:]]}, {7: [1, False, [[b"a"], [1]], {}, []]},
        {7: [1, False, [[b""], ["x"]], {}, []]}, {7: [1, False, [[b""], [1]], {"a": ROW}, []]},
        {7: [1, False, [[b""], [1]], {A: [0, *ROW[1:]]}, []]},
        {7: [1, False, [[b""], [1]], {A: [1, 0, 0, *ROW[3:]]}, []]},
        {7: [1, False, [[b""], [1]], {A: [1, 0, False, "x" * 129, 0, 0]}, []]},
        {7: [1, False, [[b""], [1]], {A: [1, 0, True, "", 0, -1]}, []]},
        {7: [1, False, [[b""], [1]], {A: [1, 0, True, "", "p", 1]}, []]},
        {7: [1, False, [[b""], [1]], {A: ROW[:4]}, []]},
        {7: [1, False, [[b""], [1]], {}, [[1, 99, "", A, None, 1, 2, ""]]]},
        {7: [1, False, [[b""], [1]], {}, [[1, 2, "", None, None, 1, 2, ""]]]},
        {7: [1, False, [[b""], [1]], {}, [DECISION] * 1_001]},
    ],
)  # fmt: skip
def test_a_received_table_of_groups_is_checked(model: GroupModel, table: Any) -> None:
    state, _ = only(model)
    model.log.flush(state)
    body = state.durable_base.to_wire()
    body["tables"] = {**body["tables"], "groups": {7: GROUP_ROW}}
    packed = msgpack.packb(body)
    assert received(msgpack.unpackb(packed, strict_map_key=False)).tables["groups"]
    body["tables"]["groups"] = table
    with pytest.raises(CorruptData, match="the groups of a base"):
        received(body)


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        (commands.GROUP_OPEN, [GROUP, 1, 1]),
        (commands.GROUP_ACK, [GROUP, 1, [], [], []]),
        (commands.GROUP_ACK, [GROUP, 1, [A], [2], [2]]),
        (commands.GROUP_ACK, [GROUP, 1, [A], [0], [2]]),
        (commands.GROUP_ACK, [GROUP, 1, [A], [1], [limits.number_max + 1]]),
        (commands.GROUP_ACK, [GROUP, 1, [A], [True], [2]]),
        (commands.GROUP_ACK, [GROUP, 1, [A, A], [1, 2], [2]]),
        (commands.GROUP_ACK, [GROUP, 1, [b""], [1], [2]]),
        (commands.GROUP_ACK, [GROUP, 1, [A * 489], [1], [2]]),
        (commands.GROUP_ACK, [GROUP, 1, ["a"], [1], [2]]),
        (commands.GROUP_ACK, [GROUP, 1, [A] * 1_025, [1] * 1_025, [2] * 1_025]),
        (commands.GROUP_NOTE, [GROUP, 1, [[A, 1, 1, 3, ""]], "c"]),
        (commands.GROUP_NOTE, [GROUP, 1, [[A, 1, 1, 0, "x" * 129]], "c"]),
        (commands.GROUP_FLOOR, [GROUP, 1, b"", None, 0, 5, [], []]),
        (commands.GROUP_FLOOR, [GROUP, 1, b"", None, 5, 4, [], []]),
        (commands.GROUP_SKIP, [GROUP, [[A, 1, 2]], forms.RETRY, "ann", ""]),
        (commands.GROUP_SKIP, [GROUP, [[A, 1, 2]], forms.DEAD_LETTER, "ann", ""]),
        (commands.GROUP_LETTER, [GROUP, 1, 9, []]),
        (commands.GROUP_LETTER, [GROUP, 1, 9, [[A, 2, 1, 1]]]),
        (commands.GROUP_LETTER, [GROUP, 1, 9, [[A, 1, 1, 0]]]),
        (commands.GROUP_COPIED, [GROUP, 1, [[A, 0]], forms.DEAD_LETTER]),
        (commands.GROUP_COPIED, [GROUP, 1, [[A, 1]], forms.SKIP]),
        (commands.GROUP_RESET, [GROUP, [], [], "ann"]),
        (commands.GROUP_RESET, [GROUP, [[b"", None, 0]], [], "ann"]),
        (commands.GROUP_FORGET, []),
    ],
)
def test_a_payload_of_another_form_is_not_proposed(kind: int, payload: list[Any]) -> None:
    with pytest.raises(InvalidArgument, match="out of bounds"):
        commands.proposal(kind, 1, payload)


def test_a_key_outside_of_the_range_is_refused(model: GroupModel) -> None:
    state, _ = only(model)
    model.split(state, b"c")
    left, _ = model.log.ranges
    fence = left.groups.by_id[GROUP].fence
    for kind, payload in (
        (commands.GROUP_ACK, [GROUP, fence, [A, H], [1, 1], [2, 2]]),
        (commands.GROUP_RETRY, [GROUP, [H], "ann"]),
        (commands.GROUP_FLOOR, [GROUP, fence, b"", None, 1, 2, [], []]),
        (commands.GROUP_FLOOR, [GROUP, fence, b"", b"c", 1, 2, [H], []]),
    ):
        assert model.do(left, kind, payload)["error"]["code"] == "GENERATION_MISMATCH"
    assert left.groups.by_id[GROUP].position(A) == 1


def _drawn(rng: random.Random) -> Group:
    group = Group()
    group.floors = rng.choice([Steps([b""], [3]), Steps([b"", b"d"], [3, 5]), Steps([b""], [0])])
    for key in KEYS:
        if group.floors.at(key) and rng.random() < 0.4:
            group.rows[key] = Row(rng.randint(1, 8), 0, rng.random() < 0.2)
    return group


def test_many_acknowledgements_do_what_they_do_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "group_rows_max", 5)
    monkeypatch.setattr(limits, "group_window_max", 8)
    whole = 0
    for seed in range(2_000):
        together, singly = (_drawn(random.Random(seed)) for _ in range(2))
        rng = random.Random(-seed - 1)
        keys = rng.choices(KEYS, k=rng.randint(1, 4))
        expected = [max(1, together.position(key) + (rng.random() < 0.05)) for key in keys]
        through = [begin + rng.randint(1, 3) for begin in expected]
        refused = together.ack(keys, expected, through, 12)
        found = []
        for at, step in enumerate(zip(keys, expected, through, strict=True)):
            own = singly.ack(*([part] for part in step), 12)  # type: ignore[arg-type]
            found += [(at, position) for _, position in own]
        assert refused == found, seed
        assert list(together.rows.items()) == list(singly.rows.items()), seed
        whole += not refused
    assert 200 < whole < 1_800
