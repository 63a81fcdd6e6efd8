"""Liveness of node pairs: who is missing, who is new, and whose groups nobody vouches for."""

import random

import pytest

from lognode.client.protocol.errors import InvalidArgument
from lognode.raft.liveness import Liveness, Ping, Wake
from lognode.raft.types import GroupId, RaftOptions

OPTIONS = RaftOptions()
MIN_S, MAX_S = OPTIONS.election_timeout_min_s, OPTIONS.election_timeout_max_s
A, B, C = GroupId(1, 1), GroupId(2, 1), GroupId(3, 1)


class Pair:
    """Two nodes that hear each other's pings when told to; node 3 is only spoken of."""

    def __init__(self, seed: int = 1) -> None:
        self.now = 50.0
        self.seed = seed
        self.nodes = {node: self.start(node, 1) for node in (1, 2)}
        self.incarnations = {1: 1, 2: 1}
        self.exchange()

    def start(self, node: int, incarnation: int) -> Liveness:
        rng = random.Random(f"{self.seed}/{node}/{incarnation}")
        return Liveness(incarnation=incarnation, clock=lambda: self.now, rng=rng, options=OPTIONS)

    def restart(self, node: int) -> None:
        self.incarnations[node] += 1
        self.nodes[node] = self.start(node, self.incarnations[node])

    def ping(self, source: int) -> None:
        """From one to the other, by way of the wire."""
        target = 3 - source
        sent = list(self.nodes[source].ping(target))
        self.nodes[target].heard(source, self.incarnations[source], Ping.from_wire(sent))

    def exchange(self) -> None:
        self.ping(1)
        self.ping(2)

    def run(self, seconds: float, *, pings: tuple[int, ...] = ()) -> list[tuple[float, Wake]]:
        """Let time pass on node 1, the given nodes pinging; what it woke and when."""
        found, end = [], self.now + seconds
        while self.now < end:
            node = self.nodes[1]
            self.now = max(self.now, min(node.next_deadline(), end))
            if node.tick():
                for source in pings:
                    self.ping(source)
            found += [(self.now, wake) for wake in node.take_wakes()]
        return found


def test_a_peer_is_missing_after_a_randomized_election_timeout() -> None:
    times = set()
    for seed in range(30):
        pair = Pair(seed)
        began = pair.now
        while not pair.nodes[1].missing(2):
            pair.run(0.01)
        waited = pair.now - began
        assert MIN_S <= waited <= MAX_S + OPTIONS.ping_s, f"seed {seed}"
        times.add(round(waited, 1))
    assert len(times) > 3


def test_a_peer_that_pings_is_never_missing() -> None:
    pair = Pair()
    assert not pair.run(60.0, pings=(1, 2))
    assert pair.nodes[1].alive(2)
    assert not pair.nodes[1].missing(2)


def test_a_node_never_heard_of_is_missing_and_not_alive() -> None:
    node = Pair().nodes[1]
    assert node.missing(3)
    assert not node.alive(3)


def test_pings_are_due_every_200_ms() -> None:
    pair = Pair()
    pings, end = 0, pair.now + 10.0
    while pair.now < end:
        pair.now = max(pair.now, pair.nodes[1].next_deadline())
        pings += pair.nodes[1].tick()
    assert 49 <= pings <= 52


def test_x20_the_death_of_a_node_wakes_exactly_the_groups_that_it_led_and_spreads_them() -> None:
    pair = Pair()
    node = pair.nodes[1]
    led = [GroupId(number, 1) for number in range(300)]
    node.heard(3, 1, Ping(1 << 32, 0, []))
    for gid in led:
        assert node.vouch(gid, 2, pair.nodes[2].version)
    assert node.vouch(GroupId(900, 1), 3, 1 << 32)
    node.enter(GroupId(901, 1), frozenset((2, 3)), {2, 3})
    woken, end = [], pair.now + 4.0
    while pair.now < end:
        pair.now = max(pair.now, node.next_deadline())
        if node.tick():
            node.heard(3, 1, Ping(1 << 32, 0, []))
        woken += [(pair.now, wake) for wake in node.take_wakes()]
    assert sorted(wake.gid for _, wake in woken) == led
    assert all(wake.peer == 2 and wake.campaign for _, wake in woken)
    times = [at for at, _ in woken]
    assert 0.5 < times[-1] - times[0] <= 1.0
    assert max(sum(t <= at < t + 0.02 for at in times) for t in times) < 30


def test_a_node_that_loses_sight_of_most_wakes_the_groups_that_it_leads() -> None:
    pair = Pair()
    pair.nodes[1].enter(A, frozenset((2, 3)), {2})  # 3 was never there: 2 is the quorum
    pair.nodes[1].enter(B, frozenset((3,)), set())
    woken = pair.run(3.0)
    assert [wake for _, wake in woken] == [Wake(A, 2, campaign=False)]


def test_a_peer_that_returns_wakes_the_groups_led_here_that_it_has_not_confirmed() -> None:
    pair = Pair()
    node = pair.nodes[1]
    node.enter(A, frozenset((2, 3)), {2})
    node.enter(B, frozenset((2, 3)), {2, 3})
    node.heard(3, 1, Ping(1 << 32, 0, []))
    assert [wake for _, wake in pair.run(1.0, pings=(2,))] == [Wake(A, 3, campaign=False)]


def test_groups_of_a_missing_peer_that_returns_in_time_rest_on() -> None:
    pair = Pair()
    for number in range(300):
        assert pair.nodes[1].vouch(GroupId(number, 1), 2, pair.nodes[2].version)
    while not pair.nodes[1].missing(2):
        pair.run(0.01)
    woken = pair.run(0.1)
    pair.ping(2)
    assert not pair.run(5.0, pings=(2,))
    assert len(woken) < 200


def test_x20_a_group_that_leaves_the_idle_set_loses_its_vouch_and_no_other_does() -> None:
    pair = Pair()
    one, two = pair.nodes[1], pair.nodes[2]
    for gid in (A, B):
        two.enter(gid, frozenset((1,)), {1})
        assert one.vouch(gid, 2, two.version)
    two.leave(A)
    assert one.vouched_at(A, 2) == pair.now
    pair.ping(2)
    assert one.vouched_at(A, 2) < 0
    assert one.vouched_at(B, 2) == pair.now
    assert [wake for _, wake in pair.run(1.0, pings=(2,))] == [Wake(A, 2, campaign=False)]


def test_x20_leavings_whose_pings_were_lost_are_told_until_they_are_acknowledged() -> None:
    pair = Pair()
    one, two = pair.nodes[1], pair.nodes[2]
    for gid in (A, B, C):
        two.enter(gid, frozenset((1,)), {1})
        assert one.vouch(gid, 2, two.version)
    two.leave(A)
    two.ping(1)  # lost
    two.leave(B)
    pair.ping(2)
    assert sorted(wake.gid for _, wake in pair.run(0.5, pings=(2,))) == [A, B]
    pair.exchange()
    assert two.ping(1).left == []


def test_x20_more_leavings_than_a_ping_tells_void_all_vouches_of_the_peer() -> None:
    pair = Pair()
    one, two = pair.nodes[1], pair.nodes[2]
    two.enter(A, frozenset((1,)), {1})
    assert one.vouch(A, 2, two.version)
    for number in range(1000):
        other = GroupId(100 + number, 1)
        two.enter(other, frozenset((1,)), {1})
        two.leave(other)
    pair.ping(2)
    assert one.vouched_at(A, 2) < 0
    assert [wake.gid for _, wake in pair.run(1.0, pings=(2,))] == [A]


def test_x20_an_offer_of_an_older_version_is_not_vouched_for() -> None:
    pair = Pair()
    one, two = pair.nodes[1], pair.nodes[2]
    two.enter(A, frozenset((1,)), set())
    offered = two.version
    two.leave(A)
    pair.ping(2)
    assert not one.vouch(A, 2, offered)
    assert one.vouch(A, 2, two.version)


def test_a_new_incarnation_voids_its_vouches_and_wakes_what_it_had_confirmed() -> None:
    pair = Pair()
    one = pair.nodes[1]
    one.enter(B, frozenset((2,)), {2})
    assert one.vouch(A, 2, pair.nodes[2].version)
    pair.restart(2)
    pair.ping(2)
    assert one.vouched_at(A, 2) < 0
    woken = [wake for _, wake in pair.run(1.0, pings=(2,))]
    assert sorted(woken) == [Wake(A, 2, campaign=False), Wake(B, 2, campaign=False)]


def test_a_frame_of_an_older_incarnation_says_nothing() -> None:
    pair = Pair()
    pair.restart(2)
    pair.ping(2)
    heard_at = pair.nodes[1].heard_at(2)
    pair.now += 0.5
    pair.nodes[1].heard(2, 1, Ping((1 << 32) + 9, 0, [A]))
    assert pair.nodes[1].heard_at(2) == heard_at
    assert pair.nodes[1].vouch(A, 2, pair.nodes[2].version)


def test_a_node_that_was_away_itself_judges_nobody_before_it_has_read_what_came() -> None:
    pair = Pair()
    assert pair.nodes[1].vouch(A, 2, pair.nodes[2].version)
    pair.now += 30.0
    assert pair.nodes[1].tick()
    assert not pair.nodes[1].missing(2)
    pair.now += 0.01
    assert not pair.nodes[1].take_wakes()
    pair.ping(2)
    assert not pair.run(5.0, pings=(2,))
    assert not pair.nodes[1].missing(2)


def test_versions_of_different_incarnations_are_never_the_same() -> None:
    pair = Pair()
    for _ in range(5):
        pair.nodes[2].enter(A, frozenset((1,)), set())
        pair.nodes[2].leave(A)
    before = pair.nodes[2].version
    pair.restart(2)
    assert pair.nodes[2].version > before


def test_pings_must_fit_into_the_election_timeout() -> None:
    with pytest.raises(
        InvalidArgument, match="give more than 0 and less than a third of the least election"
    ):
        RaftOptions(ping_s=0.3)
    with pytest.raises(InvalidArgument, match="give more than 0"):
        RaftOptions(idle_after_s=0)
