"""The holes of the library, one by one: closed nothing happens, open the violation shows.

Numbers are the rows of the table of holes. Each scenario returns what went wrong, or None. With
its hole open it must name the violation: a guard that is never needed proves nothing.
"""

import contextlib
from collections.abc import Callable

import pytest
from raft_net import Net

from lognode.client.protocol import limits
from lognode.client.protocol.invariants import InvariantError
from lognode.raft.guard import ALL_HOLES, HOLES
from lognode.raft.messages import Ack, Append, PreVote, Vote, decode, encode

Scenario = Callable[[frozenset[int]], str | None]


def hole_1(closed: frozenset[int]) -> str | None:
    """An old leader with a tail of its own rejoins one whose log begins behind it."""
    net = Net(3, closed=closed)
    net.elect(1)
    net.isolate(1)
    net.propose(1, "phantom1", "phantom2", "phantom3")
    net.run(lambda: net.leader() in (2, 3))
    leader = net.leader()
    assert leader
    net.propose(leader, *"abcdefgh")
    net.run(net.settled([2, 3]))
    net.log(leader).cut_front(net.group(leader).commit_index)
    net.heal()
    net.run(2.0)
    if any("phantom" in text for text in net.applied(1)):
        return "entries that nobody verified were applied"
    assert net.group(leader).needs_base == {1}
    assert net.group(1).base_wanted
    return None


def hole_2(closed: frozenset[int]) -> str | None:
    """A late copy of an old append reaches a follower that has acknowledged more since."""
    net = Net(3, closed=closed)
    net.elect(1)
    net.cut(1, 3)
    net.propose(1, "a")
    late = next(f for f in _pumped(net).sent(Append, 1, 2) if decode(f.message).entries)  # type: ignore[union-attr]
    net.run(0.1)
    net.propose(1, "b", "c", "d")
    net.run(net.settled([1, 2]))
    net.group(2).receive(1, late.message)
    net.crash(1)
    net.heal()
    with contextlib.suppress(InvariantError):
        net.run(lambda: any(net.group(i).ready_to_lead for i in (2, 3)))
        net.run(1.0)
        assert net.applied(2)[:4] == net.applied(3)[:4] == ["a", "b", "c", "d"]
        return None
    return "acknowledged entries were truncated"


def hole_3(closed: frozenset[int]) -> str | None:
    """Acks of an older term arrive at a leader whose entries nobody else has."""
    net = Net(3, closed=closed)
    net.elect(1)
    net.isolate(1)
    net.run(lambda: net.leader() in (2, 3))
    net.heal()
    net.run(lambda: net.group(1).term > 1)
    net.run(net.settled())
    leader = net.leader()
    assert leader
    net.isolate(leader, noticed=False)
    (index,) = net.propose(leader, "only here")
    net.pump()
    other = next(i for i in net.ids if i != leader)
    net.group(leader).receive(other, encode(Ack(1, 1, index + 1)))
    return "committed by a stale ack" if net.group(leader).commit_index == index else None


def hole_4(closed: frozenset[int]) -> str | None:
    """A divergent tail longer than the new leader's log, and a backlog of several batches."""
    net = Net(3, closed=closed)
    net.elect(1)
    net.isolate(1)
    net.propose(1, *(f"phantom{n}" for n in range(40)))
    net.run(lambda: net.leader() in (2, 3))
    leader = net.leader()
    assert leader
    for _ in range(12):
        net.group(leader).propose(b"\x00" + bytes(3 << 20))
    net.run(net.settled([2, 3]))
    # The next leader begins at the end of its log, not where the first one left off.
    net.crash(leader)
    net.restart(leader)
    net.isolate(1)
    net.run(lambda: any(net.group(i).ready_to_lead for i in (2, 3)))
    net.heal()
    net.run(10.0)
    assert net.leader() is not None
    return None if net.settled()() else "never catches up"


def hole_5(closed: frozenset[int]) -> str | None:
    """An entry is applied on all members while no disk has synced it; then the power goes."""
    net = Net(3, closed=closed)
    net.elect(1)
    for member in net.members.values():
        member.slow_disk = True
    net.propose(1, "a")
    net.run(0.5)
    applied = net.applied(1)
    for node_id in net.ids:
        net.crash(node_id)
    on_disk = [net.log(i).last_index for i in net.ids]
    return "acknowledged, then gone" if applied == ["a"] and max(on_disk) == 2 else None


def hole_5_alone(closed: frozenset[int]) -> str | None:
    """A group of one counts itself before its disk has."""
    net = Net(1, closed=closed)
    net.elect(1)
    net.members[1].slow_disk = True
    net.propose(1, "a")
    net.run(0.5)
    return "committed before it was durable" if net.applied(1) == ["a"] else None


def hole_6(closed: frozenset[int]) -> str | None:
    """A vote is sent and then forgotten, and cast again in the same term."""
    net = Net(3, closed=closed)
    net.cut(1, 3)
    net.cut(3, 1)
    net.members[2].slow_disk = True
    net.start(campaign=1)
    net.run(0.1)
    first = net.group(1).role == "leader"
    net.crash(2)
    net.members[2].slow_disk = False
    net.restart(2)
    net.cut(1, 2)
    net.cut(2, 1)
    net.group(3).start(campaign=True)
    net.run(0.1)
    second = net.group(3).role == "leader"
    same_term = net.group(1).term == net.group(3).term == 1
    return "two leaders in one term" if first and second and same_term else None


def hole_16(closed: frozenset[int]) -> str | None:
    """The network duplicates one of two votes in a group of five."""
    net = Net(5, closed=closed)
    for other in (3, 4, 5):
        net.cut(other, 1)
    net.start(campaign=1)
    net.run(lambda: bool(net.sent(PreVote, 2, 1)))
    # The pre-vote needs a majority too; the elections of this test begin behind it.
    net.group(1)._campaign()
    net.run(lambda: bool(net.sent(Vote, 2, 1)))
    vote = net.sent(Vote, 2, 1)[0]
    net.deliver(vote)
    net.group(1).receive(2, vote.message)
    return "elected by two of five" if net.group(1).role == "leader" else None


def hole_20(closed: frozenset[int]) -> str | None:
    """A leader that hears nobody."""
    net = Net(3, closed=closed)
    net.elect(1)
    net.isolate(1, noticed=False)
    net.run(4.0)
    return "leads without a quorum" if net.group(1).role == "leader" else None


def hole_21(closed: frozenset[int]) -> str | None:
    """A follower is cut off for 30 s and comes back."""
    net = Net(3, closed=closed)
    net.elect(1)
    net.isolate(3, noticed=False)
    net.run(30.0)
    net.heal()
    net.run(3.0)
    return None if net.leader() == 1 and net.group(1).term == 1 else "the leader was deposed"


def hole_26(closed: frozenset[int]) -> str | None:
    """A peer that takes everything and answers nothing (L3)."""
    net = Net(3, closed=closed)
    net.elect(1)
    sent: list[int] = []

    def swallow(source: int, target: int, message: list[object]) -> bool:
        if target == 3:
            body = decode(message)
            sent.append(sum(len(c) for _, c in body.entries) if isinstance(body, Append) else 0)  # type: ignore[arg-type, misc]
        return 3 in (source, target)

    net.lost = swallow
    command = b"\x00" + bytes(1 << 20)
    for _ in range(100):
        net.group(1).propose(command)
        net.run(0.01)
    net.run(net.settled([1, 2]))
    bound = limits.group_window_bytes_max + 2 * limits.entry_bytes_max
    return "sent without bound" if sum(sent) > bound else None


SCENARIOS: dict[str, tuple[int, Scenario]] = {
    "hole_1": (1, hole_1),
    "hole_2": (2, hole_2),
    "hole_3": (3, hole_3),
    "hole_4": (4, hole_4),
    "hole_5": (5, hole_5),
    "hole_5_alone": (5, hole_5_alone),
    "hole_6": (6, hole_6),
    "hole_16": (16, hole_16),
    "hole_20": (20, hole_20),
    "hole_21": (21, hole_21),
    "hole_26": (26, hole_26),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_guard_closes(name: str) -> None:
    assert SCENARIOS[name][1](ALL_HOLES) is None


@pytest.mark.parametrize("name", SCENARIOS)
def test_violation_shows_when_open(name: str) -> None:
    number, scenario = SCENARIOS[name]
    assert scenario(ALL_HOLES - {number}) is not None


def test_every_hole_that_can_be_opened_has_a_scenario() -> None:
    assert {number for number, _ in SCENARIOS.values()} == set(HOLES)


def _pumped(net: Net) -> Net:
    net.pump()
    return net
