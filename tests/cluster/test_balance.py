"""Replicas spread by themselves: a node that joins gets its share, under load."""

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from cluster_history import check, read_all
from cluster_load import Load, Size

import lognode
from lognode import testing

pytestmark = [pytest.mark.cluster, pytest.mark.by_hand]

PAUSE_S = 3.0
SPREAD_S = 90.0
"""The controller listens for ten seconds first, then two replicas move at a time."""


def ranges_of(client: lognode.Client, log: str) -> list[dict[str, Any]]:
    return [range_ for range_ in client.status()["ranges"] if range_["log"] == log]


def replicas(client: lognode.Client) -> "Counter[int]":
    """Per node, once nothing is under way."""
    status = client.status()
    if status["operations"]:
        return Counter()
    ranges = [range_ for range_ in status["ranges"] if range_["id"]]
    return Counter(node for range_ in ranges for node in range_["members"])


def test_S2_L1_a_node_that_joins_gets_its_share_of_replicas_under_load(tmp_path: Path) -> None:
    with (
        testing.cluster(tmp_path, 3) as cluster,
        lognode.Client(cluster.servers, timeout=30) as client,
    ):
        testing.wait_healthy(cluster)
        client.create_log("load", ranges=8)
        testing.wait_healthy(cluster)
        assert replicas(client) == dict.fromkeys((1, 2, 3), 8)
        seed = random.SystemRandom().randrange(1 << 32)
        with Load(cluster.servers, "load", seed, Size(value_bytes=200)) as load:
            load.go_on(100)
            joins = cluster.add()
            joins.start()
            joins.wait_ready()

            def spread() -> bool:
                found = replicas(client)
                return max(found.values(), default=9) - found[4] <= 2

            testing.eventually(spread, timeout_s=SPREAD_S, what="node 4 has its share")
            testing.eventually(
                lambda: any(range_["leader"] == 4 for range_ in ranges_of(client, "load")),
                what="it leads one, too",
            )
            load.go_on(100)
        testing.wait_healthy(cluster)
        assert load.slowest_s() < PAUSE_S
        found = replicas(client)
        assert (sum(found.values()), found[4] >= 5) == (24, True), found
        ranges = ranges_of(client, "load")
        for range_ in ranges:
            last = range_["last_operation"]
            if 4 in range_["members"]:
                assert (last["kind"], last["outcome"]) == ("move", "DONE")
                assert "replicas, node 4 has" in last["reason"]
            else:
                assert (last, range_["generation"]) == (None, 1)
        entries = read_all(cluster.servers, "load")
        check(entries, load.told)
        log = client.log("load")
        for key, told in entries.items():
            (members,) = (
                r["members"] for r in ranges if r["start"] <= key < (r["end"] or key + b"x")
            )
            for node in members:
                assert list(log.scan(key, node=node)) == told, f"node {node} differs at {key!r}"
