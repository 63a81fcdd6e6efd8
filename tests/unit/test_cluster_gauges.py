"""The gauges of nodes and of ranges without a leader."""

import asyncio
from types import SimpleNamespace
from typing import Any

from lognode.node.metrics import Metrics
from lognode.node.upkeep.cluster_gauges import ClusterGauges
from lognode.partitions.metadata import Metadata


def cluster() -> Metadata:
    """Three nodes, the second of them DEAD, and a log of three ranges."""
    found = Metadata()
    commands: list[dict[str, Any]] = [
        {"op": "found", "cluster": "c", "node": 1},
        *(
            {"op": "register", "incarnation": node, "boot": 1, "node": None, "zone": "",
             "address": f"h{node}:1", "http": ""}
            for node in (1, 2, 3)
        ),
        {"op": "create_log", "name": "orders", "ranges": 3, "replicas": 3},
        {"op": "node_state", "node": 2, "state": "DEAD"},
    ]  # fmt: skip
    for index, command in enumerate(commands, 2):
        assert "ok" in found.apply(index, 1, command)
    return found


def page(metadata: Metadata, led: set[int]) -> list[str]:
    view: Any = SimpleNamespace(
        metadata=metadata, elected=lambda range_id, _: 1 if range_id in led else None
    )
    metrics = Metrics()
    asyncio.run(ClusterGauges(view=view, metrics=metrics).look())
    return metrics.exposition().decode().splitlines()


def test_nodes_are_counted_by_state() -> None:
    lines = page(cluster(), {0, 1, 2, 3})
    assert 'lognode_nodes{state="active"} 2.0' in lines
    assert 'lognode_nodes{state="dead"} 1.0' in lines
    assert 'lognode_nodes{state="removed"} 0.0' in lines


def test_ranges_and_the_controller_without_a_leader_are_counted() -> None:
    for led, leaderless in (({0, 1, 2, 3}, 0), ({0, 1}, 2), (set(), 4)):
        assert f"lognode_leaderless_ranges {leaderless}.0" in page(cluster(), led)
