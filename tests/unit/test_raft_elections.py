"""Pre-vote and read index, without a network."""

import random

import pytest
from raft_net import MemoryLog

from lognode.raft.idle import Idle
from lognode.raft.prevote import Elections
from lognode.raft.types import GroupId, RaftOptions

OPTIONS = RaftOptions(election_timeout_min_s=1.0, election_timeout_max_s=2.0, heartbeat_s=0.2)


class Time:
    now = 10.0

    def __call__(self) -> float:
        return self.now


def make(node_id: int = 2, majority: int = 2) -> tuple[Elections, Time, MemoryLog]:
    time = Time()
    idle = Idle(
        gid=GroupId(1, 1), peers=frozenset(), majority=majority, liveness=None,
        options=OPTIONS, clock=time,
    )  # fmt: skip
    elections = Elections(
        node_id=node_id, majority=majority, options=OPTIONS, clock=time, rng=random.Random(5),
        idle=idle,
    )  # fmt: skip
    return elections, time, MemoryLog()


def test_timeouts_are_randomized_between_the_bounds() -> None:
    elections, time, _ = make()
    waits = set()
    for _ in range(100):
        elections.wait()
        waits.add(elections.deadline - time.now)
    assert len(waits) == 100
    assert all(1.0 <= wait <= 2.0 for wait in waits)


def test_2_13_a_new_group_grants_at_once() -> None:
    elections, _, log = make()
    assert elections.grants(1, 1, 0, tail=log, leads=False)


def test_hole_21_nobody_grants_while_a_leader_is_heard() -> None:
    elections, time, log = make()
    elections.heard_leader(3)
    time.now += 0.99
    assert not elections.grants(1, 1, 0, tail=log, leads=False)
    time.now += 0.02
    assert elections.grants(1, 1, 0, tail=log, leads=False)


def test_x20_the_leader_itself_is_granted_at_once() -> None:
    elections, _, log = make()
    elections.heard_leader(3)
    assert elections.grants(3, 1, 0, tail=log, leads=False)


def test_a_leader_with_a_quorum_does_not_grant() -> None:
    elections, _, log = make()
    assert not elections.grants(1, 1, 0, tail=log, leads=True)


def test_a_log_behind_is_not_granted() -> None:
    elections, _, log = make()
    log.append(2, 1, b"\x00")
    assert not elections.grants(1, 1, 0, tail=log, leads=False)
    assert elections.grants(1, 2, 1, tail=log, leads=False)


@pytest.mark.parametrize(("asker", "granted"), [(1, False), (3, True)])
def test_the_larger_id_of_two_simultaneous_candidates_gets_the_vote(
    asker: int, granted: bool
) -> None:
    elections, time, log = make()
    elections.begin()
    assert elections.grants(asker, 1, 0, tail=log, leads=False) is granted
    time.now += 0.3  # a candidate that still asks after that is not a rival any more
    assert elections.grants(asker, 1, 0, tail=log, leads=False)


def test_a_voter_leaves_the_candidate_time_to_be_elected() -> None:
    elections, time, log = make()
    elections.ask_now()
    assert elections.grants(1, 1, 0, tail=log, leads=False)
    assert elections.deadline == time.now + OPTIONS.heartbeat_s


def test_a_majority_of_grants_wins_once() -> None:
    elections, _, _ = make(majority=3)
    assert not elections.begin()
    assert not elections.granted(1, 1)
    assert not elections.granted(1, 1), "one voter twice is one vote (hole 16)"
    assert elections.granted(3, 1)
    assert not elections.granted(4, 1), "the round is over"


def test_a_grant_of_an_earlier_round_does_not_count() -> None:
    elections, _, _ = make()
    elections.begin()
    elections.begin()
    assert not elections.granted(1, 1)
    assert elections.granted(1, 2)


def test_hearing_a_leader_ends_the_round() -> None:
    elections, _, _ = make()
    elections.begin()
    elections.heard_leader(1)
    assert not elections.granted(3, 1)


def test_a_member_alone_needs_nobody() -> None:
    assert make(majority=1)[0].begin()
