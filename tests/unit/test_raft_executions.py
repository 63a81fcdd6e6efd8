"""Executions that must not happen, as far as they live in the group; names carry their rows."""

from typing import Any

import pytest
from raft_net import MemoryLog, Net

from lognode.client.protocol import limits
from lognode.client.protocol.errors import InvalidArgument, LimitExceeded, RemoteProtocolError
from lognode.client.protocol.invariants import InvariantError
from lognode.raft.messages import Ack, Append, BaseProbe, Term, Vote, VoteRequest, decode, encode
from lognode.raft.types import RaftOptions


def test_x1_a_base_never_costs_a_follower_what_it_acknowledged() -> None:
    """A leads, C is cut off, A and B ack; A's log moves on; B restarts with a stale commit index
    and a gap; A dies; B and C must still have everything."""
    net = Net(3)
    net.elect(1)
    net.isolate(3)
    net.propose(1, *(f"{n}" for n in range(20)))
    net.run(net.settled([1, 2]))
    committed = net.applied(1)
    net.log(1).cut_front(15)
    net.members[2].log._disk.commit = 2  # the commit index alone is never synced
    net.members[2].applied.clear()
    net.crash(2)
    net.restart(2)
    assert net.group(2).commit_index == 2
    net.cut(1, 2)
    net.propose(1, "unacknowledged")
    net.connect(1, 2)
    net.isolate(3)
    net.run(net.settled([1, 2]))
    assert not net.group(2).base_wanted
    net.crash(1)
    net.heal()
    net.run(lambda: net.leader() in (2, 3) and net.settled([2, 3])())
    assert net.applied(2)[:20] == net.applied(3)[:20] == committed


def test_x1_a_base_installed_by_reset_lets_the_follower_go_on() -> None:
    net = Net(3)
    net.elect(1)
    net.isolate(3)
    net.propose(1, *(f"{n}" for n in range(20)))
    net.run(net.settled([1, 2]))
    base = net.members[1].applied[14]
    net.log(1).cut_front(base.index)
    net.heal()
    net.run(lambda: net.group(3).base_wanted and net.group(1).needs_base == {3})
    member = net.members[3]
    member.group.stop()
    member.log.reset(base.index, base.term)
    net.members[3] = net._member(3, member.log, net.members[1].applied[:15])
    net.group(3).start()
    net.connect(3, 1)
    net.group(1).base_installed(3)
    net.run(net.settled())
    assert net.group(1).needs_base == frozenset()
    assert net.applied(3) == net.applied(1)


def test_x15_durably_applied_entries_were_committed() -> None:
    """The stored commit index is behind the state machine's: nothing is applied twice."""
    net = Net(3)
    net.elect(1)
    net.propose(1, "a", "b")
    net.run(net.settled())
    net.log(1)._disk.commit = 1
    applied = list(net.members[1].applied)
    net.crash(1)
    net.members[1].log._now.commit = 1
    net.members[1] = net._member(1, net.log(1), applied)
    group = net.group(1)
    assert (group.commit_index, group.take_committed(1 << 20)) == (4, [])


def test_x15_a_log_that_ends_below_the_applied_state_does_not_start() -> None:
    net = Net(3)
    with pytest.raises(
        InvariantError, match="the log of the group does not begin at the applied state"
    ):
        net._member(1, MemoryLog(), []).group.__init__(
            log=MemoryLog(),
            node_id=1,
            members=(1, 2, 3),
            applied_index=5,
            clock=lambda: 0.0,
            rng=None,
            options=net.options,
        )


def test_x19_a_candidate_alone_at_a_higher_term_is_brought_back() -> None:
    """It won a pre-vote and its vote requests were all lost, 36 times."""
    for seed in range(36):
        net = Net(3, seed=seed)
        net.elect(1)
        net.lost = lambda source, target, message: isinstance(decode(message), VoteRequest)
        net.group(3)._campaign()
        net.run(0.05)
        assert (net.group(3).role, net.group(3).term) == ("candidate", 2)
        net.lost = lambda source, target, message: False
        net.run(net.settled(), 10.0)
        assert len({net.group(i).term for i in net.ids}) == 1, f"seed {seed}"


def test_x19_every_older_request_is_answered_and_no_older_reply() -> None:
    net = Net(3)
    net.elect(1)
    group = net.group(2)
    group._engine.step_up(3, 7)
    group.take_messages()
    net.sync(2)
    for body in (Append(1, 4, 1, 0, 1, []), VoteRequest(1, 4, 9, 9), BaseProbe(1, 4, 1, 0)):
        group.receive(1, encode(body))
        assert group.take_messages() == [(1, encode(Term(7, 4)))]
    for reply in (Ack(1, 4, 2), Vote(1, 4), Term(1, 4)):
        group.receive(1, encode(reply))
        assert group.take_messages() == []


def test_x21_a_peer_that_needs_a_base_costs_one_message_a_heartbeat() -> None:
    net = Net(3)
    net.elect(1)
    net.isolate(3)
    net.propose(1, *"abcdef")
    net.run(net.settled([1, 2]))
    net.log(1).cut_front(net.group(1).commit_index)
    to_3: list[str] = []

    def count(source: int, target: int, message: list[object]) -> bool:
        if (source, target) == (1, 3):
            to_3.append(type(decode(message)).__name__)
        return False

    net.lost = count
    net.heal()
    for _ in range(100):  # the leader is busy all the while
        net.propose(1, "x")
        net.run(0.1)
    assert set(to_3) <= {"BaseProbe", "PreVote", "Started", "Term"}
    assert len(to_3) < 10.0 / net.options.heartbeat_s + 5
    assert net.leader() == 1


def test_hole_22_an_entry_replaced_by_another_leader_s_shows_by_its_term() -> None:
    """What the caller compares: (index, term) as proposed with (index, term) as committed."""
    net = Net(3)
    net.elect(1)
    net.isolate(1)
    index, term = net.group(1).propose(b"\x00never")
    net.run(lambda: net.leader() in (2, 3))
    leader = net.leader()
    assert leader
    net.propose(leader, "a")
    net.heal()
    net.run(net.settled())
    at_index = next(entry for entry in net.members[1].applied if entry.index == index)
    assert at_index.term > term
    assert net.applied(1) == ["a"]


def test_hole_25_entries_go_on_after_what_was_applied() -> None:
    net = Net(3)
    net.elect(1)
    net.propose(1, *"abc")
    net.run(net.settled())
    applied = net.members[1].applied[:2]
    net.crash(1)
    net.members[1] = net._member(1, net.log(1), list(applied))
    taken = net.group(1).take_committed(1 << 20)
    assert [entry.index for entry in taken] == [4, 5]


def test_s1_entries_are_taken_in_bounded_slices_and_only_durable_ones() -> None:
    net = Net(3)
    net.elect(1)
    net.members[2].slow_disk = True
    net.propose(1, *"abcdef")
    net.run(net.settled([1, 3]))
    assert net.group(2).commit_index == 8, "committed by the others, and in its log"
    assert net.log(2).durable_index == 2
    assert net.group(2).take_committed(1 << 20) == []
    net.sync(2)
    first = net.group(2).take_committed(3)
    assert [entry.command for entry in first] == [b"\x00a"], "at least one, within the bytes"
    net.members[2].applied.extend(first)
    net.run(0.3)
    assert net.applied(2) == list("abcdef")


def test_hole_28_the_largest_entry_travels_whole_and_a_larger_one_is_refused() -> None:
    net = Net(3)
    group = net.elect(1)
    command = b"\x00" + bytes(limits.entry_bytes_max - 1)
    group.propose(command)
    net.run(net.settled())
    assert net.members[3].applied[-1].command == command
    last = group.last_index
    with pytest.raises(LimitExceeded) as caught:
        group.propose(command + b"x")
    assert caught.value.outcome == "not_applied"
    assert group.last_index == last


def test_holes_17_18_only_regular_commands_are_proposed() -> None:
    net = Net(1)
    group = net.elect(1)
    for kind in (b"\x01", b"\x02", b"\x03", b""):
        with pytest.raises(InvariantError):
            group.propose(kind + b"payload")


def test_2_1_a_restart_drops_the_acks_that_were_held() -> None:
    net = Net(3)
    net.elect(1)
    net.members[2].slow_disk = True
    net.propose(1, "a")
    net.run(0.01)
    assert net.group(2).last_index == 3
    net.crash(2)
    net.restart(2)
    net.pump()
    assert net.group(2).last_index == 2
    assert all(decode(f.message).term == 1 for f in net.sent(Ack, 2))
    assert [f.message[3] for f in net.sent(Ack, 2)] in ([], [3])


def test_2_12_a_stopped_group_answers_nothing() -> None:
    net = Net(3)
    net.elect(1)
    net.group(2).stop()
    net.group(2).receive(1, encode(Append(1, 1, 2, 1, 2, [])))
    net.group(2).tick()
    assert net.group(2).take_messages() == []
    assert net.group(2).next_deadline() == float("inf")


def test_an_ack_of_what_the_leader_does_not_have_is_a_protocol_error() -> None:
    net = Net(3)
    group = net.elect(1)
    epoch = group._replicator.epoch(2)
    assert epoch is not None
    with pytest.raises(RemoteProtocolError):
        group.receive(2, encode(Ack(1, epoch, group.last_index + 2)))


def test_a_stranger_s_messages_are_ignored() -> None:
    net = Net(3)
    group = net.elect(1)
    group.receive(9, encode(VoteRequest(50, 1, 99, 99)))
    assert group.term == 1


def test_l3_a_slow_follower_s_backlog_is_bounded_and_it_catches_up() -> None:
    """40 MiB behind a window of 32: the leader waits for its acks, and goes on when they come."""
    net = Net(3)
    group = net.elect(1)
    net.members[3].slow_disk = True
    command = b"\x00" + bytes(1 << 20)
    for _ in range(40):
        group.propose(command)
        net.run(0.02)
    net.run(net.settled([1, 2]))
    assert net.log(3).last_index <= 3 + 33
    assert net.leader() == 1
    net.members[3].slow_disk = False
    net.run(net.settled())
    assert net.leader() == 1
    assert group.term == 1


def test_2_1_a_sync_releases_only_what_waited_for_its_round() -> None:
    net = Net(3)
    net.elect(1)
    net.members[2].slow_disk = True
    log, group = net.log(2), net.group(2)
    acked = []
    rounds = []
    for text in "ab":
        net.propose(1, text)
        net.run(0.01)
        rounds.append(log.collect())
    for number in rounds:
        log.complete(number)
        group.synced()
        acked.append({message[3] for _, message in group.take_messages()})
    assert acked[0] == {4}, "the ack of (3) leaves with its round, that of (4) does not"
    assert acked[1] == {5}


def test_hole_3_a_reply_to_an_older_link_does_not_count() -> None:
    net = Net(3)
    group = net.elect(1)
    net.isolate(1, noticed=False)
    (index,) = net.propose(1, "a")
    net.pump()
    old = group._replicator.epoch(2)
    assert old is not None
    net.connect(1, 2)
    group.receive(2, encode(Ack(group.term, old, index + 1)))
    assert group.commit_index < index
    new = group._replicator.epoch(2)
    assert new is not None
    group.receive(2, encode(Ack(group.term, new, index + 1)))
    assert group.commit_index == index


def test_x19_a_member_that_learns_of_a_higher_term_while_it_asks_asks_again_at_once() -> None:
    net = Net(3)
    net.start(1)
    net.group(2)._engine.step_up(3, 5)
    net.start(2)
    net.pump()
    net.flights.clear()  # what 2 said at its start, its term with it, is lost
    net.group(1)._elections.ask_now()
    net.run(0.05)  # far less than an election timeout
    assert net.group(1).role == "leader"
    assert net.group(1).term == 6


def test_x1_a_peer_that_waits_for_a_base_still_keeps_its_leader() -> None:
    """One member is dead, the other needs a base for a long time: its answers are a quorum."""
    net = Net(3)
    net.elect(1)
    net.isolate(3)
    net.propose(1, *"abc")
    net.run(net.settled([1, 2]))
    net.log(1).cut_front(net.group(1).commit_index)
    net.heal()
    net.run(lambda: net.group(3).base_wanted)
    net.crash(2)
    net.run(10.0)
    assert net.leader() == 1
    assert net.group(1).term == 1


def test_s7_a_lost_read_confirmation_is_asked_again() -> None:
    net = Net(3)
    group = net.elect(1)
    net.lost = lambda source, target, message: True
    ticket = group.request_read()
    net.pump()
    net.lost = lambda source, target, message: False
    net.run(lambda: ticket in net.members[1].reads, 2 * net.options.heartbeat_s)
    assert net.members[1].reads[ticket] == group.commit_index


def test_l1_a_leader_whose_disk_stands_still_makes_room() -> None:
    """It answers everything and syncs nothing: without this it would lead for ever."""
    net = Net(3)
    net.elect(1)
    net.members[1].slow_disk = True
    net.run(10.0)
    assert net.leader() == 1, "with nothing to sync there is nothing to see"
    net.propose(1, "maybe")
    stood_still_at = net.now
    net.run(lambda: any(net.group(i).ready_to_lead for i in (2, 3)))
    assert net.now - stood_still_at < 6.0
    leader = net.leader()
    assert leader in (2, 3)
    net.propose(leader, "a")
    net.run(net.settled([2, 3]))
    net.members[1].slow_disk = False
    net.run(net.settled())
    assert net.applied(1) == net.applied(2) == net.applied(3)
    assert net.applied(1)[-1] == "a"


def test_a_leader_whose_disk_is_slow_but_moves_stays() -> None:
    net = Net(3)
    net.elect(1)
    for _ in range(20):
        net.members[1].slow_disk = True
        net.propose(1, "x")
        net.run(2.0)
        net.members[1].slow_disk = False
        net.run(0.2)
    assert net.leader() == 1
    assert net.group(1).term == 1


def test_followers_with_slow_disks_are_not_taken_for_dead() -> None:
    """No ack of the new entry for 10 s, but heartbeats are answered for what is durable."""
    net = Net(3)
    net.elect(1)
    for node_id in (2, 3):
        net.members[node_id].slow_disk = True
    (index,) = net.propose(1, "a")
    net.run(10.0)
    assert (net.leader(), net.group(1).term) == (1, 1)
    assert net.group(1).commit_index < index
    net.members[2].slow_disk = False
    net.run(net.settled([1, 2]))


def test_x21_a_peer_whose_disk_is_behind_the_leader_s_base_is_not_hammered() -> None:
    """It holds the base, not yet durable, and says what is: no reason to ask again at once."""
    net = Net(3)
    net.elect(1)
    net.members[3].slow_disk = True
    net.propose(1, *"abcdef")
    net.run(net.settled([1, 2]))
    net.log(1).cut_front(net.group(1).commit_index)
    net.cut(1, 3)
    messages: list[tuple[int, int]] = []

    def count(source: int, target: int, message: list[object]) -> bool:
        messages.append((source, target))
        return False

    net.lost = count
    net.connect(1, 3)
    net.run(3.0)
    assert messages.count((1, 3)) < 3.0 / net.options.heartbeat_s + 5
    assert net.group(1).needs_base == frozenset()
    net.members[3].slow_disk = False
    net.propose(1, "g")
    net.run(net.settled())
    assert net.applied(3) == list("abcdefg")


def test_169_entries_of_an_older_term_are_not_committed_by_counting_copies() -> None:
    """Figure 8 of the Raft paper: all hold the old entry, none the leader's no-op."""
    net = Net(3)
    net.elect(1)
    net.run(net.settled())
    net.lost = lambda source, target, message: isinstance(decode(message), Ack)
    net.propose(1, "old")
    net.run(0.05)
    assert {net.group(i).last_index for i in net.ids} == {3}
    net.crash(1)
    net.lost = lambda source, target, message: isinstance(decode(message), Append)
    net.run(lambda: net.leader() in (2, 3))
    leader = net.leader()
    assert leader
    group, other = net.group(leader), 5 - leader
    epoch = group._replicator.epoch(other)
    assert epoch is not None
    group.receive(other, encode(Ack(group.term, epoch, 4)))
    assert (group.commit_index, group.ready_to_lead) == (2, False)
    group.receive(other, encode(Ack(group.term, epoch, 5)))
    assert (group.commit_index, group.ready_to_lead) == (4, True)


def test_201_term_and_vote_survive_a_restart() -> None:
    net = Net(3)
    net.elect(1)
    net.group(3)._engine.step_up(2, 6)
    net.run(0.1)
    for node_id in net.ids:
        net.crash(node_id)
        net.restart(node_id)
        assert net.group(node_id).term == net.log(node_id).term >= 1
    assert net.group(3).term == 6
    group = net.group(3)
    group.receive(1, encode(VoteRequest(6, 1, 9, 6)))
    net.pump()
    net.crash(3)
    net.restart(3)
    net.flights.clear()
    net.group(3).receive(2, encode(VoteRequest(6, 1, 9, 6)))
    net.pump()
    assert net.sent(Vote, 3, 2) == [], "the vote of term 6 is node 1's"


@pytest.mark.parametrize(
    "options",
    [
        {"heartbeat_s": 0.3},
        {"heartbeat_s": 0.0},
        {"election_timeout_min_s": 2.0},
        {"append_bytes_max": 0},
        {"append_bytes_max": limits.frame_bytes_max},
    ],
)
def test_options_that_cannot_work_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match=next(iter(options)).split("_")[0]):
        RaftOptions(**options)
