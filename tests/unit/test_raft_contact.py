"""L1, S7: a member knows when others may acknowledge what it does not see."""

import math

import pytest
from raft_net import Net

from lognode.raft import guard
from lognode.raft.guard import ALL_HOLES
from lognode.raft.types import RaftOptions

OPTIONS = RaftOptions()
TIMEOUT_S = OPTIONS.election_timeout_min_s


def led(seed: int = 0, members: int = 3, *, idle: bool = False) -> Net:
    """A group led by 1, with an entry that all have."""
    net = Net(members, seed=seed, idle=idle)
    net.elect(1)
    net.propose(1, "a")
    net.run(net.settled())
    return net


def someone_else_leads(net: Net) -> bool:
    return any(net.group(i).ready_to_lead for i in net.ids if i != 1)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("members", [3, 5])
def test_a_leader_that_is_cut_off_knows_before_another_one_commits(seed: int, members: int) -> None:
    net = led(seed, members)
    net.run(0.05 * seed)
    assert net.group(1).in_contact
    net.isolate(1, noticed=False)
    until = net.now + 10.0
    while not someone_else_leads(net):
        net.run(0.002)
        assert net.now < until
    assert not net.group(1).in_contact
    assert net.group(1).contact_age_s > TIMEOUT_S


def test_a_leader_is_in_contact_while_a_majority_answers() -> None:
    net = led(members=5)
    net.isolate(4, noticed=False)
    net.isolate(5, noticed=False)
    for _ in range(100):
        net.run(0.1)
        assert net.group(1).in_contact
        assert net.group(1).staleness_s < TIMEOUT_S
    net.isolate(3, noticed=False)
    net.run(TIMEOUT_S + OPTIONS.heartbeat_s)
    assert not net.group(1).in_contact


@pytest.mark.parametrize("seed", range(20))
def test_pings_keep_the_contact_of_a_group_at_rest_and_their_lack_ends_it(seed: int) -> None:
    net = led(seed, idle=True)
    net.run(5.0)
    for _ in range(100):
        net.run(0.5)
        assert all(net.group(i).idle and net.group(i).in_contact for i in net.ids)
    net.isolate(1, noticed=False)
    until = net.now + 10.0
    while not someone_else_leads(net):
        net.run(0.002)
        assert net.now < until
    assert not net.group(1).in_contact


def test_a_follower_is_in_contact_while_it_hears_the_leader() -> None:
    net = led()
    for _ in range(20):
        net.run(0.1)
        assert net.group(2).in_contact
    net.isolate(2, noticed=False)
    net.run(TIMEOUT_S + 0.01)
    assert not net.group(2).in_contact


def test_a_follower_adds_the_time_that_its_leader_may_lead_alone() -> None:
    net = led()
    net.run(0.3)
    fallback_s = guard.fallback_s(OPTIONS, ALL_HOLES)
    assert fallback_s <= net.group(2).staleness_s <= fallback_s + TIMEOUT_S


def test_a_follower_that_lacks_what_its_leader_has_committed_is_not_in_contact() -> None:
    full = False
    net = Net(accepts=lambda node_id: not (full and node_id == 3))
    net.elect(1)
    net.run(net.settled())
    full = True
    net.propose(1, "a")
    net.run(2.0)
    assert net.group(2).in_contact
    assert net.group(3).leader == 1, "it hears the heartbeats"
    assert not net.group(3).in_contact
    full = False
    net.run(net.settled())
    net.run(0.3)
    assert net.group(3).in_contact


def test_nobody_is_in_contact_before_a_leader_has_committed() -> None:
    net = Net()
    net.start()
    assert [net.group(i).contact_age_s for i in net.ids] == [math.inf] * 3
    net.elect(1)
    net.run(net.settled())
    net.run(0.2)
    assert all(net.group(i).in_contact for i in net.ids)


def test_a_group_of_one_is_always_in_contact_with_itself() -> None:
    net = Net(1)
    net.elect(1)
    net.run(100.0)
    assert net.group(1).contact_age_s == 0.0
    assert net.group(1).in_contact
