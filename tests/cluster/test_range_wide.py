"""`range list --wide` on real processes: sizes, rates and reasons, whichever node is asked."""

import asyncio
import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from live_nodes import live, until
from metrics_page import metric

import lognode
from lognode import testing
from lognode.node.main import main

pytestmark = pytest.mark.cluster

SIZES = ("segment_bytes", "memtable_bytes", "entries_held")
RATES = ("records_per_s", "bytes_per_s", "reads_per_s")


@pytest.fixture
def listed(capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs `lognode range list orders --wide` at one node; what it prints."""

    def call(node: testing.LocalNode, format_: str = "json") -> Any:
        arguments = ["range", "list", "orders", "--wide", "--server", node.address]
        assert main([*arguments, "--format", format_]) == 0
        out = capsys.readouterr().out
        return json.loads(out) if format_ == "json" else out.splitlines()

    return call


@pytest.mark.by_hand
def test_every_node_tells_what_is_appended_to_which_range_and_why_it_was_changed(
    tmp_path: Path, listed: Any
) -> None:
    with (
        testing.cluster(tmp_path, 3) as cluster,
        lognode.Client(cluster.servers, timeout=30) as client,
    ):
        testing.wait_healthy(cluster)
        log = client.create_log("orders", split_at=["m"])
        testing.wait_healthy(cluster)
        log.append(b"a", bytes(1_000))
        testing.eventually(
            lambda: all(row["records_per_s"] is not None for row in listed(cluster.nodes[0])),
            what="the leaders have rates",
        )
        began, count = time.monotonic(), 1
        while time.monotonic() < began + 1.0:
            log.append(b"a%d" % count, bytes(1_000))
            count += 1
            assert log.count(b"a") == 1
        for node in cluster.nodes:
            busy, quiet = listed(node)
            seconds = time.monotonic() - began
            assert (busy["end"], quiet["start"]) == ("m", "m")
            assert busy["entries_held"] == count
            assert busy["segment_bytes"] + busy["memtable_bytes"] > 0
            assert 0 < busy["records_per_s"] <= count / 1.0
            assert busy["records_per_s"] * (seconds + 80) > count - 1
            assert busy["bytes_per_s"] > busy["records_per_s"]
            assert busy["reads_per_s"] > 0
            assert [quiet[name] for name in ("segment_bytes", "entries_held", *RATES)] == [0] * 5
            assert busy["last_operation"] is quiet["last_operation"] is None
            assert busy["running_operation"] is None
            first, second = (line.split("\t") for line in listed(node, "table"))
            assert (first[9], second[9], second[-1]) == (str(count), "0", "-")
            assert second[-3:-1] == ["0.0/s 0 B/s", "0.0/s"]
        assert sum(metric(n, "lognode_appended_bytes_total") for n in cluster.nodes) > 0
        assert sum(metric(n, "lognode_reads_total") for n in cluster.nodes) == count - 1
        assert {metric(node, "lognode_operations") for node in cluster.nodes} == {0}

        leaders = {row["leader"] for row in client.status()["ranges"]}
        victim = cluster.nodes[min({1, 2, 3} - leaders, default=3) - 1]
        victim.kill()
        shutil.rmtree(victim.data / "wal")
        restarted_ms = time.time_ns() // 1_000_000
        victim.start()
        victim.wait_ready()
        for node in cluster.nodes:

            def repaired(node: testing.LocalNode = node) -> Any:
                rows = listed(node)
                return all(row["last_operation"] for row in rows) and rows

            for row in testing.eventually(repaired, what="the ranges are repaired", timeout_s=60):
                last = row["last_operation"]
                assert (last["kind"], last["outcome"]) == ("repair", "DONE")
                assert last["reason"].startswith(f"the replica of node {victim.number}: ")
                assert restarted_ms <= last["ended_at_ms"] <= time.time_ns() // 1_000_000
            told = [line.split("\t")[-1] for line in listed(node, "table")]
            words = f"s ago: the replica of node {victim.number}: "
            assert all(text.startswith("repair DONE ") and words in text for text in told)
        testing.wait_healthy(cluster)
        before = [row["last_operation"] for row in listed(victim)]
        for node in cluster.nodes:
            node.kill()
        for node in cluster.nodes:
            node.start()
        testing.wait_healthy(cluster)
        assert [row["last_operation"] for row in listed(victim)] == before
        (controller,) = [row for row in victim.status()["ranges"] if row["id"] == 0]
        assert controller["last_operation"]["kind"] == "repair"


def test_the_ranges_of_a_leader_that_does_not_answer_are_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        async with live(tmp_path, 3) as cluster:
            await cluster.healthy(3)
            async with lognode.AsyncClient(cluster.address) as client:
                log = await client.create_log("orders")
                await log.append(b"a", b"v")
                await cluster.healthy(3)
            leader = await cluster.leader()
            node_id = leader.node.identity.node_id
            other = next(each for each in cluster.nodes if each is not leader)
            await until(
                lambda: other.node._view.leader(1, 1) == node_id,
                "the leader is known",
            )

            async def row() -> Any:
                return (await other.node._status.whole())["ranges"][1]

            assert (await row())["entries_held"] == 1

            async def forever(*_: Any) -> Any:
                await asyncio.Event().wait()

            monkeypatch.setattr(leader.node._loads, "here", forever)
            began = time.monotonic()
            told = await row()
            assert time.monotonic() - began < 5.0
            assert told["leader"] == node_id
            assert [told[name] for name in (*SIZES, *RATES)] == [None] * 6

    asyncio.run(run())


def test_entries_replayed_by_a_start_are_nobodys_appends(tmp_path: Path) -> None:
    async def run() -> None:
        async with live(tmp_path) as cluster:
            (node,) = cluster.nodes
            async with lognode.AsyncClient(cluster.address) as client:
                log = await client.create_log("orders")
                await log.append_many([(b"k%d" % n, b"v") for n in range(500)])
            await node.stop_now()
            await node.start()
            await until(
                lambda: any(r.state.next_seq == 501 and r.leads for r in node.host.ranges()),
                "all is applied again",
            )
            (replica,) = node.host.ranges()
            await until(lambda: replica.load.rates(time.monotonic()) is not None, "there are rates")
            assert replica.load.rates(time.monotonic()) == (0.0, 0.0, 0.0)
            registry = node.node._metrics.registry
            assert registry.get_sample_value("lognode_appended_bytes_total") == 0

    asyncio.run(run())


def test_x8_the_children_of_a_split_count_their_part_of_the_files_that_they_share(
    tmp_path: Path, listed: Any
) -> None:
    with (
        testing.cluster(tmp_path, 1) as cluster,
        lognode.Client(cluster.servers, timeout=30) as client,
    ):
        testing.wait_healthy(cluster)
        (node,) = cluster.nodes
        log = client.create_log("orders")
        for at in range(300):
            log.append(b"a%03d" % at, os.urandom(1_000))
            log.append(b"x%03d" % at, os.urandom(4_000))
        client.admin.split("orders", at=b"m")
        testing.wait_healthy(cluster)

        def told() -> bool:
            return all(row["entries_held"] is not None for row in listed(node))

        for _ in range(2):
            testing.eventually(told, what="the shares are known")
            lower, upper = listed(node)
            assert (lower["entries_held"], upper["entries_held"]) == (300, 300)
            whole = metric(node, "lognode_segment_bytes")
            files = [file.stat().st_size for file in (node.data / "files").iterdir()]
            assert whole == sum(files)
            assert 0.9 * whole < lower["segment_bytes"] + upper["segment_bytes"] <= whole
            assert 0.15 < lower["segment_bytes"] / whole < 0.25
            node.stop()
            node.start()
            node.wait_ready()
            testing.wait_healthy(cluster)
