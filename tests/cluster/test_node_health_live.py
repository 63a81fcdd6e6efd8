"""`health` on real nodes: ok when all is as it should be, and a line for each thing that is not."""

import asyncio
from pathlib import Path

import pytest
from live_nodes import live

import lognode
from lognode import testing
from lognode.client.protocol.cluster import HEALTH

pytestmark = pytest.mark.cluster


def test_health_of_a_cluster_that_grows(tmp_path: Path) -> None:
    async def run() -> None:
        async with live(tmp_path, 1) as cluster, lognode.AsyncClient(cluster.address) as client:
            await client.create_log("orders")
            await cluster.settled()
            assert await client.health() == {"ok": True, "reasons": [], "next": None}
            health = await client.health(nodes=3)
            assert health["reasons"] == ["1 nodes are ACTIVE; the check wants 3"]
            assert not health["ok"]
            assert health["next"].startswith("start 2 more nodes with `lognode --join ")
            await cluster.join()
            await cluster.join()
            said: set[str] = set()
            for _ in range(3000):
                health = await client.health(nodes=3)
                assert health["ok"] == (not health["reasons"])
                if health["ok"]:
                    break
                said.update(health["reasons"])
                await asyncio.sleep(0.005)
            assert health["ok"]
            assert "the controller has 1 of 3 members" in said, said
            assert "range 1 of log orders has 1 of 3 members" in said
            assert any(line.startswith("operation 1 (expand) is ") for line in said), said
            for each in cluster.nodes:  # soon the same from whichever node is asked
                connection = await each.client()
                for _ in range(1000):
                    deadline = asyncio.get_running_loop().time() + 5
                    answer = await connection.request(HEALTH, {"nodes": 3}, deadline=deadline)
                    if answer["ok"]:
                        break
                    await asyncio.sleep(0.01)
                assert answer == {"ok": True, "reasons": [], "next": None}
                connection.close()

    asyncio.run(run())


def test_a_killed_node_is_named_at_once(tmp_path: Path) -> None:
    """Ten seconds passed before `health` said anything: until the controller called it dead."""
    with testing.cluster(tmp_path, 3) as cluster, lognode.Client(cluster.servers) as client:
        testing.wait_healthy(cluster)
        cluster.nodes[2].kill()
        # On a machine that is slow enough the controller has called it dead by then.
        testing.eventually(
            lambda: (
                {"this node cannot reach node 3", "node 3 is DEAD"}
                & set(client.health(nodes=3)["reasons"])
            ),
            what="health names it",
        )
        cluster.nodes[2].start()
        testing.wait_healthy(cluster)
