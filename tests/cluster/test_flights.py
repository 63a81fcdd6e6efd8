"""336,776 real flights into three nodes: every aircraft's history is the file's, on every node."""

import asyncio
import time

import flights
import pytest
from cluster_history import History, same_on

import lognode
from lognode import testing
from lognode.client.window import Delivery

pytestmark = [pytest.mark.cluster, pytest.mark.by_hand]

NODES = (1, 2, 3)
KEYS = 4_044
"""4,043 tail numbers, and one key for the flights without."""
Records = list[tuple[bytes, bytes]]


async def import_all(servers: str, records: Records) -> Delivery:
    """Append every record under the number of its row; the name makes it once."""
    async with (
        lognode.AsyncClient(servers, timeout=30) as client,
        client.log("flights").producer(name="flights.csv", timeout=60) as producer,
    ):
        for number, (key, value) in enumerate(records, 1):
            await producer.submit(key, value, number=number)
        await producer.flush()
        return producer.delivery


def values(history: History) -> dict[bytes, list[bytes | None]]:
    return {key: [entry.value for entry in entries] for key, entries in history.items()}


def test_S1_S4_S8_every_flight_once_in_the_order_of_the_file(three: testing.LocalCluster) -> None:
    records = flights.read()
    wanted = flights.histories(records)
    assert (len(records), len(wanted)) == (flights.ROWS, KEYS)
    keys = list(wanted)
    with lognode.Client(three.servers, timeout=30) as client:
        client.create_log("flights", split_at=[keys[KEYS * part // 4] for part in (1, 2, 3)])

    began = time.monotonic()
    delivery = asyncio.run(import_all(three.servers, records))
    seconds = time.monotonic() - began
    print(f"{flights.ROWS / seconds:,.0f} flights/s")
    assert (delivery.acknowledged, delivery.duplicates) == (flights.ROWS, 0)

    delivery = asyncio.run(import_all(three.servers, records))
    assert (delivery.acknowledged, delivery.duplicates) == (flights.ROWS, flights.ROWS)

    history = same_on(three.servers, "flights", NODES)
    assert list(history) == keys
    assert values(history) == wanted
    assert asyncio.run(count_all(three.servers, keys)) == flights.ROWS

    for node in three.nodes:
        node.kill()
    for node in three.nodes:
        node.start()
    testing.wait_healthy(three)
    assert asyncio.run(count_all(three.servers, keys)) == flights.ROWS
    with lognode.Client(three.servers, timeout=30) as client:
        busiest = max(wanted, key=lambda key: len(wanted[key]))
        assert list(client.log("flights").scan(busiest)) == history[busiest]


async def count_all(servers: str, keys: list[bytes]) -> int:
    """The sum of `count` over the keys."""
    async with lognode.AsyncClient(servers, timeout=30) as client:
        log = client.log("flights")
        total = 0
        for first in range(0, len(keys), 64):
            total += sum(await asyncio.gather(*map(log.count, keys[first : first + 64])))
        return total
