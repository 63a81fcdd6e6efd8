"""Quotas, fairness and usage on real nodes: refusals are told per request, and others go on.

An abuser comes from an address of its own, so that it is another principal than the client beside
it. What a quota lets through is counted by the node, and compared with what its token bucket can
have held: exactly, by the clock that node and test share.
"""

import asyncio
import itertools
import json
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
from lognode.client.protocol import limits
from lognode.client.protocol.cluster import METADATA
from lognode.client.protocol.errors import NotFound, Overloaded
from lognode.client.protocol.quotas import COUNTERS
from lognode.client.protocol.reads import SCAN

pytestmark = pytest.mark.cluster

ABUSE = Path(__file__).parents[1] / "attacks" / "abuse.py"
LOG, KEY = "acme/shared", "k"
QUOTA = {
    "append_bytes": 1_000_000, "append_records": 2_000, "read_bytes": 2_000_000,
    "requests": 400, "cpu_ms": 150,
}  # fmt: skip
_SOURCES = itertools.count(2)
KINDS = {
    "bulk": ("--connections", "4", "--in-flight", "8"),
    "hot": ("--connections", "8", "--in-flight", "64"),
    "export": ("--connections", "4", "--in-flight", "8"),
    "status": ("--connections", "4", "--in-flight", "8"),
    "churn": ("--connections", "16"),
}


@pytest.fixture(scope="module")
def shared(module_path: Path) -> Iterator[testing.LocalCluster]:
    """One node with a key of 8 MiB and a log of 100 ranges."""
    with testing.cluster(module_path, 1) as cluster:
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


class Abuse:
    """A principal that uses the node as hard as it can, from an address that nobody has used
    before: the node's counters of the principal begin at 0."""

    def __init__(self, shared: testing.LocalCluster, client: lognode.Client, kind: str) -> None:
        self.source = f"127.0.0.{next(_SOURCES)}"
        self._client = client
        self._words = [
            sys.executable, str(ABUSE), "--address", shared.nodes[0].address, "--log", LOG,
            "--key", KEY, "--source", self.source, "--kind", kind, "--seconds", "60", *KINDS[kind],
        ]  # fmt: skip

    def __enter__(self) -> "Abuse":
        self._process = subprocess.Popen(self._words, stdout=subprocess.DEVNULL)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    @property
    def runs(self) -> bool:
        """Whether the program goes on."""
        return self._process.poll() is None

    @property
    def used(self) -> dict[str, int]:
        """The node's counters of the principal."""
        return _used(self._client, self.source)

    def asked(self) -> int:
        """Requests that were answered or refused."""
        return self.used["requests"] + self.used["refused"]


def _used(client: lognode.Client, name: str) -> dict[str, int]:
    """The node's counters of a principal; zeros before its first request."""
    rows = client.admin.usage()["principals"]
    return next((row for row in rows if row["name"] == name), dict.fromkeys(COUNTERS, 0))


def appended(client: lognode.Client, abuse: Abuse, count: int) -> None:
    """Append beside the abuse; each append is acknowledged, and none is refused."""
    before = _used(client, "127.0.0.1")
    for _ in range(count):
        client.log(LOG).append("neighbour", b"x" * 100)
    after = _used(client, "127.0.0.1")
    assert after["append_records"] - before["append_records"] == count
    assert after["refused"] == before["refused"]
    assert abuse.runs


def _latest(client: lognode.Client, count: int) -> None:
    for _ in range(count):
        client.log(LOG).latest(KEY, timeout=0.5)


@pytest.mark.parametrize("kind", KINDS)
def test_a_quota_lets_through_what_it_allows_and_no_more(
    shared: testing.LocalCluster, client: lognode.Client, kind: str
) -> None:
    """Node and test read the same clock. A bucket is made full after `began`, and the counters are
    read before the end: what went through is at most a second's worth, what filled the bucket
    meanwhile, and what the last requests took that found something in the bucket."""
    began = time.monotonic()
    client.admin.set_quota("default", QUOTA)
    with Abuse(shared, client, kind) as abuse:
        if kind != "churn":
            testing.eventually(lambda: abuse.used["refused"] > 20)
        appended(client, abuse, 150)
        used = abuse.used
        seconds = time.monotonic() - began
    connections, in_flight = ([int(word) for word in KINDS[kind][1::2]] + [0])[:2]
    at_once = connections * in_flight
    last = {
        "requests": 1,
        "append_bytes": limits.values_bytes_max,  # of one request, charged before it is begun
        "append_records": at_once * limits.batch_records_max,
        "read_bytes": at_once * SCAN.answer_bytes({"bytes": limits.page_bytes_max}),
    }
    if kind == "hot":
        last["append_records"] = at_once  # one in each request
    for counter, more in last.items():
        assert used[counter] <= QUOTA[counter] * (1 + seconds) + more, counter
    if kind == "churn":
        assert (used["requests"], used["refused"]) == (0, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_without_a_quota_nobody_is_refused_and_others_are_served_beside_an_abuser(
    shared: testing.LocalCluster, client: lognode.Client, kind: str
) -> None:
    """How long others wait is measured by `scripts/bench abuse`."""
    with Abuse(shared, client, kind) as abuse:
        if kind != "churn":
            testing.eventually(lambda: abuse.asked() > 20)
        appended(client, abuse, 150)
        assert abuse.used["refused"] == 0


def test_a_burst_gets_what_is_in_the_bucket_and_what_comes_meanwhile(
    shared: testing.LocalCluster, client: lognode.Client
) -> None:
    host, port = shared.nodes[0].address.rsplit(":", 1)

    async def outcomes(count: int) -> list[BaseException | dict[str, Any]]:
        connection = await dial(host, int(port))
        deadline = asyncio.get_running_loop().time() + 60.0
        try:
            asked = [connection.request(METADATA, {}, deadline=deadline) for _ in range(count)]
            return await asyncio.gather(*asked, return_exceptions=True)
        finally:
            connection.close()

    began = time.monotonic()
    client.admin.set_quota("default", {"requests": 50})
    found = asyncio.run(outcomes(500))
    seconds = time.monotonic() - began
    through = [each for each in found if isinstance(each, dict)]
    refused = [each for each in found if isinstance(each, Overloaded)]
    assert len(through) + len(refused) == 500
    assert {each.fields["quota"] for each in refused} == {"requests"}
    assert 50 <= len(through) <= 50 * (1 + seconds) + 1


def test_a_refusal_names_the_quota_and_the_connection_goes_on(
    shared: testing.LocalCluster, client: lognode.Client
) -> None:
    host, port = shared.nodes[0].address.rsplit(":", 1)

    async def main() -> Overloaded:
        connection = await dial(host, int(port))
        deadline = asyncio.get_running_loop().time() + 60.0
        try:
            for _ in range(10_000):
                try:
                    await connection.request(METADATA, {}, deadline=deadline)
                except Overloaded as refused:
                    await asyncio.sleep(refused.retry_after)
                    await connection.request(METADATA, {}, deadline=deadline)
                    return refused
        finally:
            connection.close()
        raise AssertionError("10,000 requests were not refused")

    client.admin.set_quota("default", {"requests": 50})
    refused = asyncio.run(main())
    assert refused.fields["quota"] == "requests"
    assert 0 < refused.fields["retry_after"] <= 1.0
    assert refused.outcome == "not_applied"


def test_the_sdk_waits_for_as_long_as_the_node_says(
    shared: testing.LocalCluster, client: lognode.Client
) -> None:
    client.admin.set_quota("acme/", {"append_records": 100})
    before = _used(client, "127.0.0.1")["refused"]
    began = time.monotonic()
    acks = [client.log(LOG).append_many([(b"s%d" % at, b"v")] * 50)[-1] for at in range(10)]
    took = time.monotonic() - began
    assert len({ack.seq for ack in acks}) == 10
    # The last batch begins once less than 450 records have left a bucket of 100 and what came in.
    assert took > (450 - 100) / 100
    # Each append was refused once at most: it came back when there was something in the bucket.
    assert 0 < _used(client, "127.0.0.1")["refused"] - before < 10


def test_a_tenant_has_one_quota_and_others_are_free(
    shared: testing.LocalCluster, client: lognode.Client
) -> None:
    client.admin.set_quota("acme/", {"requests": 1})
    client.create_log("free", ranges=1)
    client.log("free").append("k", b"v")
    with pytest.raises(lognode.LognodeError, match="tenant acme/ has used its quota"):
        _latest(client, 20)
    before = _used(client, "127.0.0.1")
    for _ in range(20):
        client.log("free").append("k", b"v")
    after = _used(client, "127.0.0.1")
    assert after["append_records"] - before["append_records"] == 20
    assert after["refused"] == before["refused"]


def test_usage_counts_what_was_applied_once(
    shared: testing.LocalCluster, client: lognode.Client
) -> None:
    client.create_log("exact/log", ranges=3)
    # The node may have measured what the tenant stores, and has a row of zeros then.
    before = [row for row in client.admin.usage()["tenants"] if row["name"] == "exact/"]
    assert not any(row[counter] for row in before for counter in COUNTERS)
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
