"""Quotas, fairness and usage on real nodes: refusals are told per request, and others go on.

An abuser comes from 127.0.0.2, so that it is another principal than the client beside it.
"""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lognode
from lognode import testing
from lognode.client.connection import dial
from lognode.client.errors import NotFound, Overloaded
from lognode.client.protocol.cluster import METADATA

pytestmark = pytest.mark.cluster

ABUSE = Path(__file__).parents[1] / "attacks" / "abuse.py"
LOG, KEY = "acme/shared", "k"
QUOTA = {
    "append_bytes": 1_000_000, "append_records": 2_000, "read_bytes": 2_000_000,
    "requests": 400, "cpu_ms": 150,
}  # fmt: skip
KINDS = {
    "bulk": ("--connections", "4", "--in-flight", "8"),
    "hot": ("--connections", "8", "--in-flight", "64"),
    "export": ("--connections", "4", "--in-flight", "8"),
    "status": ("--connections", "4", "--in-flight", "8"),
    "churn": ("--connections", "16"),
}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[testing.LocalCluster]:
    """One node with a key of 8 MiB and a log of 100 ranges."""
    with testing.cluster(tmp_path_factory.mktemp("quotas"), 1) as cluster:
        with lognode.Client(cluster.servers, timeout=60.0) as client:
            client.create_log(LOG, ranges=1)
            client.create_log("wide", ranges=100)
            value = bytes(range(256)) * 256
            client.log(LOG).append_many([(KEY, value)] * 128)
        yield cluster


@pytest.fixture
def client(shared: testing.LocalCluster) -> Iterator[lognode.Client]:
    """A client of a node without quotas, before the test and after it."""
    with lognode.Client(shared.servers, timeout=60.0) as client:
        yield client
        for quota in client.admin.quotas():
            client.admin.delete_quota(quota["name"])


def latencies(client: lognode.Client, count: int) -> list[float]:
    """How long appends took, one after the other, 50 a second at most; sorted."""
    took = []
    for _ in range(count):
        began = time.monotonic()
        client.log(LOG).append("neighbour", b"x" * 100)
        took.append(time.monotonic() - began)
        time.sleep(max(0.0, 0.02 - took[-1]))
    return sorted(took)


def abused(shared: testing.LocalCluster, client: lognode.Client, kind: str) -> float:
    """The slowest of 150 appends but two, while a principal abuses the node."""
    with subprocess.Popen(
        [sys.executable, str(ABUSE), "--address", shared.nodes[0].address, "--log", LOG, "--key",
         KEY, "--source", "127.0.0.2", "--kind", kind, "--seconds", "60", *KINDS[kind]],
        stdout=subprocess.PIPE, preexec_fn=lambda: os.nice(19),
    ) as abuser:  # fmt: skip
        try:
            began = _used(client, "127.0.0.2")
            if kind != "churn":
                testing.eventually(lambda: _used(client, "127.0.0.2") > began + 20)
            found = latencies(client, 150)[-3]
            assert abuser.poll() is None
            return found
        finally:
            abuser.kill()


def _latest(client: lognode.Client, count: int) -> None:
    for _ in range(count):
        client.log(LOG).latest(KEY, timeout=0.5)


def _used(client: lognode.Client, name: str) -> int:
    """Requests of a principal that were answered or refused."""
    rows = client.admin.usage()["principals"]
    return sum(row["requests"] + row["refused"] for row in rows if row["name"] == name)


@pytest.mark.parametrize("kind", KINDS)
def test_an_abuser_within_its_quota_does_not_slow_others(
    shared: testing.LocalCluster, client: lognode.Client, kind: str
) -> None:
    client.admin.set_quota("default", QUOTA)
    alone = latencies(client, 150)[-3]
    assert abused(shared, client, kind) < 3 * alone + 0.1


@pytest.mark.parametrize("kind", KINDS)
def test_an_abuser_without_quota_slows_others_by_a_bounded_factor(
    shared: testing.LocalCluster, client: lognode.Client, kind: str
) -> None:
    alone = latencies(client, 150)[-3]
    assert abused(shared, client, kind) < 10 * alone + 0.3


def test_a_refusal_names_the_quota_and_the_connection_goes_on(
    shared: testing.LocalCluster, client: lognode.Client
) -> None:
    host, port = shared.nodes[0].address.rsplit(":", 1)

    async def main() -> tuple[Overloaded, float]:
        connection = await dial(host, int(port))
        deadline = asyncio.get_running_loop().time() + 60.0
        try:
            for _ in range(10_000):
                try:
                    await connection.request(METADATA, {}, deadline=deadline)
                except Overloaded as refused:
                    began = time.monotonic()
                    await asyncio.sleep(refused.retry_after)
                    await connection.request(METADATA, {}, deadline=deadline)
                    return refused, time.monotonic() - began
        finally:
            connection.close()
        raise AssertionError("10,000 requests were not refused")

    client.admin.set_quota("default", {"requests": 50})
    refused, took = asyncio.run(main())
    assert refused.fields["quota"] == "requests"
    assert 0 < refused.fields["retry_after"] <= 1.0
    assert refused.outcome == "not_applied"
    assert took < 2.0


def test_the_sdk_waits_for_as_long_as_the_node_says(
    shared: testing.LocalCluster, client: lognode.Client
) -> None:
    client.admin.set_quota("acme/", {"append_records": 100})
    began = time.monotonic()
    acks = [client.log(LOG).append_many([(b"s%d" % at, b"v")] * 50)[-1] for at in range(10)]
    took = time.monotonic() - began
    assert len({ack.seq for ack in acks}) == 10
    assert 3.0 < took < 20.0  # 100 at once, then 400 at 100 a second, the last of them in debt


def test_a_tenant_has_one_quota_and_others_are_free(
    shared: testing.LocalCluster, client: lognode.Client
) -> None:
    client.admin.set_quota("acme/", {"requests": 1})
    client.create_log("free", ranges=1)
    client.log("free").append("k", b"v")
    with pytest.raises(lognode.LognodeError, match="tenant acme/ has used its quota"):
        _latest(client, 20)
    began = time.monotonic()
    for _ in range(20):
        client.log("free").append("k", b"v")
    assert time.monotonic() - began < 5.0


def test_usage_counts_what_was_applied_once(
    shared: testing.LocalCluster, client: lognode.Client
) -> None:
    client.create_log("exact/log", ranges=3)
    before = client.admin.usage()
    assert not [row for row in before["tenants"] if row["name"] == "exact/"]
    log = client.log("exact/log")
    log.append_many([(b"k%d" % at, b"x" * 100) for at in range(1_000)])
    assert len(list(log.scan(b"k5"))) == 1
    [row] = [row for row in client.admin.usage()["tenants"] if row["name"] == "exact/"]
    assert row["append_records"] == 1_000
    assert row["read_records"] == 1
    assert row["append_bytes"] > 0
    assert row["read_bytes"] > 100
    assert row["requests"] >= 2


def test_quotas_from_the_command_line_survive_a_restart(
    shared: testing.LocalCluster, client: lognode.Client
) -> None:
    def run(*words: str) -> Any:
        done = subprocess.run(
            [sys.executable, "-m", "lognode.node.main", *words, "--server", shared.servers,
             "--format", "json", "--yes"], capture_output=True, text=True, check=False,
        )  # fmt: skip
        return done.returncode, json.loads(done.stdout or "null"), done.stderr

    code, told, _ = run("quota", "set", "gold", "--append-bytes", "10MB/s", "--requests", "500/s")
    assert code == 0
    assert (told["append_bytes"], told["requests"], told["cpu_ms"]) == (10_000_000, 500, None)
    assert run("quota", "set", "gold")[0] == 2
    assert run("quota", "set", "a/b", "--requests", "1")[0] == 1
    run("quota", "set", "gold", "--requests", "none", "--read-bytes", "1MiB")
    shared.nodes[0].kill()
    shared.nodes[0].start()
    shared.nodes[0].wait_ready()
    code, rows, _ = run("quota", "list")
    assert (code, [row["name"] for row in rows]) == (0, ["gold"])
    assert (rows[0]["requests"], rows[0]["read_bytes"]) == (None, 1 << 20)
    assert run("quota", "delete", "gold")[0] == 0
    assert run("quota", "delete", "gold")[0] == 4
    code, rows, _ = run("usage", "--principals")
    assert code == 0
    assert [row["name"] for row in rows] == ["127.0.0.1"]
    with pytest.raises(NotFound):
        client.admin.delete_quota("gold")
