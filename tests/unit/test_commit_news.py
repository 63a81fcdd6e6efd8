"""A leader tells its peers a newer commit index with the next append, or alone a little later."""

import pytest
from raft_net import Flight, Net

from lognode.client.protocol.errors import InvalidArgument
from lognode.raft.messages import Append
from lognode.raft.types import RaftOptions

OPTIONS = RaftOptions()
STEP_S = OPTIONS.tell_commit_s / 4


class Watched(Net):
    """A network that notes when a message without entries brings news to a peer."""

    def __init__(self) -> None:
        self.news: list[float] = []
        super().__init__(3, seed=1)

    def deliver(self, flight: Flight) -> None:
        body = flight.body
        knows = self.group(flight.target).commit_index
        if isinstance(body, Append) and not body.entries and body.commit > knows:
            self.news.append(self.now)
        super().deliver(flight)


def led() -> Watched:
    net = Watched()
    net.elect(1)
    net.propose(1, "first")
    net.run(1.0)
    net.news.clear()
    return net


def commits(net: Net) -> set[int]:
    return {net.group(node).commit_index for node in net.ids}


def test_peers_learn_the_commit_index_soon_without_another_append() -> None:
    net = led()
    (index,) = net.propose(1, "a")
    net.run(lambda: net.group(1).commit_index == index)
    committed_at = net.now
    assert commits(net) == {index - 1, index}, "no peer knows yet"
    net.run(lambda: commits(net) == {index})
    assert net.news[0] >= committed_at + OPTIONS.tell_commit_s
    assert net.now - committed_at < OPTIONS.heartbeat_s / 2, "no heartbeat was needed"
    assert len(net.news) == 2


def test_no_message_has_the_commit_index_alone_while_appends_follow() -> None:
    net = led()
    for n in range(40):
        (index,) = net.propose(1, f"entry {n}")
        net.run(STEP_S)
    assert index - net.group(2).commit_index < 40, "the appends tell it"
    assert net.news == []


def test_the_next_leader_tells_what_it_commits() -> None:
    net = led()
    net.propose(1, "a")
    net.run(lambda: net.group(1).commit_index == net.group(1).last_index)
    net.isolate(1)
    net.run(lambda: any(net.group(node).ready_to_lead for node in (2, 3)))
    leader, other = (2, 3) if net.group(2).ready_to_lead else (3, 2)
    (index,) = net.propose(leader, "b")
    net.run(lambda: net.group(leader).commit_index == index)
    net.run(lambda: net.group(other).commit_index == index, limit_s=OPTIONS.heartbeat_s / 2)


@pytest.mark.parametrize("given", [-0.001, float("nan")])
def test_a_time_that_cannot_work_is_refused(given: float) -> None:
    with pytest.raises(InvalidArgument, match="give 0 or more"):
        RaftOptions(tell_commit_s=given)
