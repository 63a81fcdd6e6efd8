"""A batch with acknowledgements of a group is applied as one: both, or neither."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgpack
import pytest
from group_model import GROUP, GroupModel
from lineages import KEYS

from lognode.client.protocol import limits
from lognode.client.protocol.errors import InvalidArgument
from lognode.client.protocol.records import decode_batch, encode_batch
from lognode.statemachine import commands
from lognode.statemachine.groups import forms
from lognode.statemachine.groups.group import Group
from lognode.statemachine.range_state import RangeState

A, B, H = KEYS[0], KEYS[1], KEYS[-1]


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


def batch(number: int = 1, keys: tuple[bytes, ...] = (H,), **more: Any) -> bytes:
    given = {"producer": 5, "epoch": 1, "low": 1, "atomic": True, **more}
    return encode_batch(list(keys), [b"out"] * len(keys), numbers=number, **given)


def send(model: GroupModel, data: bytes, *acks: list[Any], fence: int | None = None) -> Any:
    state, group = only(model)
    fence = group.fence if fence is None else fence
    return model.do(state, commands.GROUP_APPEND, [GROUP, fence, list(acks), data])


def whole(model: GroupModel) -> bytes:
    """All that a refused command may not change."""
    state, group = only(model)
    told = [group.to_wire(), state.next_seq, state.producers.to_wire()]
    packed: bytes = msgpack.packb(told)
    return packed


def code(reply: Mapping[str, Any]) -> str:
    assert reply["status"] == "error", reply
    assert reply["error"]["outcome"] == "not_applied"
    return str(reply["error"]["code"])


def test_S10_the_batch_and_all_acknowledgements_are_applied_together(model: GroupModel) -> None:
    state, group = only(model)
    moves = state.position_moves
    reply = send(model, batch(keys=(H, A)), [A, 1, 2], [B, 1, 3])
    assert (reply["status"], reply["first_seq"]) == ("ok", 4)
    assert [group.position(key) for key in (A, B, H)] == [2, 3, 1]
    assert state.next_seq == 6
    assert state.last_seq(H) == 4
    assert state.position_moves > moves, "waits for views are told"


@pytest.mark.parametrize(
    "acks",
    [
        [[A, 2, 3]], [[A, 1, 2], [B, 2, 3]], [[A, 1, 2], [B, 1, 9]], [[A, 1, 2], [H, 3, 4]],
    ],
)  # fmt: skip
def test_G2_nothing_is_applied_when_one_key_does_not_fit(
    model: GroupModel, acks: list[list[Any]]
) -> None:
    before = whole(model)
    reply = send(model, batch(), *acks)
    assert code(reply) == "FENCED"
    bad = len(acks) - 1
    assert (reply["refused"], reply["actual"]) == ([bad], [1])
    assert whole(model) == before


def test_x30_nothing_is_applied_for_a_lease_of_an_earlier_leader(model: GroupModel) -> None:
    state, group = only(model)
    old = group.fence
    model.open(state, 1, False)
    before = whole(model)
    reply = send(model, batch(), [A, 1, 2], fence=old)
    assert code(reply) == "FENCED"
    assert "refused" not in reply
    assert whole(model) == before


def test_G2_a_parked_key_refuses_the_batch(model: GroupModel) -> None:
    state, group = only(model)
    note = [GROUP, group.fence, [[A, 1, 1, forms.REJECT, "bad"]], ""]
    assert model.do(state, commands.GROUP_NOTE, note)["status"] == "ok"
    before = whole(model)
    assert code(send(model, batch(), [A, 1, 2])) == "FENCED"
    assert whole(model) == before


def test_a_batch_without_a_row_for_each_key_is_refused(
    model: GroupModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "group_rows_max", 1)
    before = whole(model)
    reply = send(model, batch(), [A, 1, 2], [B, 1, 2])
    assert (code(reply), reply["refused"], reply["actual"]) == ("FENCED", [1], [1])
    assert whole(model) == before
    assert send(model, batch(), [A, 1, 2])["status"] == "ok"


def test_S8_a_repetition_is_answered_first_whatever_the_group_says_by_now(
    model: GroupModel,
) -> None:
    state, group = only(model)
    fence, data = group.fence, batch(keys=(H, H))
    assert send(model, data, [A, 1, 2])["first_seq"] == 4
    model.open(state, 1, False)
    before = whole(model)
    again = send(model, data, [A, 1, 2], fence=fence)
    assert (again["status"], again["seqs"], again["duplicates"]) == ("ok", [4, 5], [0, 1])
    assert state.repeated(decode_batch(data)) == {**again, "timestamp_ms": 1}
    assert whole(model) == before
    other = batch(number=3)
    assert state.repeated(decode_batch(other)) is None
    assert code(send(model, other, [A, 1, 2], fence=fence)) == "FENCED"
    assert whole(model) == before


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (batch(number=9, prevs=[8]), "OUT_OF_ORDER"),
        (batch(number=9, expects=[7]), "SEQUENCE_MISMATCH"),
        (batch(number=9, epoch=0), "FENCED"),
        (batch(number=1, keys=(H, H)), "INVALID_ARGUMENT"),  # the first was appended before
        (batch(number=9, atomic=False), "CORRUPT_DATA"),
        (batch(number=9, each=True, expects=[7]), "CORRUPT_DATA"),
        (b"no batch", "CORRUPT_DATA"),
    ],
)
def test_S10_a_refused_batch_acknowledges_nothing(
    model: GroupModel, data: bytes, expected: str
) -> None:
    state, group = only(model)
    assert model.do(state, commands.APPEND, [batch()])["status"] == "ok"
    positions = group.to_wire()
    before, entries = whole(model), state.next_seq
    reply = send(model, data, [A, 1, 2])
    assert code(reply) == expected
    assert "refused" not in reply
    assert (group.to_wire(), state.next_seq, whole(model)) == (positions, entries, before)


def test_a_range_without_the_group_or_the_key_refuses_the_batch(model: GroupModel) -> None:
    state, _group = only(model)
    payload = [GROUP + 1, 1, [[A, 1, 2]], batch()]
    assert code(model.do(state, commands.GROUP_APPEND, payload)) == "NOT_FOUND"
    model.split(state, B)
    left = model.log.ranges[0]
    model.open(left, 1, False)
    fence = left.groups.by_id[GROUP].fence
    before = left.next_seq
    for data, key in ((batch(keys=(A,)), H), (batch(keys=(H,)), A)):
        reply = model.do(left, commands.GROUP_APPEND, [GROUP, fence, [[key, 1, 2]], data])
        assert code(reply) == "GENERATION_MISMATCH"
    assert left.next_seq == before


@pytest.mark.parametrize(
    "payload",
    [
        [GROUP, 1, [], b""], [GROUP, 1, [[A, 1, 2], [A, 1, 3]], b""], [GROUP, 1, [[A, 2, 2]], b""],
        [GROUP, 1, [[A, 1, 2]], "text"], [GROUP, 1, [[A, 1, 2]]],
    ],
)  # fmt: skip
def test_a_malformed_command_is_not_proposed(payload: list[Any]) -> None:
    with pytest.raises(InvalidArgument):
        commands.proposal(commands.GROUP_APPEND, 1, payload)
