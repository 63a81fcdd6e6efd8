"""L3: a follower whose disk is full takes no entries, stays a follower, and catches up later."""

import pytest
from raft_net import Net


@pytest.mark.parametrize("paused", [False, True])
def test_L1_L2_a_follower_without_room_takes_no_entries_and_disturbs_nobody(paused: bool) -> None:
    """Its node ended when its disk was full. `paused`: its leader knows, and sends it none."""
    full: set[int] = set()
    net = Net(3, accepts=lambda node: node not in full)
    net.elect(1)
    net.propose(1, *"ab")
    net.run(net.settled())
    full.add(3)
    if paused:
        net.group(1).pause(3)
    before, term = net.log(3).last_index, net.group(1).term
    for text in "cdefgh":
        net.propose(1, text)
        net.run(1.0)
    net.run(net.settled([1, 2]))
    assert net.applied(2) == list("abcdefgh")
    assert net.log(3).last_index == before, "it has taken an entry"
    assert net.log(3).commit_index <= before
    assert (net.leader(), net.group(1).term, net.group(3).term) == (1, term, term)
    full.clear()
    if paused:
        net.group(1).resume(3)
    net.run(net.settled())
    assert net.applied(3) == list("abcdefgh")


def test_S1_entries_that_a_follower_refused_do_not_count() -> None:
    """Two of three without room: nothing commits, and nothing that was committed is lost."""
    full: set[int] = set()
    net = Net(3, accepts=lambda node: node not in full)
    net.elect(1)
    net.propose(1, "a")
    net.run(net.settled())
    full.update((2, 3))
    net.propose(1, "b")
    net.run(3.0)
    assert net.applied(1) == ["a"]
    net.isolate(1)
    full.clear()
    net.run(lambda: net.group(2).ready_to_lead or net.group(3).ready_to_lead)
    net.heal()
    net.run(net.settled())
    assert net.applied(1) == net.applied(2) == net.applied(3) == ["a"]
