"""Leads spread by themselves: over the ranges that a log was split into, and to who comes back."""

import random
from collections import Counter
from pathlib import Path

import pytest
from cluster_history import check, same_on
from cluster_load import Load, Size

import lognode
from lognode import testing

pytestmark = [pytest.mark.cluster, pytest.mark.by_hand]

PAUSE_S = 3.0
SPREAD_S = 60.0
"""The controller listens for ten seconds first; then each node hands over one lead a second."""
KEYS = (b"e", b"o", b"own", b"own-1", b"p", b"register", b"register-1", b"s", b"shared",
        b"shared-1", b"shared-2")  # fmt: skip


def leads(client: lognode.Client) -> "Counter[int]":
    """Per node; 0: of how many ranges no leader is known."""
    ranges = [range_ for range_ in client.status()["ranges"] if range_["log"]]
    return Counter(range_["leader"] or 0 for range_ in ranges)


def test_S2_S8_L1_a_log_that_was_split_is_led_by_all_nodes_under_load(tmp_path: Path) -> None:
    """And a node that was down, and leads nothing when it is back, gets its share again."""
    with (
        testing.cluster(tmp_path, 3) as cluster,
        lognode.Client(cluster.servers, timeout=30) as client,
    ):
        testing.wait_healthy(cluster)
        client.create_log("load")
        testing.wait_healthy(cluster)

        def spread() -> bool:
            found = leads(client)
            return sorted(found) == [1, 2, 3] and set(found.values()) <= {3, 4, 5}

        seed = random.SystemRandom().randrange(1 << 32)
        with Load(cluster.servers, "load", seed, Size(value_bytes=200)) as load:
            load.go_on(50)
            for key in KEYS:
                client.admin.split("load", at=key)
            testing.eventually(spread, timeout_s=SPREAD_S, what="each leads three to five")
            load.go_on(50)
            back = cluster.nodes[client.status()["cluster"]["controller_leader"] % 3]
            back.kill()
            testing.eventually(
                lambda: set(leads(client)) == {1, 2, 3} - {back.number}, what="others lead"
            )
            back.start()
            back.wait_ready()
            testing.eventually(spread, timeout_s=SPREAD_S, what="each leads three to five again")
            load.go_on(50)
        assert load.slowest_s() < PAUSE_S
        testing.wait_healthy(cluster)
        check(same_on(cluster.servers, "load", (1, 2, 3)), load.told)
