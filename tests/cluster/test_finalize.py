"""The feature level of a cluster is raised on real nodes, amid failures and joins."""

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lognode
from lognode import testing
from lognode.client.protocol.errors import Conflict, LognodeError
from lognode.client.protocol.levels import LEVEL_MAX
from lognode.testing import LocalCluster, LocalNode

pytestmark = pytest.mark.cluster


def cluster_row(node: LocalNode) -> dict[str, Any]:
    found: dict[str, Any] = node.status()["cluster"]
    return found


def all_at(cluster: LocalCluster, level: int) -> None:
    """Wait until each node and each replica is at the level."""

    def reached() -> bool:
        seen = [node.status() for node in cluster.nodes]
        return all(
            each["cluster"]["feature_level"] == level
            and all(replica["level"] == level for replica in each["replicas"])
            for each in seen
        )

    testing.eventually(reached, what=f"everything is at level {level}")


def finalized(client: lognode.Client) -> int:
    """Finalize as an operator would: again, while a refusal can pass."""
    levels: list[int] = []
    refusals: list[LognodeError] = []

    def done() -> bool:
        try:
            levels.append(client.admin.finalize()["level"])
        except LognodeError as error:
            refusals.append(error)
            return False
        return True

    testing.eventually(done, timeout_s=60, what="the level is raised")
    for refusal in refusals:
        passes = isinstance(refusal, Conflict) or refusal.retryable
        assert passes or refusal.outcome == "unknown", refusal
    return levels[-1]


@pytest.fixture
def cluster(tmp_path: Path) -> Any:
    with testing.cluster(tmp_path, nodes=3, flags=["--found-level", "1"]) as found:
        with lognode.Client(found.servers) as client:
            client.create_log("orders", split_at=[b"m"])
        testing.wait_healthy(found)
        yield found


def test_hierarchies_and_groups_are_refused_until_the_level_is_raised(
    cluster: LocalCluster,
) -> None:
    with lognode.Client(cluster.servers, timeout=20) as client:
        with pytest.raises(lognode.Unsupported, match="hierarchies need level 4"):
            client.create_log("shop", hierarchy="/")
        with pytest.raises(LognodeError, match="level 4"), client.log("orders").consume("g"):
            pass
        assert finalized(client) == LEVEL_MAX
        assert client.create_log("shop", hierarchy="/").describe()["hierarchy"] == b"/"
        client.log("orders").append(b"k", b"v")
        with client.log("orders").consume("g") as consumer:
            assert next(consumer).key == b"k"


@pytest.mark.by_hand
def test_a_node_that_is_down_keeps_the_level_until_it_is_back(cluster: LocalCluster) -> None:
    with lognode.Client(cluster.servers, timeout=20) as client:
        down = cluster.nodes[2]
        down.kill()
        testing.eventually(
            lambda: client.status()["nodes"][2]["state"] == "DEAD", what="node 3 is missed"
        )
        assert raises(client.admin.finalize, "node 3 is down")
        assert {cluster_row(node)["feature_level"] for node in cluster.nodes[:2]} == {1}
        down.start()
        down.wait_ready()
        assert finalized(client) == LEVEL_MAX
        all_at(cluster, LEVEL_MAX)
        for node in cluster.nodes:  # what was raised is kept, also by a node that was killed
            node.kill()
        for node in cluster.nodes:
            node.start()
        for node in cluster.nodes:
            node.wait_ready()
        all_at(cluster, LEVEL_MAX)
        assert raises(lambda: client.admin.finalize(1), "never lowered")
        client.create_log("later")
        client.admin.split("orders", at=b"c")
        all_at(cluster, LEVEL_MAX)
        metrics = cluster.nodes[0].fetch("/metrics", timeout_s=5).read()
        assert b"\nlognode_feature_level %d.0\n" % LEVEL_MAX in metrics
        assert b"\nlognode_feature_level_max %d.0\n" % LEVEL_MAX in metrics


def raises(call: Callable[[], object], text: str) -> bool:
    try:
        call()
    except Conflict as error:
        return text in error.message
    return False


@pytest.mark.by_hand
def test_the_controllers_leader_is_killed_while_it_finalizes(cluster: LocalCluster) -> None:
    with lognode.Client(cluster.servers, timeout=20) as client:
        leader = cluster.nodes[cluster_row(cluster.nodes[0])["controller_leader"] - 1]
        asked = threading.Thread(target=lambda: raises(client.admin.finalize, ""))
        asked.start()
        leader.kill()
        asked.join()
        leader.start()
        leader.wait_ready()
        assert finalized(client) == LEVEL_MAX
        all_at(cluster, LEVEL_MAX)


@pytest.mark.by_hand
def test_a_node_joins_while_the_level_is_raised(cluster: LocalCluster) -> None:
    with lognode.Client(cluster.servers, timeout=20) as client:
        joining = cluster.add()
        joining.start()
        assert finalized(client) == LEVEL_MAX
        joining.wait_ready()
        testing.eventually(lambda: len(joining.status()["nodes"]) == 4, what="node 4 is in")
        all_at(cluster, LEVEL_MAX)
        rows = json.loads(joining.fetch("/status.json", timeout_s=5).read())["nodes"]
        assert [row["levels"] for row in rows] == [[1, LEVEL_MAX]] * 4
