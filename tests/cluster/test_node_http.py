"""HTTP on a real node: health, readiness, metrics, status; and a loop that is not blocked."""

import asyncio
import json
import re
import statistics
import time
import urllib.error
import urllib.request
from importlib.metadata import version
from pathlib import Path

import pytest
from live_nodes import LiveNode, live
from loose_operations import LOOSE, STREAM, loosened
from prometheus_client.parser import text_string_to_metric_families

import lognode
from lognode.client.protocol.errors import LognodeError
from lognode.client.protocol.levels import LEVEL_MAX
from lognode.client.protocol.reads import SCAN

pytestmark = pytest.mark.cluster

LABELS = {
    "op",
    "result",
    "role",
    "reason",
    "state",
    "le",
    "level",
    "what",
    "cache",
    "version",
    "python",
    "commit",
    "route",
    "status",
}
"""All that a metric may be divided by; never a key, a log or an address."""


async def get(node: LiveNode, path: str) -> tuple[int, str, str]:
    """Status, content type, body."""

    def ask() -> tuple[int, str, str]:
        try:
            with urllib.request.urlopen(f"http://{node.config.http}{path}", timeout=5) as answer:
                return answer.status, answer.headers["Content-Type"], answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.headers["Content-Type"], error.read().decode()

    return await asyncio.to_thread(ask)


def test_healthz_readyz_and_what_does_not_exist(tmp_path: Path) -> None:
    async def run() -> None:
        async with live(tmp_path) as cluster:
            (node,) = cluster.nodes
            assert (await get(node, "/healthz"))[::2] == (200, "ok\n")
            assert (await get(node, "/readyz"))[::2] == (200, "ok\n")
            assert (await get(node, "/nothing"))[0] == 404
            node.node._membership.registered = False
            status, _, body = await get(node, "/readyz")
            assert (status, body) == (503, "the node is not registered with the controller yet\n")
            assert (await get(node, "/healthz"))[0] == 200

    asyncio.run(run())


def test_readyz_tells_of_a_node_that_has_lost_the_controller(tmp_path: Path) -> None:
    async def run() -> None:
        async with live(tmp_path, 2) as cluster:
            await cluster.settled()
            first, second = cluster.nodes
            await first.stop()
            for _ in range(1000):
                status, _, body = await get(second, "/readyz")
                if status == 503:
                    break
                await asyncio.sleep(0.02)
            assert status == 503
            assert re.fullmatch(r"the controller has not answered for \d+ s\n", body)

    asyncio.run(run())


def test_metrics_are_prometheus_text_with_bounded_labels(tmp_path: Path) -> None:
    async def run() -> None:
        async with live(tmp_path) as cluster, lognode.AsyncClient(cluster.address) as client:
            (node,) = cluster.nodes
            log = await client.create_log("orders", ranges=2)
            await log.append_many([(b"key-%d" % n, b"v") for n in range(50)])
            connection = await node.client()
            for operation in (LOOSE, STREAM, loosened(SCAN)):
                deadline = asyncio.get_running_loop().time() + 5
                with pytest.raises(LognodeError):
                    await connection.request(operation, {}, deadline=deadline)
            connection.close()
            await asyncio.sleep(0.3)
            status, kind, text = await get(node, "/metrics")
            assert status == 200
            assert kind.startswith("text/plain; version=0.0.4")
            families = {family.name: family for family in text_string_to_metric_families(text)}
            samples = {
                (sample.name, *sorted(sample.labels.items())): sample.value
                for family in families.values()
                for sample in family.samples
            }
            assert {name for _, *labels in samples for name, _ in labels} <= LABELS
            assert len(samples) < 400
            assert "key-" not in text
            assert "no such" not in text
            assert "xxx" not in text
            assert samples["lognode_appended_records_total",] == 50
            assert samples["lognode_wal_round_seconds_count",] > 3
            assert samples["lognode_append_seconds_count",] >= 1
            assert samples["lognode_replicas", ("role", "leader")] == 3
            assert samples["lognode_memtable_bytes",] > 0
            assert samples["lognode_cached_bytes", ("cache", "log")] > 0
            assert samples["lognode_cached_bytes", ("cache", "blocks")] >= 0
            assert samples["lognode_cached_bytes", ("cache", "columns")] >= 0
            assert samples["lognode_cached_bytes", ("cache", "copies")] == 0
            assert samples["lognode_damaged_replicas",] == 0
            assert samples["lognode_requests_total", ("op", "append"), ("result", "OK")] >= 1
            assert (
                samples["lognode_requests_total", ("op", "scan"), ("result", "INVALID_ARGUMENT")]
                == 1
            )
            assert "lognode_event_loop_lag_seconds" in families
            assert "lognode_event_loop_turn_cpu_seconds" in families

    asyncio.run(run())


def test_the_loop_is_not_blocked_while_entries_are_applied(tmp_path: Path) -> None:
    """Applying is sliced: what waits on the loop is not held up by a large batch for long.

    A busy machine holds up everything; so the test compares the pump's own turns, in CPU time,
    with what as many new keys cost a loop in plain Python right after each: how fast a processor is
    changes from second to second where others share it.
    """

    def plainly() -> float:
        began = time.thread_time()
        assert len({b"k%d" % n: [n] for n in range(10_000)}) == 10_000
        return time.thread_time() - began

    async def run() -> None:
        async with live(tmp_path) as cluster, lognode.AsyncClient(cluster.address) as client:
            log = await client.create_log("orders")
            await log.append(b"k", b"v")
            (replica,) = cluster.nodes[0].host.ranges()
            turns: list[float] = []
            inner = replica._apply_slice

            def timed() -> None:
                began, applied = time.thread_time(), replica.applied_index
                inner()
                took = time.thread_time() - began
                if replica.applied_index > applied:
                    turns.append(took / plainly())

            replica._apply_slice = timed
            for _ in range(8):
                await log.append_many([(b"k%d" % n, bytes(100)) for n in range(20_000)])
            assert len(turns) >= 8  # no turn has many of these 16 batches of 10,000
            assert statistics.median(turns) < 1.8, turns

    asyncio.run(run())


def test_status_json_is_the_status_that_clients_get(tmp_path: Path) -> None:
    async def run() -> None:
        async with live(tmp_path) as cluster, lognode.AsyncClient(cluster.address) as client:
            (node,) = cluster.nodes
            await (await client.create_log("orders", split_at=[b"m"])).append(b"a", b"v")
            status, kind, text = await get(node, "/status.json")
            assert status == 200
            assert kind.startswith("application/json")
            found = json.loads(text)
            assert found.keys() == (await client.status()).keys()
            assert found["cluster"]["id"] == node.node.identity.cluster_id
            assert found["cluster"]["insecure"] is False
            assert found["cluster"]["feature_level"] == LEVEL_MAX
            assert found["cluster"]["can_finalize"] is None
            assert found["nodes"] == [
                {"id": 1, "address": node.config.listen, "peer": node.config.peer_listened,
                 "http": node.config.http, "zone": "",
                 "state": "ACTIVE", "replicas": 3, "alive": True, "disk_short": False,
                 "insecure": False, "version": version("lognode"), "levels": [1, LEVEL_MAX]}
            ]  # fmt: skip
            assert [range_["id"] for range_ in found["ranges"]] == [0, 1, 2]
            assert {"id", "log", "start", "end", "generation", "members", "leader", "state"} <= (
                found["ranges"][1].keys()
            )
            assert found["ranges"][1]["end"] == found["ranges"][2]["start"] == "m"
            assert found["damaged"] == []
            told = found["descriptors"]
            assert 0 < told["open"] < told["max"]
            assert 1 <= told["clients"] <= told["clients_max"]
            assert 1 <= told["http"] <= told["http_max"]

    asyncio.run(run())
