"""Messages that no sound member sends: refused, without an effect, and the group goes on.

A member's messages reach into the log of another. Each of these broke an invariant there, which
ends the node: one message was enough, again after each start.
"""

import random
from collections.abc import Callable

import pytest
from raft_net import Net

from lognode.client.protocol import limits
from lognode.client.protocol.errors import RemoteProtocolError
from lognode.raft.liveness import Liveness, Ping
from lognode.raft.messages import (
    Ack,
    Append,
    BaseProbe,
    Body,
    PreVoteRequest,
    Quiesce,
    Reject,
    Started,
    Term,
    Vote,
    VoteRequest,
    encode,
)
from lognode.raft.types import RaftOptions

ENTRY = b"\x00other"
JUMPS: dict[str, Callable[[int, int], Body]] = {
    "append": lambda term, epoch: Append(term, epoch, 1, 0, 9, [[term, ENTRY]]),
    "heartbeat": lambda term, epoch: Append(term, epoch, 1, 0, 9, []),
    "ack": lambda term, epoch: Ack(term, epoch, 1),
    "reject": lambda term, epoch: Reject(term, epoch, 1, 1, 0),
    "vote request": lambda term, epoch: VoteRequest(term, epoch, limits.number_max, term - 1),
    "vote": Vote,
    "pre-vote request": lambda term, epoch: PreVoteRequest(term, epoch, 1, 9, term - 1),
    "term": Term,
    "base probe": lambda term, epoch: BaseProbe(term, epoch, 9, term - 1),
    "started": Started,
    "quiesce": lambda term, epoch: Quiesce(term, epoch, 1, 9, 1),
}


class Refusals(list[tuple[int, int, str]]):
    """Of a net: the member, the sender, and why."""

    def __init__(self, net: Net) -> None:
        super().__init__()
        net.on_refused = lambda member, sender, reason: self.append((member, sender, reason))


def goes_on(net: Net, text: str) -> None:
    """The group commits, and all its members apply."""
    net.run(lambda: net.leader() is not None)
    leader = net.leader()
    assert leader is not None
    net.propose(leader, text)
    net.run(net.settled())
    assert {net.applied(node)[-1] for node in net.ids} == {text}


@pytest.mark.parametrize("what", JUMPS)
@pytest.mark.parametrize("term", [limits.number_max, 1 << 62, 2 + limits.term_jump_max])
def test_a_term_that_nobody_could_have_reached_is_not_believed(what: str, term: int) -> None:
    """A term is never given up: at its end the group elects nobody any more."""
    net = Net(3)
    net.elect(1)
    refusals = Refusals(net)
    before = [net.group(node).term for node in net.ids]
    for node in net.ids:
        other = next(each for each in net.ids if each != node)
        epoch = net.group(node)._replicator.epoch(other) or 0
        net.group(node).receive(other, encode(JUMPS[what](term, epoch)))
    assert [net.group(node).term for node in net.ids] == before == [1, 1, 1]
    assert [refusal[2] for refusal in refusals] == ["term_jump"] * 3
    assert net.leader() == 1
    goes_on(net, "after")


def test_a_member_whose_term_was_raised_so_stops_nobody_else() -> None:
    """A version before this one believed any term, and stored it."""
    net = Net(3)
    net.elect(1)
    net.isolate(3)
    net.log(3).set_hard_state(1 << 62, None)
    net.sync(3)
    net.crash(3)
    net.restart(3)
    assert net.group(3).term == 1 << 62
    refusals = Refusals(net)
    net.heal()
    net.run(10.0)
    assert net.group(1).term < 10
    leader = net.leader()
    assert leader in (1, 2)
    assert leader is not None
    net.propose(leader, "without it")
    net.run(net.settled([1, 2]))
    assert {reason for _, sender, reason in refusals if sender == 3} == {"term_jump"}


def test_a_jump_within_the_bound_is_believed_as_ever() -> None:
    net = Net(3)
    net.elect(1)
    net.group(2).receive(3, encode(Term(1 + limits.term_jump_max, 1)))
    assert net.group(2).term == 1 + limits.term_jump_max
    goes_on(net, "after")


def test_S3_an_append_that_replaces_a_committed_entry_is_refused() -> None:
    net = Net(3)
    net.elect(1)
    net.propose(1, "a", "b")
    net.run(net.settled())
    refusals = Refusals(net)
    forged = Append(2, 1, 1, 0, 9, [[1, ENTRY], [2, ENTRY]])
    net.group(2).receive(3, encode(forged))
    assert refusals == [(2, 3, "contradicts_commit")]
    assert net.group(2).term == 1
    assert net.applied(2) == ["a", "b"]
    goes_on(net, "after")


def test_a_second_leader_of_a_term_is_refused_by_the_first() -> None:
    net = Net(3)
    net.elect(1)
    refusals = Refusals(net)
    for body in (Append(1, 1, 2, 1, 2, []), Append(1, 1, 2, 1, 2, [[1, ENTRY]]),
                 BaseProbe(1, 1, 2, 1)):  # fmt: skip
        net.group(1).receive(2, encode(body))
    assert refusals == [(1, 2, "second_leader")] * 3
    assert net.leader() == 1
    goes_on(net, "after")


@pytest.mark.parametrize(
    "append",
    [
        Append(5, 1, 2, 1, 2, [[0, ENTRY]]),
        Append(5, 1, 2, 1, 2, [[4, ENTRY], [3, ENTRY]]),
        Append(5, 1, 2, 1, 2, [[6, ENTRY]]),
    ],
)
def test_entries_whose_terms_fall_are_refused(append: Append) -> None:
    net = Net(3)
    net.elect(1)
    with pytest.raises(
        RemoteProtocolError, match="the terms of a Raft append do not follow each other"
    ):
        net.group(2).receive(3, encode(append))
    goes_on(net, "after")


def liveness() -> Liveness:
    """Of a node in its third boot."""
    return Liveness(incarnation=3, clock=lambda: 1.0, rng=random.Random(1), options=RaftOptions())


def test_a_ping_of_a_version_that_its_boot_cannot_have_is_refused() -> None:
    """The highest version holds: no group of that node would ever rest again."""
    pings = liveness()
    for version in (6 << 32, 1 << 62, limits.number_max):
        with pytest.raises(RemoteProtocolError, match="of a later incarnation"):
            pings.heard(2, 5, Ping(version, 0, []))
    assert pings.missing(2)


def test_a_ping_that_knows_more_than_there_is_is_told_all_the_same() -> None:
    pings = liveness()
    pings.heard(2, 5, Ping((5 << 32) + 1, limits.number_max, []))
    assert pings.ping(2) == Ping(3 << 32, (5 << 32) + 1, [])
    assert pings._peers[2].seen == 0
