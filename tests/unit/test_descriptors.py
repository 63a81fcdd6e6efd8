"""How the descriptors of a process are shared out, and what a start with too few is told."""

import re
import resource
import subprocess
import sys
from itertools import pairwise

import pytest

from lognode.client.protocol import limits
from lognode.client.protocol.errors import Unavailable
from lognode.node.listeners.doors import client_bounds, peer_bounds
from lognode.node.runtime import descriptors
from lognode.node.runtime.descriptors import LEAST, SLACK, plan

LIMITS = (LEAST, LEAST + 1, 512, 1_024, 4_096, 10_000, 65_536, 1 << 20)


@pytest.mark.parametrize("limit", LIMITS)
def test_the_shares_together_are_within_the_limit(limit: int) -> None:
    found = plan(limit, kafka=True)
    assert plan(limit).kafka == 0
    assert found.limit == limit
    assert sum(found[1:]) <= limit
    assert all(share > 0 for share in found)


@pytest.mark.parametrize("limit", LIMITS)
def test_the_listeners_take_no_more_than_their_shares(limit: int) -> None:
    found = plan(limit)
    clients = client_bounds(found, 600.0)
    assert clients.connections == found.clients <= limits.connections_max
    assert clients.handshakes == found.handshakes
    peers = peer_bounds(found)
    links = found.nodes - 1 + 8  # and what files are fetched over
    assert peers.connections + peers.handshakes + SLACK + links <= found.peers
    # Each node of the largest cluster gets all its connections, and strangers get theirs.
    known = limits.peer_connections_max * (found.nodes - 1)
    assert peers.connections >= known + limits.stranger_connections_max


def test_a_higher_limit_gives_nobody_less() -> None:
    plans = [plan(limit) for limit in range(LEAST, 20_000, 37)]
    for less, more in pairwise(plans):
        assert all(a <= b for a, b in zip(less, more, strict=True))
        assert less.nodes <= more.nodes


def test_enough_descriptors_are_enough_for_all_clients_and_a_large_cluster() -> None:
    assert plan(8_192).clients == limits.connections_max
    assert plan(16_384).nodes == limits.nodes_max
    assert plan(1_024).clients >= 400
    assert plan(LEAST).nodes >= 5


@pytest.mark.parametrize("limit", [0, 64, LEAST - 1])
def test_too_few_are_refused_with_the_numbers_and_what_to_do(limit: int) -> None:
    with pytest.raises(Unavailable) as caught:
        plan(limit)
    said = caught.value.message
    assert f"may open {limit} files; a node needs at least {LEAST}" in said
    assert "`ulimit -n`" in said
    assert "LimitNOFILE=" in said


@pytest.mark.parametrize("nodes", [6, 100, 1_000])
def test_a_cluster_that_is_too_large_for_the_limit_is_told_which_one_it_needs(nodes: int) -> None:
    small = plan(LEAST)
    small.check_nodes(small.nodes)
    with pytest.raises(Unavailable) as caught:
        small.check_nodes(nodes)
    told = re.search(rf"this cluster has {nodes} nodes and needs (\d+)", caught.value.message)
    assert told is not None
    needed = int(told[1])
    plan(needed).check_nodes(nodes)
    with pytest.raises(Unavailable):
        plan(needed - 1).check_nodes(nodes)


def test_the_soft_limit_is_raised_to_the_hard_one() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    wanted = min(hard, 700) if hard != resource.RLIM_INFINITY else 700
    program = (
        "import resource; from lognode.node.runtime import descriptors\n"
        f"resource.setrlimit(resource.RLIMIT_NOFILE, (100, {wanted}))\n"
        "print(descriptors.raise_limit(), *resource.getrlimit(resource.RLIMIT_NOFILE))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                          check=True)  # fmt: skip
    assert done.stdout.split() == [str(wanted)] * 3


def test_the_open_ones_are_counted() -> None:
    before = descriptors.open_now()
    assert before is not None
    with open("/dev/null", "rb"):
        assert descriptors.open_now() == before + 1
