"""How a leader hands out the keys of a group, one rule at a time; the model test mixes them."""

from pathlib import Path

import pytest
from dispatch_model import DELIVERIES, LEASE_MS, DispatchModel, Leader
from group_model import GROUP
from lineages import KEYS

from lognode.client.protocol import limits
from lognode.client.protocol.groups import LEASE, POSITION
from lognode.node.dispatch import supply
from lognode.node.dispatch.dispatcher import RECLAIM_MS, Dispatcher, Options
from lognode.node.dispatch.key_line import Line, Place
from lognode.node.dispatch.leases import Leases
from lognode.node.dispatch.ready_keys import AFFINITY_MS, ReadyKeys
from lognode.node.dispatch.settling import Settling
from lognode.statemachine import commands
from lognode.statemachine.groups.row import Row
from lognode.statemachine.groups.selection import Selection

A, B, C = KEYS[:3]
ANN, BEN = 11, 12


@pytest.fixture
def model(tmp_path: Path) -> DispatchModel:
    """A range with entries 1 to 3 of A, B, C, and the group's leader, which has read these."""
    model = DispatchModel(tmp_path / "log", 7)
    (state,) = model.log.ranges
    model.log.append(state, [A, B, C])
    model.read(model.lead(state), 99)
    return model


def leader_of(model: DispatchModel) -> Leader:
    (leader,) = model.leaders
    return leader


def settle(model: DispatchModel, consumer: int, **asked: object) -> Settling:
    leader, settling = leader_of(model), Settling(lambda: None)
    rows = {name: asked.pop(name, ()) for name in ("acks", "releases", "rejects", "extends")}
    leader.dispatcher.settle(
        consumer, settling=settling, now_ms=model.now, **rows, **asked,  # type: ignore[arg-type]
    )  # fmt: skip
    model.propose(leader)
    return settling


def apply_all(model: DispatchModel) -> None:
    while model.apply_one(leader_of(model)):
        pass


def test_G1_a_key_is_with_one_consumer_and_its_old_token_acks_nothing(model: DispatchModel) -> None:
    leader = leader_of(model)
    assert model.take(leader, ANN, 1, 1000) == 1
    (given,) = model.held[ANN].values()
    assert model.take(leader, BEN, 9, 1 << 20) == 2
    assert given.key not in model.held[BEN]
    model.now += LEASE_MS
    model.tick(leader)
    apply_all(model)
    model.read(leader, 99)
    refused = settle(model, ANN, acks=[(given.key, given.token, given.through)]).refused
    assert refused == [(given.key, LEASE, 1)]
    model.now += AFFINITY_MS
    assert model.take(leader, BEN, 9, 1 << 20) == 3
    refused = settle(model, ANN, acks=[(given.key, given.token, given.through)]).refused
    assert refused == [(given.key, LEASE, 1)]
    again = model.held[BEN][given.key]
    refused = settle(model, ANN, acks=[(again.key, again.token, again.through)]).refused
    assert refused, "the token of another consumer"


def test_G4_a_consumer_whose_lease_ended_gets_no_key_before_it_asks_again(
    model: DispatchModel,
) -> None:
    """Its request was under way. A paused process would fail the key again, for one pause."""
    leader = leader_of(model)
    leader.dispatcher.join(ANN, model.now)
    assert len(leader.dispatcher.take(ANN, 1, 1000, model.now).keys) == 1
    model.now += LEASE_MS
    model.tick(leader)
    apply_all(model)
    model.read(leader, 99)
    assert ANN in leader.dispatcher.silent
    assert not leader.dispatcher.has_for(ANN, model.now)
    assert not leader.dispatcher.take(ANN, 9, 1000, model.now).keys
    leader.dispatcher.join(BEN, model.now)
    assert leader.dispatcher.take(BEN, 2, 1000, model.now).keys, "at once, not after AFFINITY_MS"
    leader.dispatcher.join(ANN, model.now)
    assert leader.dispatcher.take(ANN, 1, 1000, model.now).keys


@pytest.mark.parametrize("kind", ["releases", "rejects"])
def test_G1_a_lease_that_ended_by_itself_gives_nothing_back(
    model: DispatchModel, kind: str
) -> None:
    """A consumer that was told that it has rejected a key relies on that."""
    leader = leader_of(model)
    model.take(leader, ANN, 1, 1000)
    (given,) = model.held[ANN].values()
    model.now += LEASE_MS
    model.tick(leader)
    apply_all(model)
    more = [0] if kind == "releases" else []
    refused = settle(model, ANN, **{kind: [(given.key, given.token, *more, "late")]}).refused
    assert refused == [(given.key, LEASE, 1)]


def test_a_repeated_ack_is_not_refused(model: DispatchModel) -> None:
    leader = leader_of(model)
    model.take(leader, ANN, 9, 1 << 20)
    given = model.held[ANN][A]
    for _ in range(2):  # the second while the first is under way
        assert not settle(model, ANN, acks=[(A, given.token, given.through)]).refused
    apply_all(model)
    assert not settle(model, ANN, acks=[(A, given.token, given.through)]).refused
    assert not leader.log, "nothing is proposed again"
    refused = settle(model, ANN, acks=[(A, given.token, given.through + 1)]).refused
    assert refused == [(A, LEASE, given.through)]


def test_an_ack_beyond_the_batch_is_refused(model: DispatchModel) -> None:
    model.take(leader_of(model), ANN, 9, 1 << 20)
    given = model.held[ANN][A]
    refused = settle(model, ANN, acks=[(A, given.token, given.through + 1)]).refused
    assert refused == [(A, POSITION, 1)]


def test_an_ack_of_a_part_keeps_the_rest(model: DispatchModel) -> None:
    leader = leader_of(model)
    model.log.append(leader.state, [A, A])
    model.read(leader, 99)
    model.take(leader, ANN, 9, 1 << 20)
    given = model.held[ANN][A]
    assert given.seqs == [1, 4, 5]
    assert not settle(model, ANN, acks=[(A, given.token, 2)]).refused
    apply_all(model)
    assert not settle(model, ANN, acks=[(A, given.token, 6)]).refused
    apply_all(model)
    assert model.group(leader.state).position(A) == 6  # type: ignore[union-attr]


def test_many_acks_are_one_command(model: DispatchModel) -> None:
    leader = leader_of(model)
    model.take(leader, ANN, 9, 1 << 20)
    leader.dispatcher.settle(
        ANN, [(each.key, each.token, each.through) for each in model.held[ANN].values()],
        (), (), (), Settling(lambda: None), now_ms=0,
    )  # fmt: skip
    model.propose(leader)
    assert [(kind, len(payload[2])) for kind, payload, _ in leader.log] == [(commands.GROUP_ACK, 3)]


def test_acknowledgements_gather_while_a_command_with_others_is_under_way(
    model: DispatchModel,
) -> None:
    leader = leader_of(model)
    model.take(leader, ANN, 9, 1 << 20)
    given = dict(model.held[ANN])
    for key in (A, B, C):
        settle(model, ANN, acks=[(key, given[key].token, given[key].through)])
    assert [payload[2] for _, payload, _ in leader.log] == [[A]]
    apply_all(model)
    assert not leader.log
    model.propose(leader)
    assert [payload[2] for _, payload, _ in leader.log] == [[B, C]]
    apply_all(model)
    assert model.done[C] == {3}


def test_acknowledgements_that_nobody_waits_for_gather_for_longer(model: DispatchModel) -> None:
    """The first command goes at once; the next waits ten times as long as the first took."""
    leader = leader_of(model)
    model.take(leader, ANN, 9, 1 << 20)
    given = dict(model.held[ANN])
    first, *others = (model.held[ANN][key] for key in (A, B, C))
    settle(model, ANN, acks=[(first.key, first.token, first.through)], patient=True)
    assert [payload[2] for _, payload, _ in leader.log] == [[A]]
    model.now += 3
    apply_all(model)
    began = model.now
    for each in others:
        settle(model, ANN, acks=[(each.key, each.token, each.through)], patient=True)
    assert not leader.log
    assert leader.dispatcher.next_tick_ms(began) == began + 30
    model.now = began + 29
    model.propose(leader)
    assert not leader.log
    model.now = began + 30
    model.propose(leader)
    assert [payload[2] for _, payload, _ in leader.log] == [[B, C]]
    apply_all(model)
    assert all(model.done[key] == set(given[key].seqs) for key in (A, B, C))


def test_acknowledgements_gather_for_50_ms_at_most(model: DispatchModel) -> None:
    leader = leader_of(model)
    model.take(leader, ANN, 9, 1 << 20)
    given = dict(model.held[ANN])
    settle(model, ANN, acks=[(A, given[A].token, given[A].through)], patient=True)
    model.now += 900
    apply_all(model)
    settle(model, ANN, acks=[(B, given[B].token, given[B].through)], patient=True)
    assert leader.dispatcher.next_tick_ms(model.now) == model.now + 50


@pytest.mark.parametrize("how", ["awaited", "key has more", "key gets more"])
def test_G5_nobody_waits_for_acknowledgements_that_gather(model: DispatchModel, how: str) -> None:
    leader = leader_of(model)
    model.take(leader, ANN, 9, 1 << 20)
    given = dict(model.held[ANN])
    settle(model, ANN, acks=[(A, given[A].token, given[A].through)], patient=True)
    model.now += 9
    apply_all(model)
    if how == "key has more":
        model.log.append(leader.state, [B])
        model.read(leader, 99)
    settle(model, ANN, acks=[(B, given[B].token, given[B].through)], patient=how != "awaited")
    if how == "key gets more":
        assert not leader.log
        model.log.append(leader.state, [B])
        model.read(leader, 99)
        model.propose(leader)
    assert [payload[2] for _, payload, _ in leader.log] == [[B]]


def test_the_next_entry_of_a_key_needs_no_second_read(model: DispatchModel) -> None:
    leader = leader_of(model)
    model.take(leader, ANN, 9, 1 << 20)
    given = model.held[ANN][A]
    model.log.append(leader.state, [A, A])
    model.read(leader, 99)
    settle(model, ANN, acks=[(A, given.token, given.through)])
    apply_all(model)
    assert leader.dispatcher.next_read(leader.state.next_seq) is None
    assert model.take(leader, ANN, 9, 1 << 20) == 1
    assert model.held[ANN][A].seqs == [4, 5]


def test_G2_a_key_that_is_given_back_goes_on_at_its_first_entry(model: DispatchModel) -> None:
    leader = leader_of(model)
    model.take(leader, ANN, 9, 1 << 20)
    given = model.held[ANN].pop(A)
    model.log.append(leader.state, [A])
    model.read(leader, 99)
    settle(model, ANN, releases=[(A, given.token, 0, "")])
    model.read(leader, 99)
    assert model.take(leader, ANN, 9, 1 << 20) == 1
    assert model.held[ANN][A].seqs == [1, 4]


@pytest.mark.parametrize("bound", ["_KEPT_ENTRIES_MAX", "_KEPT_BYTES_MAX"])
def test_G5_keys_that_consumers_have_keep_little_in_memory(
    model: DispatchModel, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    monkeypatch.setattr(supply, bound, 2)
    leader = leader_of(model)
    model.take(leader, ANN, 9, 1 << 20)
    given = model.held[ANN][A]
    model.log.append(leader.state, [A, A, A, A])
    model.read(leader, 99)
    kept = [4, 5] if bound == "_KEPT_ENTRIES_MAX" else [4]
    assert leader.dispatcher._supply.lines[A].seqs == kept
    settle(model, ANN, acks=[(A, given.token, given.through)])
    apply_all(model)
    model.take(leader, ANN, 9, 1 << 20)
    assert model.held[ANN][A].seqs == kept
    given = model.held[ANN][A]
    settle(model, ANN, acks=[(A, given.token, given.through)])
    apply_all(model)
    model.read(leader, 99)
    model.take(leader, ANN, 9, 1 << 20)
    after = kept[-1] + 1
    assert model.held[ANN][A].seqs == [after, after + 1]  # a read of a key has two entries here


def test_G2_a_key_keeps_no_entry_behind_one_that_is_not_in_memory(
    model: DispatchModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entry 4 of B fills the memory, so 5 of A is not kept. Then B is done, and 6 of A comes."""
    monkeypatch.setattr(supply, "_KEPT_BYTES_MAX", 1)
    leader = leader_of(model)
    model.take(leader, ANN, 9, 1 << 20)
    given = dict(model.held[ANN])
    model.log.append(leader.state, [B, A])
    model.read(leader, 99)
    settle(model, ANN, acks=[(B, given[B].token, given[B].through)])
    apply_all(model)
    model.log.append(leader.state, [A])
    model.read(leader, 99)
    settle(model, ANN, acks=[(A, given[A].token, given[A].through)])
    apply_all(model)
    model.read(leader, 99)
    model.take(leader, ANN, 9, 1 << 20)
    assert model.held[ANN][A].seqs == [5, 6]


def test_G5_a_poison_key_is_parked_and_holds_nobody_up(model: DispatchModel) -> None:
    leader = leader_of(model)
    for delivery in range(1, DELIVERIES + 1):
        model.now += AFFINITY_MS
        assert model.take(leader, ANN, 9, 1 << 20) == (3 if delivery == 1 else 1)
        given = model.held[ANN].pop(A)
        if delivery == 1:
            acks = [(k, g.token, g.through) for k, g in model.held[ANN].items()]
            assert not settle(model, ANN, acks=acks).refused
        assert not settle(model, ANN, releases=[(A, given.token, 0, "broken")]).refused
        apply_all(model)
        model.read(leader, 99)
    group = model.group(leader.state)
    assert group is not None
    assert group.rows[A] == Row(1, DELIVERIES, parked=True, error="broken")
    assert model.take(leader, ANN, 9, 1 << 20) == 0
    model.log.append(leader.state, [A, B])
    model.read(leader, 99)
    assert model.take(leader, ANN, 9, 1 << 20) == 1, "A goes on, though the key is parked"
    model.now += 2_000
    model.tick(leader)
    apply_all(model)
    assert group.floors.values[0] > 1, "a parked key holds up the floor"
    model.retry_key(leader, A)
    apply_all(model)
    model.read(leader, 99)
    model.now += AFFINITY_MS
    assert model.take(leader, BEN, 9, 1 << 20) >= 1
    assert model.held[BEN][A].seqs == [1, 4]


def test_a_failed_entry_comes_alone(model: DispatchModel) -> None:
    """So that the entry that fails is known, and those behind it do not fail with it."""
    leader = leader_of(model)
    model.log.append(leader.state, [A])
    model.read(leader, 99)
    model.take(leader, ANN, 9, 1 << 20)
    settle(model, ANN, releases=[(A, model.held[ANN][A].token, 0, "broken")])
    apply_all(model)
    model.read(leader, 99)
    model.take(leader, ANN, 9, 1 << 20)
    assert model.held[ANN][A].seqs == [1]


def test_a_key_given_back_with_a_delay_comes_after_the_delay(model: DispatchModel) -> None:
    leader = leader_of(model)
    model.take(leader, ANN, 9, 1 << 20)
    given = model.held[ANN].pop(A)
    for _ in range(2):  # a repetition is not refused
        assert not settle(model, ANN, releases=[(A, given.token, 5_000, "")]).refused
    for ms, found in ((4_000, 0), (1_000 - AFFINITY_MS, 1)):
        model.now += ms
        leader.dispatcher.tick(model.now)
        model.read(leader, 99)
        assert A not in model.held[BEN]
        model.now += AFFINITY_MS
        model.take(leader, BEN, 9, 1 << 20)
        assert (A in model.held[BEN]) == bool(found)


def test_the_next_leader_lets_holders_claim_their_keys(model: DispatchModel) -> None:
    model.take(leader_of(model), ANN, 9, 1 << 20)
    given = dict(model.held[ANN])
    leader = model.lead(leader_of(model).state)
    model.read(leader, 99)
    assert model.take(leader, BEN, 9, 1 << 20) == 0, "nobody gets a key that may be claimed"
    assert model.take(leader, ANN, 9, 1 << 20, "all") == 0
    token = given[A].token
    assert leader.dispatcher.claim(BEN, [(A, token)], 4, model.now) == [A], "ANN has the key"
    assert not settle(model, ANN, acks=[(A, token, given[A].through)]).refused
    apply_all(model)
    model.now += RECLAIM_MS
    assert model.take(leader, BEN, 9, 1 << 20) == 0
    model.lead(leader.state)
    leader = model.lead(leader.state)
    assert leader.dispatcher.claim(ANN, [(B, given[B].token)], 4, model.now) == [B], "too old"


def test_G3_a_key_that_was_claimed_from_one_leader_is_claimed_from_the_next(
    model: DispatchModel,
) -> None:
    """The token stays that of the first leader. Two changes of leader had ended the lease."""
    model.take(leader_of(model), ANN, 9, 1 << 20)
    first, second = model.held[ANN][A], model.held[ANN][B]
    leader = model.lead(leader_of(model).state)
    holds, fences = [(A, first.token)], [leader.dispatcher.fence - 1]
    assert leader.dispatcher.claim(ANN, holds, 4, model.now, fences) == []
    leader = model.lead(leader.state)
    fence = leader.dispatcher.fence
    assert leader.dispatcher.claim(ANN, holds, 4, model.now, [fence - 2]) == [A], "not claimed"
    both = [*holds, (B, second.token)]
    assert leader.dispatcher.claim(ANN, both, 4, model.now, [fence - 1, fence - 2]) == [B]
    assert not settle(model, ANN, acks=[(A, first.token, first.through)]).refused


def test_G1_a_key_that_another_consumer_may_have_had_is_not_claimed(model: DispatchModel) -> None:
    """ANN is late: BEN has had the key since the next leader began, and has done its entries."""
    model.take(leader_of(model), ANN, 9, 1 << 20)
    given = model.held[ANN][A]
    leader = model.lead(leader_of(model).state)
    model.read(leader, 99)
    model.now += RECLAIM_MS
    assert leader.dispatcher.claim(ANN, [(A, given.token)], 4, model.now) == [A]
    model.take(leader, BEN, 9, 1 << 20)
    other = model.held[BEN][A]
    assert not settle(model, BEN, acks=[(A, other.token, other.through)]).refused
    apply_all(model)
    assert leader.dispatcher.claim(ANN, [(A, given.token)], 4, model.now) == [A]
    refused = settle(model, ANN, acks=[(A, given.token, given.through)]).refused
    assert refused == [(A, LEASE, given.through)]


def test_a_claimed_key_that_ended_with_an_ack_of_a_part_is_not_rejected(
    model: DispatchModel,
) -> None:
    """The leader does not know the rest of the batch. Who is told `rejected` relies on that."""
    leader = leader_of(model)
    model.log.append(leader.state, [A])
    model.read(leader, 99)
    model.take(leader, ANN, 9, 1 << 20)
    given = model.held[ANN][A]
    leader = model.lead(leader.state)
    model.read(leader, 99)
    assert not leader.dispatcher.claim(ANN, [(A, given.token)], leader.state.next_seq, model.now)
    assert not settle(model, ANN, acks=[(A, given.token, 2)]).refused
    apply_all(model)
    assert settle(model, ANN, rejects=[(A, given.token, "bad")]).refused == [(A, LEASE, 2)]


def test_a_lease_that_is_claimed_twice_ends_once() -> None:
    """Seed 1747 of the simulator: the lease was due twice, and so a command named the key twice."""
    leases = Leases(fence=2)
    token = Leases(fence=1).begin(b"k", ANN, 1, 2, 0).token
    leases.drop(leases.claim(b"k", token, ANN, 1, 2, deadline_ms=50))
    lease = leases.claim(b"k", token, ANN, 1, 2, deadline_ms=60)
    assert leases.due(55) == []
    assert leases.due(100) == [lease]


def test_x30_no_lease_outlives_a_reset(model: DispatchModel) -> None:
    leader = leader_of(model)
    model.take(leader, ANN, 9, 1 << 20)
    given = model.held[ANN][A]
    model.reset_span(leader, (b"", None), 1)
    apply_all(model)
    leader = leader_of(model)
    assert leader.dispatcher.claim(ANN, [(A, given.token)], 4, model.now) == [A]
    assert settle(model, ANN, acks=[(A, given.token, given.through)]).refused


def test_entries_that_are_removed_are_not_handed_out(model: DispatchModel) -> None:
    leader = leader_of(model)
    model.log.append(leader.state, [A])
    model.read(leader, 99)
    model.trim_key(leader.state, A, 2)
    model._look(leader)
    model.read(leader, 99)
    model.take(leader, ANN, 9, 1 << 20)
    assert model.held[ANN][A].seqs == [4]


def test_x30_a_claim_of_the_floor_does_not_pass_entries_of_a_key_that_moves_meanwhile(
    model: DispatchModel,
) -> None:
    """A is far behind the floor. A skip moves A above the floor after the claim was made."""
    leader = leader_of(model)
    group = model.group(leader.state)
    assert group is not None
    model.take(leader, ANN, 9, 1 << 20)
    acks = [(k, g.token, g.through) for k, g in model.held[ANN].items() if k != A]
    settle(model, ANN, acks=acks)
    model.now += 2_000
    leader.dispatcher._leases.of[A].deadline_ms += 1 << 30
    model.propose(leader)
    apply_all(model)
    assert group.floors.values == [4]
    assert group.rows[A] == Row(1)
    model.log.append(leader.state, [A, A, B])  # 4, 5, 6
    model.read(leader, 99)
    model.log.trim_keys(leader.state, [A], 5)  # under way while the leader makes the claim
    model.now += 2_000
    model.propose(leader)
    apply_all(model)
    assert group.position(A) == 5
    model.check()


def test_a_group_of_a_prefix_reads_no_other_key(tmp_path: Path) -> None:
    options = Options(LEASE_MS, DELIVERIES, Selection(prefix=b"b"))
    model = DispatchModel(tmp_path / "log", 7, options)
    (state,) = model.log.ranges
    model.log.append(state, [A, B, C])
    leader = model.lead(state)
    model.read(leader, 99)
    assert model.take(leader, ANN, 9, 1 << 20) == 1
    given = model.held[ANN][B]
    settle(model, ANN, acks=[(B, given.token, given.through)])
    model.now += 2_000
    model.propose(leader)
    while leader.log:
        kind, payload, proposal = leader.log.popleft()
        assert model.do(state, kind, payload) == {"status": "ok"}
        assert proposal is not None
        leader.dispatcher.applied(proposal, [], [], model.now)
    group = state.groups.by_id[GROUP]
    assert group.floors.values == [4], "other keys hold up the floor"


def test_a_group_without_consumers_keeps_no_entries_in_memory(model: DispatchModel) -> None:
    leader = leader_of(model)
    assert leader.dispatcher.size > 0
    leader.dispatcher.tick(model.now)
    assert leader.dispatcher.size == 0
    model.read(leader, 99)
    assert model.take(leader, ANN, 9, 1 << 20) == 3


def test_memory_is_bounded_by_what_waits() -> None:
    line = Line(A, 1, Place.READY)
    assert line.add(1, 0, b"v" * 100, {"h": b"x"}) == line.size > 100
    assert line.drop() > 100
    assert (line.size, line.seqs, line.has_unread) == (0, [], True)


def test_a_key_goes_back_to_its_consumer_unless_that_one_is_slow() -> None:
    ready = ReadyKeys()
    for consumer in (ANN, BEN):
        ready.joined(consumer)
    ready.leased(A, ANN)
    ready.put(A, 0)
    ready.put(B, 1)
    assert ready.take(BEN, 1) == B
    assert ready.take(BEN, AFFINITY_MS - 1) is None
    assert ready.take(BEN, AFFINITY_MS) == A
    ready.put(A, 100)
    ready.left(ANN)
    assert ready.take(BEN, 100) == A
    assert not len(ready)


def test_leases_are_bounded_by_the_rows_that_are_left(model: DispatchModel) -> None:
    """Otherwise an acknowledgement might find no row."""
    leader = leader_of(model)
    group = model.group(leader.state)
    assert group is not None
    spare = limits.group_keys_a_command_max
    for at in range(limits.group_rows_max - spare - 2):
        group.rows[b"z%d" % at] = Row(9, parked=True)
    assert leader.dispatcher.take(ANN, 9, 1 << 20, 0).keys == [A, B]


def test_too_many_consumers_are_refused(model: DispatchModel) -> None:
    dispatcher: Dispatcher = leader_of(model).dispatcher
    for consumer in range(limits.group_consumers_max):
        assert dispatcher.join(consumer + 1, 0)
    assert not dispatcher.join(1 << 40, 0)
    assert dispatcher.join(1, 0)
    dispatcher.tick(LEASE_MS + limits.group_wait_ms_max + 1)
    assert dispatcher.join(1 << 40, 0)
