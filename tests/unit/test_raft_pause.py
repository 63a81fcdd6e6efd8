"""L3: a peer whose link is full is told to wait, and goes on where it was."""

from raft_net import Net

from lognode.client.protocol import limits
from lognode.raft.messages import Append, decode


class Watched:
    """Three members, of which 1 leads; notes the appends that 1 sends to 3."""

    def __init__(self) -> None:
        self.net = Net(3)
        self.indexes: list[int] = []
        self.heartbeats = 0
        self.net.lost = self._watch
        self.net.elect(1)
        self.net.run(self.net.settled())
        self.indexes.clear()

    def _watch(self, source: int, target: int, message: list[object]) -> bool:
        if (source, target) == (1, 3):
            body = decode(message)
            if isinstance(body, Append):
                first = body.prev_index + 1
                self.indexes += range(first, first + len(body.entries))
                self.heartbeats += not body.entries
        return False


def test_L3_a_paused_peer_gets_heartbeats_and_no_entries() -> None:
    watched = Watched()
    net = watched.net
    net.group(1).pause(3)
    net.propose(1, *"abcdef")
    watched.heartbeats = 0
    net.run(net.settled([1, 2]))
    net.run(3.0)
    assert watched.indexes == []
    assert watched.heartbeats > 5
    assert net.leader() == 1
    assert net.group(3).term == net.group(1).term, "it campaigned"


def test_L2_a_paused_peer_continues_where_it_was_and_nothing_is_sent_twice() -> None:
    watched = Watched()
    net = watched.net
    net.propose(1, *"abc")
    net.group(1).pause(3)  # a, b and c are on their way, and stay so
    net.propose(1, *"def")
    net.run(1.0)
    net.group(1).resume(3)
    net.run(net.settled())
    assert net.applied(3) == net.applied(1) == list("abcdef")
    assert watched.indexes == sorted(set(watched.indexes))


def test_L2_acks_of_what_was_on_its_way_count() -> None:
    """A window of entries larger than the link's: pausing must not make them be sent again."""
    watched = Watched()
    net = watched.net
    command = b"\x00" + bytes(limits.group_window_bytes_max // 4)
    for _ in range(12):
        net.group(1).propose(command)
    for _ in range(20):
        net.group(1).pause(3)
        net.run(0.02)
        net.group(1).resume(3)
        net.run(0.02)
    net.run(net.settled())
    assert watched.indexes == sorted(set(watched.indexes))


def test_a_new_link_begins_unpaused() -> None:
    watched = Watched()
    net = watched.net
    net.group(1).pause(3)
    net.cut(1, 3)
    net.connect(1, 3)
    net.propose(1, "a")
    net.run(net.settled())
    assert net.applied(3) == ["a"]
