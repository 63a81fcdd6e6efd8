"""What a leader does with batches that come with acknowledgements, one rule at a time."""

from pathlib import Path

import pytest
from dispatch_model import LEASE_MS, DispatchModel, Given, Leader
from lineages import KEYS

from lognode.client.protocol.groups import LEASE, POSITION
from lognode.node.dispatch.commands import Appending
from lognode.node.dispatch.ready_keys import AFFINITY_MS
from lognode.statemachine import commands

A, B, C = KEYS[:3]
ANN, BEN = 11, 12


@pytest.fixture
def model(tmp_path: Path) -> DispatchModel:
    """A range with two entries of each of A, B, C, all of which Ann has."""
    model = DispatchModel(tmp_path / "log", 7)
    (state,) = model.log.ranges
    for _ in range(2):
        model.log.append(state, [A, B, C])
    leader = model.lead(state)
    model.read(leader, 99)
    assert model.take(leader, ANN, 9, 1 << 20) == 3
    return model


def only(model: DispatchModel) -> tuple[Leader, Given]:
    (leader,) = model.leaders
    return leader, model.held[ANN][A]


def append(model: DispatchModel, number: int = 1, *, consumer: int = ANN) -> Appending | None:
    leader, given = only(model)
    return model.send_append(
        leader, (consumer, "append", A, given.token, given.through, given.seqs[0], number)
    )


def reasons(appending: Appending | None) -> list[str]:
    assert appending is not None
    return [refused.reason for refused in appending.refused]


def apply_all(model: DispatchModel) -> None:
    leader, _ = only(model)
    while model.apply_one(leader):
        pass


def test_G3_the_positions_move_with_the_batch_and_the_key_goes_on(model: DispatchModel) -> None:
    leader, _given = only(model)
    asked = append(model)
    apply_all(model)
    assert asked is not None
    assert asked.reply is not None
    assert asked.reply["first_seq"] == 7
    assert A not in leader.dispatcher.in_flight
    model.read(leader, 99)
    assert model.take(leader, ANN, 9, 1 << 20) == 1, "the record is itself an entry of the key"
    assert model.held[ANN][A].seqs == [7]


def test_G1_an_old_token_or_another_consumer_appends_nothing(model: DispatchModel) -> None:
    leader, _given = only(model)
    assert reasons(append(model, consumer=BEN)) == [LEASE]
    model.now += LEASE_MS
    model.tick(leader)
    apply_all(model)
    assert reasons(append(model)) == [LEASE]
    assert not any(kind == commands.GROUP_APPEND for kind, *_ in leader.log)


def test_a_second_request_is_sent_back_until_the_first_is_applied(model: DispatchModel) -> None:
    leader, _given = only(model)
    append(model)
    model.now += LEASE_MS  # the lease does not end while the command is under way
    model.tick(leader)
    for number in (1, 2):  # a repetition, and another batch
        again = append(model, number)
        assert again is not None
        assert again.is_early
        assert not again.refused
    apply_all(model)
    assert append(model) is None, "the repetition is known by its number"
    assert reasons(append(model, 2)) == [LEASE]


def test_G2_entries_that_have_their_records_are_not_acknowledged_again(
    model: DispatchModel,
) -> None:
    """The answer to an acknowledgement of the first entry was lost."""
    leader, given = only(model)
    model.send(leader, (ANN, "ack", A, given.token, given.seqs[0] + 1))
    apply_all(model)
    assert reasons(append(model)) == [POSITION]
    assert A not in leader.dispatcher.in_flight
    model.read(leader, 99)
    model.now += AFFINITY_MS
    model.take(leader, BEN, 9, 1 << 20)
    assert model.held[BEN][A].seqs == given.seqs[1:]


def test_a_refused_batch_leaves_the_leases_and_what_waits_behind_it(model: DispatchModel) -> None:
    leader, given = only(model)
    asked = append(model)
    model.send(leader, (ANN, "ack", A, given.token, given.through))
    ((_kind, _payload, proposal),) = leader.log
    leader.log.clear()
    assert proposal is not None
    reply = {"status": "error", "error": {"code": "OUT_OF_ORDER"}}
    leader.dispatcher.append_applied(proposal, reply, model.now)
    assert asked is not None
    assert (asked.reply, asked.refused) == (reply, [])
    assert A in leader.dispatcher.in_flight
    model.propose(leader)
    assert [kind for kind, *_ in leader.log] == [commands.GROUP_ACK]
    apply_all(model)
    assert A not in leader.dispatcher.in_flight


def test_G1_a_key_that_an_operator_moves_meanwhile_refuses_the_batch(model: DispatchModel) -> None:
    leader, _given = only(model)
    model.skip_key(leader, A)
    asked = append(model)
    apply_all(model)
    assert reasons(asked) == [POSITION]
    assert A not in leader.dispatcher.in_flight


def test_a_repetition_at_the_next_leader_ends_the_claimed_lease(model: DispatchModel) -> None:
    leader, _given = only(model)
    append(model)
    apply_all(model)
    leader = model.lead(leader.state)
    model.read(leader, 99)
    model.take(leader, ANN, 0, 1, "all")
    assert A in leader.dispatcher.in_flight
    assert append(model) is None
    assert A not in leader.dispatcher.in_flight
    apply_all(model)
