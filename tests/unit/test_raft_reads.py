"""S7 without I/O: read index on leaders and followers, and the rounds that carry the questions."""

import contextlib
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from raft_net import Net

from lognode.client.protocol import limits
from lognode.client.protocol.errors import RemoteProtocolError
from lognode.raft.read_rounds import HEDGE_S, ReadRounds
from lognode.raft.readindex import ReadIndex, ReadQuestion
from lognode.raft.types import GroupId, Message, NotLeaderError

# One member's reads.


def ask(reads: ReadIndex, term: int = 1, index: int | None = None) -> ReadQuestion:
    """Begin a round; what it asks."""
    assert reads.begin(term, index)
    assert reads.question is not None
    return reads.question


def test_S7_a_read_is_settled_by_a_round_begun_after_it() -> None:
    reads = ReadIndex(node_id=1, majority=2)
    first = reads.request()
    question = ask(reads, index=10)
    second = reads.request()
    assert not reads.begin(1, 11), "one round at a time"
    reads.confirmed(2, question, 0)
    assert reads.take() == [(first, 10)]
    later = ask(reads, index=12)
    reads.confirmed(3, question, 0)
    assert reads.take() == [], "an answer to the first round says nothing of the second"
    reads.confirmed(3, later, 0)
    assert reads.take() == [(second, 12)]


def test_S7_a_follower_needs_the_leaders_word_and_a_majority() -> None:
    reads = ReadIndex(node_id=1, majority=3)
    ticket = reads.request()
    question = ask(reads)
    reads.confirmed(2, question, 0)
    reads.confirmed(3, question, 0)
    assert reads.take() == [], "a majority, and nobody has told an index"
    assert reads.targets([2, 3, 4, 5], 3) == [3, 4, 5], "a leader that could not tell it yet"
    reads.confirmed(3, question, 7)
    assert reads.take() == [(ticket, 7)]


def test_S7_the_word_of_a_leader_is_not_a_majority() -> None:
    reads = ReadIndex(node_id=1, majority=3)
    reads.request()
    question = ask(reads)
    reads.confirmed(2, question, 7)
    assert reads.take() == []


def test_one_member_confirming_twice_is_one() -> None:
    reads = ReadIndex(node_id=1, majority=3)
    reads.request()
    question = ask(reads, index=5)
    reads.confirmed(2, question, 0)
    reads.confirmed(2, question, 0)
    assert reads.take() == []
    assert reads.targets([2, 3], None) == [3]


def test_a_follower_of_three_members_asks_only_the_leader() -> None:
    reads = ReadIndex(node_id=1, majority=2)
    assert reads.targets([2, 3], 3) == []
    reads.request()
    ask(reads)
    assert reads.targets([2, 3], 3) == [3]
    assert reads.targets([2], 3) == []
    assert reads.targets([2, 3], None) == []


@pytest.mark.parametrize(
    ("members", "leader", "asked"),
    [(3, 1, [3]), (5, 1, [3, 5]), (3, 2, [2]), (5, 2, [2, 3]), (5, None, [3, 5])],
)
def test_as_many_members_are_asked_at_first_as_suffice(
    members: int, leader: int | None, asked: list[int]
) -> None:
    linked = [3, 5, 2, 4] if members == 5 else [3, 2]
    reads = ReadIndex(node_id=1, majority=members // 2 + 1)
    reads.request()
    question = ask(reads, index=5 if leader == 1 else None)
    assert reads.targets(linked, leader, first=True) == asked
    if members == 5:
        assert set(reads.targets(linked, leader)) == {2, 3, 4, 5}
        reads.confirmed(asked[0], question, 5)
        assert len(reads.targets(linked, leader, first=True)) == 1


def test_L4_a_lost_lead_settles_every_read() -> None:
    reads = ReadIndex(node_id=1, majority=2)
    asked = reads.request()
    ask(reads, index=5)
    waiting = reads.request()
    reads.fail()
    assert reads.take() == [(asked, None), (waiting, None)]
    assert not reads.begin(1, 6)


def test_a_group_of_one_reads_at_once() -> None:
    reads = ReadIndex(node_id=1, majority=1)
    ticket = reads.request()
    assert not reads.begin(1, 7), "there is nobody to ask"
    assert reads.take() == [(ticket, 7)]


# Groups over a network.


def settled(net: Net, node_id: int, ticket: int, limit_s: float = 10.0) -> int | None:
    """The read's index, once it has one."""
    reads: dict[int, int | None] = net.members[node_id].reads
    net.run(lambda: ticket in reads, limit_s)
    return reads[ticket]


@pytest.mark.parametrize("members", [2, 3, 5])
def test_S7_a_follower_serves_what_was_committed_before(members: int) -> None:
    net = Net(members)
    group = net.elect(1)
    net.propose(1, "a")
    net.run(net.settled())
    net.propose(1, "b")
    net.run(lambda: group.commit_index == group.last_index)
    follower = members
    index = settled(net, follower, net.group(follower).request_read())
    assert index == group.commit_index


def test_S7_a_deposed_leader_tells_no_follower_an_index() -> None:
    """Members 1 and 5 have heard nothing of the new leader: two are not a majority of five."""
    net = Net(5)
    net.elect(1)
    net.propose(1, "old")
    net.run(net.settled())
    for node_id in (2, 3, 4):
        for other in (1, 5):
            net.cut(node_id, other, noticed=False)
            net.cut(other, node_id, noticed=False)
    ticket = net.group(5).request_read()
    net.run(lambda: any(net.group(i).ready_to_lead for i in (2, 3, 4)))
    leader = net.leader()
    assert leader in (2, 3, 4)
    net.propose(leader, "new")
    net.run(5.0)
    assert net.members[5].reads.get(ticket) is None
    for source, target in sorted(net.cuts):
        net.connect(source, target)
    net.run(net.settled())
    assert settled(net, 5, net.group(5).request_read()) == net.group(leader).commit_index


def test_S7_a_leader_without_an_entry_of_its_term_tells_no_index() -> None:
    """Its commit index may be behind what the last leader has acknowledged."""
    net = Net(3)
    net.elect(1)
    net.propose(1, "a")
    net.run(net.settled())
    net.crash(1)
    net.members[2].slow_disk = net.members[3].slow_disk = True
    net.group(2).take_over()
    for _ in range(4):
        net.run(0.05)
        net.sync(2)
        if net.group(2).role != "leader":
            net.sync(3)
    net.run(0.1)
    new = net.group(2)
    assert (new.role, new.ready_to_lead) == ("leader", False)
    assert net.group(3).leader == 2
    assert new.answer_read(3, new.term) == 0
    ticket = net.group(3).request_read()
    net.run(0.3)
    assert ticket not in net.members[3].reads
    net.members[2].slow_disk = net.members[3].slow_disk = False
    index = settled(net, 3, ticket)
    assert index is not None
    assert net.log(2).term_at(index) == new.term


def test_S7_x2_12_only_participants_of_the_term_say_yes() -> None:
    net = Net(3)
    group = net.elect(1)
    net.run(net.settled())
    member = net.group(2)
    assert member.answer_read(1, group.term) == 0
    assert member.answer_read(1, group.term - 1) is None
    assert member.answer_read(1, group.term + 1) is None
    assert member.answer_read(9, group.term) is None, "no member"
    assert group.answer_read(2, group.term) == group.commit_index
    member.stop()
    assert member.answer_read(1, group.term) is None
    fresh = Net(3)
    assert fresh.group(2).answer_read(1, 0) is None, "not started"


def test_L4_a_read_fails_when_the_leader_is_lost() -> None:
    net = Net(3)
    net.elect(1)
    net.run(net.settled())
    ticket = net.group(2).request_read()
    net.isolate(1, noticed=False)
    assert settled(net, 2, ticket, 3.0) is None
    lonely = Net(3)
    lonely.start()
    with pytest.raises(NotLeaderError):
        lonely.group(2).request_read()


@pytest.mark.parametrize("members", [3, 5])
def test_L1_a_follower_that_has_no_link_to_its_leader_serves_no_read(members: int) -> None:
    """It hears the leader and cannot ask it: the read waited until its client gave up."""
    net = Net(members)
    net.elect(1)
    net.run(net.settled())
    net.lost = lambda source, target, _: (source, target) == (2, 1)
    ticket = net.group(2).request_read()
    net.run(until=net.now + 0.5)
    assert net.group(2).leader == 1
    net.cut(2, 1)
    assert settled(net, 2, ticket, 0.1) is None
    with pytest.raises(NotLeaderError):
        net.group(2).request_read()
    net.lost = lambda source, target, _: False
    net.connect(2, 1)
    assert settled(net, 2, net.group(2).request_read(), 0.5) == net.group(1).commit_index


def answerers(net: Net, leader: int) -> Counter[int]:
    """Count the questions of reads that each other member answers."""
    found: Counter[int] = Counter()

    def counted(node: int, answer: Callable[[int, int], int | None]) -> Any:
        def count(sender: int, term: int) -> int | None:
            found[node] += 1
            return answer(sender, term)

        return count

    for node in net.ids:
        if node != leader:
            group = net.group(node)
            group.answer_read = counted(node, group.answer_read)  # type: ignore[method-assign]
    return found


def test_a_leader_asks_one_of_two_and_the_other_when_the_first_is_silent() -> None:
    net = Net(3)
    group = net.elect(1)
    net.run(net.settled())
    asked = answerers(net, 1)
    for _ in range(10):
        assert settled(net, 1, group.request_read()) == group.commit_index
    net.run(1.0)
    assert asked.total() == 10, "one answer a read, and nobody is asked again"
    (silent,) = group.read_peers(first=True) or [group._replicator.recent()[0]]
    net.cut(silent, 1, noticed=False)
    asked.clear()
    began = net.now
    assert settled(net, 1, group.request_read()) == group.commit_index
    assert HEDGE_S <= net.now - began < 2 * HEDGE_S
    assert asked.keys() == {2, 3}


# The rounds of a pair.


class Groups:
    """Two nodes with many groups: what node 2 says is in `says`."""

    def __init__(self, count: int) -> None:
        self.now = 0.0
        self.says: dict[GroupId, int | None] = {}
        self.asked: list[tuple[GroupId, bytes, int, int]] = []
        self.rounds = ReadRounds(clock=lambda: self.now, retry_s=0.15, answerer=self.answer)
        self.groups = [Lone(GroupId(number, 1)) for number in range(1, count + 1)]
        self.rounds.connected(2, 7)

    def answer(self, gid: GroupId, fingerprint: bytes, sender: int, term: int) -> int | None:
        self.asked.append((gid, fingerprint, sender, term))
        return self.says.get(gid, 0)

    def take(self) -> Message:
        ((peer, message),) = self.rounds.take()
        assert peer == 2
        return message


class Lone:
    """A group whose reads are settled by node 2 alone."""

    def __init__(self, gid: GroupId) -> None:
        self.gid = gid
        self.fingerprint = b"f%d" % gid.range_id
        self.round = 0
        self.answers: list[tuple[int, int]] = []

    def begin(self) -> "Lone":
        self.round += 1
        return self

    def read_peers(self, *, first: bool) -> list[int]:
        return [2] if self.read_question() else []

    def read_question(self) -> ReadQuestion | None:
        settled = self.answers and self.answers[-1][0] == self.round
        return None if settled or not self.round else ReadQuestion(3, self.round)

    def read_answered(self, sender: int, question: ReadQuestion, index: int) -> None:
        assert (sender, question.term) == (2, 3)
        self.answers.append((question.round, index))


def test_all_groups_share_a_round_and_one_is_under_way() -> None:
    pair = Groups(200)
    for group in pair.groups[:150]:
        pair.rounds.ask(group.begin())
    first = pair.take()
    assert len(first[2]) == 150
    for group in pair.groups[100:]:
        pair.rounds.ask(group.begin())
    assert pair.rounds.take() == []
    pair.rounds.answered(2, pair.rounds.answer(1, first))
    assert {len(group.answers) for group in pair.groups[:150]} == {1}
    second = pair.take()
    assert [item[0] for item in second[2]] == list(range(101, 201))
    pair.rounds.answered(2, pair.rounds.answer(1, second))
    assert all(group.answers[-1] == (group.round, 0) for group in pair.groups)
    assert pair.asked[0] == (GroupId(1, 1), b"f1", 1, 3)


def test_a_round_has_at_most_so_many_questions_and_the_next_one_asks_the_others() -> None:
    most = limits.raft_round_reads_max
    pair = Groups(2 * most + 10)
    for group in pair.groups:
        pair.rounds.ask(group.begin())
    for group in pair.groups[:5]:
        group.round = 0  # others have answered meanwhile
    asked = []
    for count in (most, most, 5):
        message = pair.take()
        assert len(message[2]) == count
        asked += [item[0] for item in message[2]]
        assert pair.rounds.take() == [], "one round at a time"
        pair.rounds.answered(2, pair.rounds.answer(1, message))
    assert asked == list(range(6, 2 * most + 11))
    assert pair.rounds.take() == []
    assert all(group.answers for group in pair.groups[5:])


def test_x2_12_a_no_settles_nothing_and_is_asked_again() -> None:
    pair = Groups(2)
    pair.says = {GroupId(1, 1): None, GroupId(2, 1): 9}
    for group in pair.groups:
        pair.rounds.ask(group.begin())
    pair.rounds.answered(2, pair.rounds.answer(1, pair.take()))
    refused, told = pair.groups
    assert (refused.answers, told.answers) == ([], [(1, 9)])
    assert pair.rounds.take() == [], "not at once: it would spin"
    pair.now = pair.rounds.next_deadline()
    assert pair.rounds.tick() == []
    pair.says.clear()
    again = pair.take()
    assert [item[0] for item in again[2]] == [1]
    pair.rounds.answered(2, pair.rounds.answer(1, again))
    assert refused.answers == [(1, 0)]


def test_a_lost_round_is_sent_again_as_it_was_until_nothing_is_open() -> None:
    pair = Groups(2)
    first, second = pair.groups
    pair.rounds.ask(first.begin())
    lost = pair.take()
    pair.rounds.ask(second.begin())
    pair.now = 0.15
    assert pair.rounds.tick() == [(2, lost)]
    assert pair.rounds.take() == []
    pair.rounds.answered(2, pair.rounds.answer(1, lost))
    pair.rounds.answered(2, pair.rounds.answer(1, lost))  # twice: it came late, too
    assert first.answers == [(1, 0)]
    pair.rounds.answered(2, pair.rounds.answer(1, pair.take()))
    assert second.answers == [(1, 0)]
    pair.now = 1.0
    assert pair.rounds.tick() == []
    assert pair.rounds.next_deadline() == float("inf")


def test_L1_a_round_without_waiting_reads_is_not_sent_again() -> None:
    """A leader that was cut off and stepped down would else be heard as one for ever."""
    pair = Groups(3)
    for group in pair.groups:
        pair.rounds.ask(group.begin())
    lost = pair.take()
    settled, failed, open_still = pair.groups
    settled.answers.append((1, 0))
    failed.round = 0
    pair.now = 0.15
    ((_, again),) = pair.rounds.tick()
    assert again[2] == [None, None, [3, 1, b"f3", 3]]
    assert again[:2] == lost[:2], "an answer to the first sending still counts"
    assert pair.rounds.answer(1, again) == [*again[:2], [None, None, 0]]
    open_still.round = 0
    pair.now = 0.3
    assert pair.rounds.tick() == []
    pair.now = 10.0
    assert pair.rounds.tick() == []
    assert pair.rounds.next_deadline() == float("inf")


def test_L1_a_leader_that_hears_nobody_is_replaced_though_it_is_heard() -> None:
    net = Net(3)
    net.elect(1)
    net.run(net.settled())
    for other in (2, 3):
        net.cut(other, 1, noticed=False)
    net.group(1).request_read()
    began = net.now
    net.run(lambda: any(net.group(i).ready_to_lead for i in (2, 3)))
    assert net.now - began < 6.0


def test_x20_an_answer_to_an_older_link_or_round_says_nothing() -> None:
    pair = Groups(1)
    (group,) = pair.groups
    pair.rounds.ask(group.begin())
    old = pair.rounds.answer(1, pair.take())
    pair.rounds.disconnected(2)
    pair.rounds.answered(2, old)
    pair.rounds.connected(2, 8)
    renewed = pair.take()
    pair.rounds.answered(2, old)
    pair.rounds.answered(2, [8, renewed[1] + 1, [0]])
    assert group.answers == []
    pair.rounds.answered(2, pair.rounds.answer(1, renewed))
    assert group.answers == [(1, 0)]


def test_answers_that_do_not_meet_the_round_are_refused() -> None:
    pair = Groups(1)
    assert pair.rounds.answer(1, [7, 1, [[1, 1, b"f", 3]]]) == [7, 1, [0]]
    pair.rounds.ask(pair.groups[0].begin())
    epoch, number, _ = pair.take()
    for answers in ([], [0, 0]):
        with pytest.raises(RemoteProtocolError):
            pair.rounds.answered(2, [epoch, number, answers])


@pytest.mark.slow
def test_S7_reads_of_all_members_under_faults() -> None:
    """Random crashes, cuts and losses: no read is served below what was committed before it."""
    for seed in range(6):
        rng = random.Random(seed)
        net = Net(3 if seed % 2 else 5, seed=seed)
        loss = rng.choice([0.0, 0.05, 0.2])
        net.lost = lambda *_, rng=rng, loss=loss: rng.random() < loss
        net.start()
        floors: dict[tuple[int, int], int] = {}
        served = 0
        for step in range(150):
            net.run(rng.uniform(0.01, 0.3))
            up = [m for m in net.members.values() if not m.down]
            committed = max(member.group.commit_index for member in up)
            for member in up:
                for ticket, index in member.reads.items():
                    floor = floors.pop((id(member.group), ticket), None)
                    if index is not None and floor is not None:
                        assert index >= floor, f"seed {seed}: a stale read"
                        served += member.group.role != "leader"
                member.reads.clear()
                with contextlib.suppress(NotLeaderError):
                    floors[id(member.group), member.group.request_read()] = committed
            leader = net.leader()
            if leader is not None:
                net.propose(leader, str(step))
            if rng.random() < 0.1:
                net.isolate(rng.choice(net.ids), noticed=rng.random() < 0.5)
            elif rng.random() < 0.4:
                net.heal()
        assert served > 20, f"seed {seed}"


def test_L1_questions_of_a_leader_that_stepped_down_keep_nobody_from_electing() -> None:
    # It hears nothing and asks again and again, what it asked while it led: no sign of a leader.
    net = Net()
    term = net.elect(1).term
    net.isolate(1, noticed=False)
    for _ in range(30):
        net.run(0.1)
        for follower in (2, 3):
            net.group(follower).answer_read(1, term)
    assert {net.group(2).role, net.group(3).role} & {"leader"}
