"""Idle groups: when they rest, what wakes them, and that resting changes no term and no read."""

import itertools
import math
import random

import pytest
from raft_net import Net

from lognode.raft.messages import (
    Ack,
    Append,
    PreVote,
    PreVoteRequest,
    Quiesce,
    Quiesced,
    Started,
    Term,
    Vote,
    VoteRequest,
    decode,
    encode,
)  # fmt: skip
from lognode.raft.types import Message, RaftOptions

REST_LIMIT_S = 5.0


def resting(net: Net, *ids: int) -> bool:
    return all(net.group(i).idle for i in ids or net.ids)


def at_rest(seed: int = 0, members: int = 3) -> Net:
    """A group led by 1, with an entry, at rest everywhere."""
    net = Net(members, seed=seed, idle=True)
    net.elect(1)
    net.propose(1, "a")
    net.run(net.settled())
    net.run(lambda: resting(net), REST_LIMIT_S)
    return net


def is_a(kind: type, message: Message) -> bool:
    return bool(message) and isinstance(decode(message), kind)


def terms(net: Net) -> list[int]:
    return [net.group(i).term for i in net.ids]


# Going to rest.


def test_a_leader_knows_who_follows_it() -> None:
    net = Net(idle=True)
    net.isolate(3)
    net.elect(1)
    net.run(net.settled([1, 2]))
    assert net.group(1).followers == {2}
    assert net.group(2).followers == set()
    net.heal()
    net.run(lambda: net.group(1).followers == {2, 3})


def test_a_quiet_group_rests_and_sends_nothing_but_pings() -> None:
    net = at_rest()
    term = net.group(1).term
    net.run(0.1)
    said: list[object] = []
    for _ in range(6000):
        net.run(0.01)
        said += [flight.body for flight in net.flights if flight.kind != "ping"]
    assert not said
    assert [net.group(i).next_deadline() for i in net.ids] == [math.inf] * 3
    assert terms(net) == [term] * 3
    assert [net.group(i).leader for i in net.ids] == [1, 1, 1]


def test_a_group_rests_no_sooner_than_a_quiet_second() -> None:
    net = Net(idle=True)
    net.elect(1)
    for number in range(20):
        net.run(0.5)
        assert not resting(net, 1)
        assert not resting(net, 2)
        net.propose(1, f"entry {number}")
    net.run(net.settled())
    quiet_from = net.now
    net.run(lambda: resting(net), REST_LIMIT_S)
    assert net.now - quiet_from >= net.options.idle_after_s * 0.95


def test_reads_keep_a_group_awake_too() -> None:
    net = Net(idle=True)
    net.elect(1)
    for _ in range(10):
        net.run(0.5)
        ticket = net.group(1).request_read()
        net.run(lambda ticket=ticket: ticket in net.members[1].reads)
        assert not net.group(1).idle


def test_a_group_does_not_rest_while_a_member_that_is_there_lacks_something() -> None:
    net = Net(idle=True)
    net.elect(1)
    net.lost = lambda source, target, message: target == 3 and is_a(Append, message)
    net.propose(1, "a")
    for _ in range(10_000):
        net.run(0.001)
        assert not net.sent(Quiesce)  # it would be in vain
    assert not net.group(1).idle
    net.lost = lambda source, target, message: False
    net.run(lambda: resting(net), REST_LIMIT_S)
    assert net.applied(3) == ["a"]


def test_a_group_does_not_rest_before_everything_is_durable() -> None:
    net = Net(idle=True)
    net.elect(1)
    net.members[1].slow_disk = True
    net.propose(1, "a")
    net.run(1.8)
    assert not net.group(1).idle
    net.members[1].slow_disk = False
    net.run(lambda: resting(net), REST_LIMIT_S)


def test_a_member_that_does_not_know_the_commit_index_does_not_agree() -> None:
    net = Net(idle=True)
    net.elect(1)
    net.run(0.4)
    follower, index = net.group(2), net.propose(1, "a")[0]
    net.run(lambda: follower.last_index == index)
    assert follower.commit_index == index - 1
    term, version = net.group(1).term, net.liveness(1).version
    follower.receive(1, encode(Quiesce(term, 1, 1, index, version)))
    assert not follower.idle
    net.run(lambda: follower.commit_index == index)
    follower.receive(1, encode(Quiesce(term, 1, 2, index, version)))
    assert follower.idle


def test_a_member_agrees_only_to_the_end_of_its_own_log() -> None:
    net = at_rest()
    term, version = net.group(1).term, net.liveness(1).version
    for index in (net.group(2).last_index - 1, net.group(2).last_index + 1):
        net.group(2).receive(1, encode(Quiesce(term, 1, 9, index, version)))
        assert not net.group(2).idle


def test_an_agreement_to_an_offer_of_before_the_last_entry_does_not_count() -> None:
    net = Net(idle=True)
    net.elect(1)
    leader = net.group(1)
    offers: list[int] = []

    def lose(source: int, target: int, message: Message) -> bool:
        body = decode(message) if message else None
        if isinstance(body, Quiesce):
            offers.append(body.round)
        return isinstance(body, Quiesced)

    def agree(offer: int) -> None:
        for peer, epoch in ((2, 1), (3, 2)):
            leader.receive(peer, encode(Quiesced(leader.term, epoch, offer)))

    net.lost = lose
    net.run(2.0)
    older = list(offers)
    assert older
    assert not leader.idle
    net.propose(1, "a")
    net.run(net.settled())
    net.run(2.0)
    newer = sorted({*offers} - {*older})
    assert len(newer) > 2
    agree(max(older))
    assert not leader.idle
    agree(newer[-1] + 1)
    assert not leader.idle
    agree(newer[0])
    assert leader.idle


def test_a_group_rests_whose_members_answer_slower_than_heartbeats_come() -> None:
    """Each heartbeat ended the rest of those who had agreed, and made their answers void: on nodes
    that were busy thousands of groups beat for ever, which kept the nodes busy."""
    net = Net(idle=True, delay_s=0.2)
    net.elect(1)
    net.propose(1, "a")
    net.run(net.settled())
    net.run(lambda: resting(net), REST_LIMIT_S)
    before = terms(net)
    net.run(10.0)
    assert resting(net)
    assert terms(net) == before


def test_a_heartbeat_that_brings_nothing_new_wakes_nobody() -> None:
    net = Net(idle=True)
    net.elect(1)
    net.propose(1, "a")
    net.run(net.settled())
    net.lost = lambda source, target, message: source == 3 and is_a(Quiesced, message)
    follower, woken = net.group(2), list[str]()
    net.liveness(2).on_wake = woken.append
    net.run(lambda: follower.idle, REST_LIMIT_S)
    for _ in range(20):
        net.run(0.1)
        assert follower.idle
        assert not net.group(1).idle
    assert not woken
    net.propose(1, "b")
    net.run(net.settled())
    assert not follower.idle
    assert woken == ["follower"]


def test_a_group_of_one_rests_by_itself() -> None:
    net = Net(1, idle=True)
    net.elect(1)
    net.run(3.0)
    assert net.group(1).next_deadline() == math.inf
    net.propose(1, "a")
    net.run(net.settled())


def test_without_liveness_a_group_beats_for_ever() -> None:
    net = Net()
    net.elect(1)
    net.run(10.0)
    assert net.group(1).next_deadline() < math.inf
    assert not any(net.group(i).idle for i in net.ids)


# Waking.


@pytest.mark.slow
@pytest.mark.parametrize("quiet_s", [2.0, 60.0, 3600.0])
def test_x20_a_client_wakes_a_group_and_its_leader_stays(quiet_s: float) -> None:
    net = at_rest()
    term = net.group(1).term
    net.run(quiet_s)
    before = net.now
    net.propose(1, "b")
    net.run(lambda: net.group(1).commit_index == net.group(1).last_index)
    assert net.now - before < 0.01
    net.run(net.settled())
    assert net.now - before < 0.01 + RaftOptions().tell_commit_s
    net.run(5.0)
    assert terms(net) == [term] * 3
    assert [net.applied(i) for i in net.ids] == [["a", "b"]] * 3
    assert net.members[1].wakes == ["leader"]


def test_x20_a_read_wakes_a_group_and_needs_its_quorum_round() -> None:
    net = at_rest()
    net.run(60.0)
    net.isolate(1, noticed=False)
    ticket = net.group(1).request_read()
    net.run(5.0)
    assert net.members[1].reads.get(ticket, "nothing") is None  # no majority confirmed it
    net = at_rest()
    net.run(60.0)
    ticket = net.group(1).request_read()
    net.run(lambda: net.members[1].reads.get(ticket) == net.group(1).commit_index, 0.1)


def test_x20_a_leader_without_pings_that_is_woken_is_not_vouched_for() -> None:
    """The execution: woken, it steps down, while its node pings on."""
    net = at_rest()
    net.cut(2, 1, noticed=False)
    net.cut(3, 1, noticed=False)
    net.run(20.0)
    net.run(lambda: net.leader() in (2, 3), 5.0)
    net.run(lambda: net.group(net.leader() or 0).ready_to_lead, 5.0)


def test_x20_members_that_hear_of_no_wake_learn_it_from_the_pings() -> None:
    """The group's own messages are lost, its node's pings are not: a leader must come."""
    net = at_rest()
    net.lost = lambda source, target, message: source == 1 and message != []
    net.propose(1, "lost")
    net.run(lambda: net.leader() in (2, 3), 10.0)


def test_an_idle_leader_that_steps_down_is_not_vouched_for_by_its_node() -> None:
    net = at_rest()
    net.group(1).receive(2, encode(Term(net.group(1).term + 1, 1)))
    assert net.group(1).role == "follower"
    net.run(lambda: net.leader() is not None and net.group(net.leader() or 0).ready_to_lead, 10.0)


def test_a_pre_vote_of_the_vouched_leader_voids_the_vouch() -> None:
    net = at_rest()
    follower = net.group(2)
    request = PreVoteRequest(follower.term, 1, 1, follower.last_index, net.log(2).last_term)
    follower.receive(3, encode(request))
    assert follower.idle
    assert not follower.take_messages()
    follower.receive(1, encode(request))
    assert not follower.idle
    assert [type(decode(message)) for _, message in follower.take_messages()] == [PreVote]


def test_a_vote_request_of_a_higher_term_ends_the_rest() -> None:
    net = at_rest()
    follower = net.group(2)
    follower.receive(3, encode(VoteRequest(follower.term + 1, 1, 0, 0)))
    assert not follower.idle
    assert follower.next_deadline() < math.inf


def test_a_pre_vote_is_not_granted_against_an_idle_leader_whose_node_pings() -> None:
    net = at_rest()
    net.run(60.0)
    term = net.group(1).term
    net.group(3).disturb(1, campaign=True)
    assert not net.group(3).idle
    net.run(REST_LIMIT_S)
    assert terms(net) == [term] * 3
    assert net.leader() == 1
    assert resting(net)


def test_a_leader_that_dies_is_replaced_and_the_new_one_rests_without_it() -> None:
    for seed in range(10):
        net = at_rest(seed)
        died = net.now
        net.crash(1)
        net.run(lambda net=net: net.leader() in (2, 3), 5.0)
        assert net.now - died < 4.0, f"seed {seed}"
        net.run(lambda net=net: resting(net, 2, 3), 10.0)
        net.run(30.0)
        assert resting(net, 2, 3)


def test_2_14_a_dead_follower_keeps_nobody_awake_and_is_caught_up_when_it_returns() -> None:
    net = at_rest()
    net.crash(3)
    net.run(5.0)
    assert resting(net, 1, 2)
    assert not net.members[1].wakes
    net.propose(1, "b")
    net.run(net.settled((1, 2)))
    net.run(lambda: resting(net, 1, 2), 10.0)
    net.restart(3)
    net.run(net.settled(), 5.0)
    net.run(lambda: resting(net), REST_LIMIT_S)


def test_2_14_a_follower_that_was_only_cut_off_is_caught_up_when_its_ping_returns() -> None:
    net = at_rest()
    net.isolate(3)
    net.propose(1, "b")
    net.run(net.settled((1, 2)))
    net.run(lambda: resting(net, 1, 2), 10.0)
    term = net.group(1).term
    net.heal()
    net.run(net.settled(), 5.0)
    net.run(lambda: resting(net), REST_LIMIT_S)
    assert terms(net) == [term] * 3


def test_2_14_a_restarted_member_wakes_its_group_once_to_learn_leader_and_commit_index() -> None:
    net = at_rest()
    net.crash(2)
    net.restart(2)
    net.run(lambda: net.group(2).leader == 1 and net.group(2).commit_index == 3, 1.0)
    net.run(lambda: resting(net), REST_LIMIT_S)
    net.run(30.0)
    assert net.members[1].wakes == ["leader"]


def test_a_link_that_is_made_again_wakes_nobody() -> None:
    net = at_rest()
    net.run(30.0)
    for source, target in ((1, 2), (2, 1), (3, 1), (2, 3)):
        net.group(source).disconnected(target)
        net.connect(source, target)
        net.group(source).pause(target)
        net.group(source).resume(target)
    net.run(5.0)
    assert not any(net.members[i].wakes for i in net.ids)
    net.propose(1, "b")
    net.run(net.settled())
    assert net.leader() == 1


def test_a_wal_round_that_touches_an_idle_group_does_not_wake_it() -> None:
    net = at_rest()
    net.run(60.0)
    net.sync(1)
    assert net.group(1).role == "leader"
    assert net.group(1).idle


def test_a_disk_that_had_nothing_to_do_has_not_stalled() -> None:
    net = at_rest()
    net.run(60.0)
    net.members[1].slow_disk = True
    net.propose(1, "b")
    net.run(0.5)
    assert net.leader() == 1


def test_late_messages_do_not_unseat_an_idle_leader() -> None:
    net = at_rest()
    net.run(60.0)
    term, epoch = net.group(1).term, 1
    index = net.group(1).last_index
    for late in (Ack(term, epoch, index + 1), Vote(term, epoch), Quiesced(term, epoch, 1)):
        net.group(1).receive(2, encode(late))
        assert net.group(1).idle
    net.group(1).receive(2, encode(Started(term, epoch)))
    assert not net.group(1).idle
    net.run(REST_LIMIT_S)
    assert net.leader() == 1


def test_a_stopped_member_vouches_and_is_vouched_for_no_longer() -> None:
    net = at_rest()
    net.group(1).stop()
    net.run(lambda: net.leader() in (2, 3), 10.0)


# Calm elections.


@pytest.mark.parametrize("busy", [False, True])
@pytest.mark.parametrize("noticed", [False, True])
@pytest.mark.parametrize("away", [1, 3])
def test_hole_21_a_node_cut_off_for_a_minute_changes_no_term_and_deposes_nobody(
    busy: bool, noticed: bool, away: int
) -> None:
    """A follower that was cut off; and a leader, whose successor it leaves in place."""
    net = at_rest(seed=away)

    def load(seconds: float) -> None:
        for number in range(int(seconds * 5)):
            leader = net.leader()
            if busy and leader is not None and leader != away:
                net.propose(leader, str(number))
            net.run(0.2)

    load(2.0)
    net.isolate(away, noticed=noticed)
    load(5.0)
    others = [i for i in net.ids if i != away]
    net.run(lambda: any(net.group(i).ready_to_lead for i in others), 5.0)
    leader = net.leader()
    term = max(terms(net))
    load(55.0)
    assert (net.leader(), max(terms(net))) == (leader, term)
    net.heal()
    load(10.0)
    assert (net.leader(), terms(net)) == (leader, [term] * 3)
    net.run(net.settled(), 5.0)
    net.run(lambda: resting(net), REST_LIMIT_S)


@pytest.mark.parametrize(("source", "target"), list(itertools.permutations((1, 2, 3), 2)))
@pytest.mark.parametrize("noticed", [False, True])
def test_elections_stay_calm_under_a_one_way_cut(source: int, target: int, noticed: bool) -> None:
    net = at_rest(seed=source * 3 + target)
    term = net.group(1).term
    net.cut(source, target, noticed=noticed)
    net.run(60.0)
    assert net.leader() == 1
    assert terms(net) == [term] * 3
    net.heal()
    net.run(lambda: resting(net), 10.0)
    assert terms(net) == [term] * 3


@pytest.mark.parametrize("seed", range(20))
def test_random_cuts_and_crashes_end_at_rest_with_every_entry_everywhere(seed: int) -> None:
    rng = random.Random(seed)
    net = at_rest(seed)
    for number in range(30):
        fault = rng.choice(("cut", "isolate", "crash", "heal", "quiet", "propose", "propose"))
        node = rng.choice(net.ids)
        down = [i for i in net.ids if net.members[i].down]
        if fault == "cut":
            net.cut(node, node % 3 + 1, noticed=rng.random() < 0.5)
        elif fault == "isolate" and not down:
            net.isolate(node, noticed=rng.random() < 0.5)
        elif fault == "crash" and not down:
            net.crash(node)
        elif fault == "heal":
            for each in down:
                net.restart(each)
            net.heal()
        leader = net.leader()
        if fault == "propose" and leader is not None:
            net.propose(leader, f"{number}")
        net.run(rng.choice((0.05, 0.5, 2.0, 4.0)))
    for node in [i for i in net.ids if net.members[i].down]:
        net.restart(node)
    net.heal()
    net.run(lambda: net.settled()() and resting(net), 20.0)
    assert net.applied(1) == net.applied(2) == net.applied(3), f"seed {seed}"


def test_the_messages_of_a_rest_are_counted() -> None:
    """One heartbeat, one offer, and their answers a member."""
    net = Net(idle=True)
    net.elect(1)
    kinds: list[type] = []
    seen: set[int] = set()
    while not resting(net):
        net.run(0.001)
        for flight in net.flights:
            if flight.number not in seen:
                seen.add(flight.number)
                kinds.append(type(flight.body))
    assert kinds.count(Quiesce) == kinds.count(Quiesced) == 2
    assert kinds.count(Append) < 30
