"""Who a node is: copied and rolled-back directories are refused, old processes fenced (x2.24)."""

import asyncio
import dataclasses
import logging
import shutil
from pathlib import Path
from typing import Any

import pytest
from live_nodes import LiveCluster, LiveNode, live, until

import lognode
from lognode.client.ports import free_ports
from lognode.client.protocol.errors import Conflict
from lognode.client.protocol.peers import RAFT
from lognode.node.links.raft_in import frame, item
from lognode.statemachine.meta import LmdbMeta

pytestmark = pytest.mark.cluster


def copied(node: LiveNode, directory: Path) -> LiveNode:
    """A node on a copy of the directory, at addresses of its own."""
    shutil.copytree(node.config.data, directory, ignore=shutil.ignore_patterns("lock"))
    port, http = free_ports(2)
    config = dataclasses.replace(
        node.config, data=directory, listen=f"127.0.0.1:{port}", http=f"127.0.0.1:{http}"
    )
    return LiveNode(config)


async def is_refused(node: LiveNode) -> str:
    """Why the node stopped by itself."""
    node.begin()
    assert node.task is not None
    async with asyncio.timeout(20):
        assert await node.task == 1
    return str(node.node.shutdown.failure)


def test_x2_24_a_copied_directory_is_refused(tmp_path: Path) -> None:
    async def run() -> None:
        async with live(tmp_path, 2) as cluster:
            await cluster.settled()
            node = cluster.of(2)
            await node.stop()
            copy = copied(node, tmp_path / "copy")
            await node.start()
            assert "copied or restored" in await is_refused(copy)
            assert node.node.shutdown.failure is None
            # However often it is started.
            for _ in range(3):
                copy.begin()
                assert copy.task is not None
                with pytest.raises(Conflict, match="the cluster has refused this data directory"):
                    await asyncio.wait_for(copy.task, 20)
            assert node.node.shutdown.failure is None

    asyncio.run(run())


def test_x2_24_a_rolled_back_directory_is_refused(tmp_path: Path) -> None:
    async def run() -> None:
        async with live(tmp_path, 2) as cluster:
            await cluster.settled()
            node = cluster.of(2)
            await node.stop()
            backup = copied(node, tmp_path / "backup")
            for _ in range(2):
                await node.start()
                await node.stop()
            assert "copied or restored" in await is_refused(backup)

    asyncio.run(run())


def test_x2_24_a_later_process_of_the_same_node_fences_the_older(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with live(tmp_path, 2) as cluster:
            await cluster.settled()
            node = cluster.of(2)
            await node.stop()
            copy = copied(node, tmp_path / "copy")
            # As if it had been started more often, where the others did not hear of it.
            meta = LmdbMeta(copy.config.data / "meta.mdb")
            identity = meta.get("identity")
            assert identity is not None
            meta.commit({"identity": {**identity, "boot": 7}})
            meta.close()
            await node.start()
            await copy.start()
            assert node.task is not None
            async with asyncio.timeout(20):
                assert await node.task == 1
            assert "is registered as node 2" in str(node.node.shutdown.failure)
            assert copy.node.shutdown.failure is None
            node.begin()
            with pytest.raises(Conflict, match="is registered as node 2"):
                await asyncio.wait_for(node.task, 20)
            await copy.stop()

    caplog.set_level(logging.CRITICAL)
    asyncio.run(run())


async def grown(cluster: LiveCluster, client: lognode.AsyncClient) -> None:
    await cluster.healthy(3)
    await client.create_log("orders")
    await client.log("orders").append(b"k", b"v")
    await cluster.settled()


def dropped(node: LiveNode, reason: str) -> float:
    value: float = node.node._metrics.raft_dropped.labels(reason)._value.get()
    return value


def test_x2_24_messages_of_an_older_boot_or_another_descriptor_are_dropped(
    tmp_path: Path,
) -> None:
    async def run() -> None:
        async with live(tmp_path, 3) as cluster, lognode.AsyncClient(cluster.address) as client:
            await grown(cluster, client)
            node = cluster.of(1)
            (replica,) = node.host.ranges()
            term = replica.group.term
            taken: list[Any] = []
            replica.receive = lambda sender, message: taken.append(message)
            peer = await node.peer(2)
            message = [4, term + 1000, 1, 10**6, 10**6]  # a vote request nobody could refuse

            async def send(fingerprint: bytes, number: int, process: int) -> None:
                items = [item(replica.gid, fingerprint, message)]
                body = frame(
                    {"messages": items}, boot=(number, process), clock_ms=1, ping=[1, 0, []]
                )
                peer.send(RAFT, body)

            boot, process = cluster.of(2).node.identity.boot, cluster.of(2).node._process
            before = dropped(node, "other_descriptor")
            await send(b"another!", boot, process)
            await until(lambda: dropped(node, "other_descriptor") > before, "it is dropped")
            for number, of_process in ((boot - 1, process), (boot, process + 1)):
                before = dropped(node, "old_boot")
                await send(replica.fingerprint, number, of_process)
                await until(lambda b=before: dropped(node, "old_boot") > b, "it is dropped")
            assert message not in taken
            await send(replica.fingerprint, boot, process)
            await until(lambda: message in taken, "the right one is taken")
            peer.close()

    asyncio.run(run())
