"""Quotas of what there may be at a time, on real nodes; and the log of what was used."""

import asyncio
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from live_nodes import live

import lognode
from lognode import testing
from lognode.client.connection import Connection, dial
from lognode.client.protocol.cluster import METADATA
from lognode.client.protocol.reads import FOLLOW
from lognode.node.audit import usage_trail

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def cluster(module_path: Path) -> Iterator[testing.LocalCluster]:
    with testing.cluster(module_path, 1, auth=True) as cluster:
        testing.wait_healthy(cluster)
        with lognode.Client(cluster.servers, timeout=20) as client:
            client.create_log("acme/a")
        yield cluster


@pytest.fixture
def admin(cluster: testing.LocalCluster) -> Iterator[lognode.Client]:
    with lognode.Client(cluster.servers, timeout=20) as client:
        yield client
        for quota in client.admin.quotas():
            client.admin.delete_quota(quota["name"])


def token(admin: lognode.Client, principal: str) -> str:
    made: str = admin.admin.create_token(principal, ["all acme/*"], quota_class="gold")["token"]
    return made


def address(cluster: testing.LocalCluster) -> str:
    return cluster.servers.partition("?")[0]


def test_a_connection_too_many_is_refused_and_the_others_go_on(
    cluster: testing.LocalCluster, admin: lognode.Client
) -> None:
    admin.admin.set_quota("gold", {"connections": 2})
    secret = token(admin, "many")
    host, _, port = cluster.nodes[0].address.rpartition(":")

    async def refusal() -> str:
        """Of one more connection; "" for none. The connections that are served stay open."""
        deadline = asyncio.get_running_loop().time() + 10
        try:
            link = await dial(host, int(port), token=secret)
            await link.request(METADATA, {"log": None}, deadline=deadline)
        except lognode.Overloaded as error:
            return f"{error.fields['quota']}: {error.message}"
        links.append(link)
        return ""

    links: list[Connection] = []

    async def main() -> None:
        assert [await refusal() for _ in range(2)] == ["", ""]
        told = await refusal()
        assert told.startswith("connections: principal many would have 3 connections")
        for link in links:
            deadline = asyncio.get_running_loop().time() + 10
            await link.request(METADATA, {"log": None}, deadline=deadline)
        links.pop().close()
        await asyncio.sleep(0.2)
        assert await refusal() == ""
        for link in links:
            link.close()

    asyncio.run(main())


def test_follows_logs_and_names_are_bounded(
    cluster: testing.LocalCluster, admin: lognode.Client
) -> None:
    admin.admin.set_quota("gold", {"follows": 1, "producers": 1})
    admin.admin.set_quota("acme/", {"logs": 1})
    secret = token(admin, "app")
    (range_,) = admin.admin.ranges("acme/a")
    host, _, port = cluster.nodes[0].address.rpartition(":")
    body = {"range": range_["id"], "generation": range_["generation"], "keys": {b"k": 1}}

    async def refusal() -> str:
        """Of a follow beside the first one; "" for none."""
        link = await dial(host, int(port), token=secret)
        try:
            stream = await link.stream(FOLLOW, body, credit_bytes=1_000)
            async for _ in stream:
                return ""
        except lognode.Overloaded as error:
            return f"{error.fields['quota']}: {error.message}"
        finally:
            link.close()
        return "ended"

    with lognode.Client(address(cluster), token=secret, timeout=3) as app:
        log = app.log("acme/a")
        log.append("k", b"v")
        assert asyncio.run(refusal()) == "", "it is the first"
        with log.follow(keys=["k"], start="earliest") as feed:
            assert [each.value for each in next(feed)] == [b"v"]
            told = asyncio.run(refusal())
            assert told.startswith("follows: principal app would have 2 follows on this node")
        with log.producer(name="one") as producer:
            producer.submit("k", b"w", number=1).result()
        with pytest.raises(lognode.LimitExceeded, match="quota of producers would be 2"):
            log.producer(name="two").open()
        with pytest.raises(lognode.LimitExceeded, match="tenant acme/ would have 2 logs"):
            app.create_log("acme/b")


def test_X7_usage_is_kept_as_a_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage_trail, "_EVERY_S", 0.2)

    async def main() -> None:
        async with live(tmp_path) as cluster, lognode.AsyncClient(cluster.address) as client:
            await client.create_log("acme/orders")
            await client.log("acme/orders").append("k", b"v" * 100)
            names = {each["name"] for each in await client.logs()}
            while "_usage" not in names:
                await asyncio.sleep(0.1)
                names = {each["name"] for each in await client.logs()}
            found: list[dict[str, object]] = []

            async def look() -> None:
                entries = [each async for each in client.log("_usage").scan("acme")]
                found[:] = [json.loads(each.value or b"") for each in entries]

            while not any(row["append_records"] == 1 for row in found):
                await asyncio.sleep(0.1)
                await look()
            assert found[-1]["tenant"] == "acme/"
            with pytest.raises(lognode.Unauthorized, match="only the cluster writes this log"):
                await client.log("_usage").append("acme", b"{}")
            with pytest.raises(lognode.Unauthorized, match="is reserved for the cluster"):
                await client.create_log("_usage")
            # What was used since the last record is written when the node stops in order.
            monkeypatch.setattr(usage_trail, "_EVERY_S", 3_600)
            await asyncio.sleep(0.5)
            await client.log("acme/orders").append("k", b"v")
            (node,) = cluster.nodes
            assert await node.stop() == 0
            await node.start()
            await look()
            assert found[-1]["append_records"] == 2

    async def bounded() -> None:
        async with asyncio.timeout(60):
            await main()

    asyncio.run(bounded())


@pytest.mark.by_hand
def test_a_tenant_that_stores_too_much_is_refused_on_all_nodes_and_nobody_else_is(
    tmp_path: Path,
) -> None:
    with testing.cluster(tmp_path, 3) as cluster:
        testing.wait_healthy(cluster)
        with lognode.Client(cluster.servers, timeout=20) as admin:
            admin.create_log("acme/a", ranges=6)
            admin.create_log("other/a", ranges=6)
            admin.admin.set_quota("acme/", {"stored_bytes": 2_000_000})
            keys = [bytes([at]) + b"-key" for at in range(0, 250, 10)]

            def refusal(name: str) -> lognode.LognodeError | None:
                """Of an append to every range; None where all are taken."""
                try:
                    with lognode.Client(cluster.servers, timeout=1) as client:
                        for key in keys:
                            client.log(name).append(key, os.urandom(2_000))
                except (lognode.Overloaded, lognode.Timeout) as error:
                    return error
                return None

            told, appended = None, 0
            while told is None and appended < 400:
                told, appended = refusal("acme/a"), appended + 1
            assert told is not None
            assert "tenant acme/ stores" in str(told)
            assert refusal("other/a") is None
            rows = {row["name"]: row for row in admin.admin.usage()["tenants"]}
            assert 2_000_000 <= rows["acme/"]["stored_bytes"] < 8_000_000
            assert rows["acme/"]["refused"] > 0
            assert admin.log("acme/a").count(keys[0]) > 0, "reads go on"
            time.sleep(2.0)  # until all nodes have heard of it
            cluster.nodes[0].kill()
            for _ in range(3):
                assert refusal("acme/a") is not None, "the controller's leader now"
            admin.admin.set_quota("acme/", {"stored_bytes": 50_000_000})
            assert any(refusal("acme/a") is None for _ in range(20))
