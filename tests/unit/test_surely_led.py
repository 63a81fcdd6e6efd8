"""When a leader knows without a question that it has led lately (G3)."""

import asyncio
import math
import time
from dataclasses import replace
from pathlib import Path

import pytest
from live_nodes import LiveCluster, live, until
from storage_node import StorageNode, descriptor, numbered_batch, one_life

import lognode
from lognode.node.replicas.range_replica import RangeReplica
from lognode.statemachine.range_state import Base


def take_time(replica: RangeReplica) -> None:
    """Let what the replica knows of its lead be new for 30 s: the machine may be slow."""
    options = replica.services.options
    replica.services.options = replace(
        options, election_timeout_min_s=60.0, election_timeout_max_s=90.0
    )


def test_G3_a_committed_entry_shows_that_the_leader_led(tmp_path: Path) -> None:
    """To a request that came before the proposal, at the entry's term, and not for long."""

    async def life(node: StorageNode) -> None:
        replica = await node.host.create_range(descriptor(1), Base(), campaign=True)
        assert replica is not None
        await node.leading(replica)
        take_time(replica)
        before = time.monotonic()
        assert not replica.surely_led_since(before)
        await replica.append(numbered_batch(1, [b"a"]))
        assert replica.surely_led_since(before)
        assert not replica.surely_led_since(time.monotonic())
        term, _ = replica._confirmed
        replica._confirmed = term - 1, time.monotonic()
        assert not replica.surely_led_since(before), "an entry of another term shows nothing"
        replica._confirmed = term, time.monotonic() - 29
        assert replica.surely_led_since(-math.inf)
        replica._confirmed = term, time.monotonic() - 31
        assert not replica.surely_led_since(-math.inf), "the entry is old"

    one_life(tmp_path, life)


def waiting_consumers(cluster: LiveCluster) -> int:
    return sum(
        len(driver._waiters) for each in cluster.nodes for driver in each.node._groups.drivers.all()
    )


def test_G3_only_a_request_that_found_entries_at_once_costs_a_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader knows from a new entry that it leads, but nothing from an entry of before."""
    asked: list[RangeReplica] = []
    ask = RangeReplica.read_barrier

    async def read_barrier(replica: RangeReplica) -> None:
        asked.append(replica)
        await ask(replica)

    async def main() -> None:
        async with live(tmp_path, 3) as cluster, lognode.AsyncClient(cluster.address) as client:
            log = await client.create_log("orders")
            async with log.consume("workers") as consumer:
                await until(lambda: waiting_consumers(cluster) == 1, "the consumer waits")
                for each in cluster.nodes:
                    for replica in each.host.ranges():
                        take_time(replica)
                monkeypatch.setattr(RangeReplica, "read_barrier", read_barrier)
                await log.append("k", b"new")
                batch = await anext(consumer)
                assert batch.values == [b"new"]
                assert not asked
                await batch.ack()
            await log.append("k", b"before")
            async with log.consume("workers") as consumer:
                batch = await anext(consumer)
                assert batch.values == [b"before"]
                assert asked
                await batch.ack()

    asyncio.run(main())
