"""Groups over an in-memory network: elections, replication, failures, convergence."""

import random
from itertools import pairwise

import pytest
from raft_net import MemoryLog, Net
from raft_wal import WalLog

from lognode.raft.types import NotLeaderError


def test_a_group_elects_a_leader_and_commits() -> None:
    net = Net(3)
    net.start()
    net.run(lambda: net.leader() is not None)
    leader = net.leader()
    assert leader is not None
    net.propose(leader, "a", "b", "c")
    net.run(net.settled())
    assert all(net.applied(i) == ["a", "b", "c"] for i in net.ids)


def test_a_group_of_one_commits_after_its_own_sync() -> None:
    net = Net(1)
    net.members[1].slow_disk = True
    net.start()
    net.run(0.001)
    group = net.group(1)
    assert group.role == "leader"
    assert not group.ready_to_lead
    net.propose(1, "a")
    net.run(1.0)
    assert net.applied(1) == []
    net.members[1].slow_disk = False
    net.run(net.settled())
    assert net.applied(1) == ["a"]


def test_a_group_of_one_commits_under_a_stream_of_proposals() -> None:
    """There is always an entry that is not durable yet: what is durable commits all the same."""
    net = Net(1)
    net.elect()
    net.members[1].slow_disk = True
    for number in range(10):
        log, group = net.log(1), net.group(1)
        net.propose(1, f"{number}")
        collected = log.collect()
        net.propose(1, f"{number}+")
        log.complete(collected)
        group.synced()
        net.pump()
        assert net.applied(1)[-1] == f"{number}"


def test_only_the_leader_takes_proposals() -> None:
    net = Net(3)
    net.elect(1)
    with pytest.raises(NotLeaderError):
        net.group(2).propose(b"\x00x")


def test_l1_a_lost_leader_is_replaced_within_three_seconds() -> None:
    for seed in range(20):
        net = Net(3, seed=seed)
        net.elect(1)
        net.isolate(1, noticed=bool(seed % 2))
        lost_at = net.now
        net.run(lambda net=net: any(net.group(i).ready_to_lead for i in (2, 3)))
        assert net.now - lost_at < 3.0, f"seed {seed}"


def test_a_divergent_tail_with_a_backlog_is_replaced() -> None:
    """Row 4: the old leader's uncommitted tail is longer than the new leader's log."""
    net = Net(3)
    net.elect(1)
    net.isolate(1)
    net.propose(1, *(f"phantom{n}" for n in range(50)))
    net.run(lambda: net.group(2).ready_to_lead or net.group(3).ready_to_lead)
    leader = net.leader()
    assert leader in (2, 3)
    net.propose(leader, *(f"real{n}" for n in range(10)))
    net.run(1.0)
    net.heal()
    net.run(net.settled())
    assert net.applied(1) == [f"real{n}" for n in range(10)]


def test_a_follower_that_was_down_catches_up() -> None:
    net = Net(3)
    net.elect(1)
    net.crash(3)
    net.propose(1, *(f"{n}" for n in range(500)))
    net.run(net.settled([1, 2]))
    net.restart(3)
    net.run(net.settled())
    assert net.applied(3) == net.applied(1)


def test_reads_wait_for_a_majority_and_fail_with_the_lead() -> None:
    net = Net(3)
    group = net.elect(1)
    net.propose(1, "a")
    net.run(net.settled())
    ticket = group.request_read()
    net.pump()
    assert ticket not in net.members[1].reads
    net.run(lambda: ticket in net.members[1].reads)
    assert net.members[1].reads[ticket] == group.commit_index
    net.isolate(1)
    late = group.request_read()
    net.run(lambda: late in net.members[1].reads)
    assert net.members[1].reads[late] is None
    assert group.role != "leader"


@pytest.mark.slow
@pytest.mark.parametrize("real_log", [False, True])
def test_l2_random_faults_keep_every_applied_prefix_equal(real_log: bool) -> None:
    """Crashes, one-way cuts and lost messages; then all heal and everyone converges."""
    for seed in range(5 if real_log else 12):
        rng = random.Random(seed)

        def new_log(node_id: int, seed: int = seed) -> MemoryLog | WalLog:
            return WalLog(random.Random(f"{seed}/{node_id}")) if real_log else MemoryLog()

        net = Net(3 if seed % 3 else 5, seed=seed, new_log=new_log)
        loss = rng.choice([0.0, 0.02, 0.1])
        net.lost = lambda *_, rng=rng, loss=loss: rng.random() < loss
        net.start()
        proposed = 0
        for _step in range(60):
            net.run(rng.uniform(0.01, 0.6))
            fault = rng.random()
            node_id = rng.choice(net.ids)
            if fault < 0.1 and sum(m.down for m in net.members.values()) == 0:
                net.crash(node_id)
            elif fault < 0.25:
                for member in net.members.values():
                    if member.down:
                        net.restart(member.node_id)
            elif fault < 0.4:
                net.cut(node_id, rng.choice([i for i in net.ids if i != node_id]), noticed=False)
            elif fault < 0.5:
                net.heal()
            leader = net.leader()
            if leader is not None:
                net.propose(leader, *(f"{proposed + n}" for n in range(5)))
                proposed += 5
            _check_prefixes(net, seed)
        net.lost = lambda *_: False
        for node_id in net.ids:
            if net.members[node_id].down:
                net.restart(node_id)
        net.heal()
        net.run(net.settled())
        _check_prefixes(net, seed)


def _check_prefixes(net: Net, seed: int) -> None:
    logs = sorted((m.applied for m in net.members.values()), key=len)
    for shorter, longer in pairwise(logs):
        assert shorter == longer[: len(shorter)], f"seed {seed}"
