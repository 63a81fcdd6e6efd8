"""A replica that is retired is freed at once: no cycle of objects waits for the garbage collector.

A client that creates and deletes logs made the collector free thousands of such cycles in one turn
of the event loop, for up to 1.2 s.
"""

import asyncio
import contextlib
import gc
import weakref
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from live_nodes import live, until
from storage_node import StorageNode, descriptor, numbered_batch

import lognode
from lognode.client.protocol.errors import LognodeError
from lognode.node.replicas.range_replica import RangeReplica
from lognode.statemachine.range_state import Base

RANGES = 16
WAIT_S = 120.0
LAST_ONES = 4
"""The loops of a node that may still hold the replica that they looked at last."""

Use = Callable[[StorageNode, RangeReplica], Awaitable[None]]


@contextlib.contextmanager
def without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def parts_of(replica: Any) -> list["weakref.ref[Any]"]:
    group = replica.group
    parts = (replica, group, group._engine, group._engine._core, replica.state, replica.news)
    return [weakref.ref(part) for part in parts]


async def nothing(node: StorageNode, replica: RangeReplica) -> None:
    """A replica that was never used."""


async def appended(node: StorageNode, replica: RangeReplica) -> None:
    await replica.append(numbered_batch(1, [b"a"]))
    await replica.read_barrier()


async def waiting(node: StorageNode, replica: RangeReplica) -> None:
    """Callers wait when the replica ends; each gets an error."""

    async def ended(wait: Awaitable[Any]) -> None:
        with contextlib.suppress(LognodeError):
            await wait

    waits = replica.append(numbered_batch(1, [b"a"])), replica.wait_seq(99, alone=True)
    more = replica.wait_seq(99, alone=False), replica.read_barrier()
    tasks = [asyncio.ensure_future(ended(wait)) for wait in (*waits, *more)]
    replica.contact.begin()
    replica.news.listen(lambda keys, seq: None, [b"a"])
    await asyncio.sleep(0)
    replica.stop()
    await asyncio.gather(*tasks)


async def flushed(node: StorageNode, replica: RangeReplica) -> None:
    await replica.append(numbered_batch(1, [b"a"]))
    await node.flusher.flush(replica)


async def sealed(node: StorageNode, replica: RangeReplica) -> None:
    replica.propose_seal(5)
    await until(lambda: replica.is_sealed, "it is sealed")


@pytest.mark.parametrize("use", [nothing, appended, waiting, flushed, sealed])
def test_a_retired_replica_is_freed_without_the_collector(tmp_path: Path, use: Use) -> None:
    async def used_and_retired(node: StorageNode) -> list["weakref.ref[Any]"]:
        replica = await node.host.create_range(descriptor(1), Base(), campaign=True)
        assert replica is not None
        await node.leading(replica)
        await use(node, replica)
        parts = parts_of(replica)
        await node.host.retire([replica.gid])
        return parts

    async def main() -> None:
        node = StorageNode(tmp_path)
        await node.start()
        try:
            with without_collector():
                parts = await used_and_retired(node)
                await until(
                    lambda: not any(part() for part in parts), "all parts are freed", WAIT_S
                )
        finally:
            node.stop()

    asyncio.run(main())


def test_replicas_of_deleted_logs_are_freed_without_the_collector(tmp_path: Path) -> None:
    async def main() -> None:
        async with live(tmp_path, 3) as cluster, lognode.AsyncClient(cluster.address) as client:
            with without_collector():
                log = await client.create_log("orders", ranges=RANGES)
                await log.append("k", b"v")
                replicas = [
                    weakref.ref(replica) for each in cluster.nodes for replica in each.host.ranges()
                ]
                assert len(replicas) >= 2 * RANGES
                await client.delete_log("orders")
                most = LAST_ONES * len(cluster.nodes)
                await until(
                    lambda: sum(each() is not None for each in replicas) <= most, "freed", WAIT_S
                )

    asyncio.run(main())
