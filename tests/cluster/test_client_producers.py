"""The SDK's producers against real nodes: dedupe, fences, closing, the blocking client."""

import asyncio
from pathlib import Path

import pytest

import lognode
import lognode.testing
from lognode.client.protocol.appends import PRODUCER_NUMBER

pytestmark = pytest.mark.cluster


def test_S8_S9_x10_x27_named_producers_on_real_nodes(tmp_path: Path) -> None:
    with (
        lognode.testing.cluster(tmp_path, nodes=3) as cluster,
        lognode.Client(cluster.servers) as client,
    ):
        log = client.create_log("log", split_at=["m"], exist_ok=True)
        old = log.producer(name="import")
        old.open()
        for number, key in ((1, "a"), (2, "z"), (3, "a")):
            old.submit(key, b"%d" % number, number=number)
        old.flush()
        with log.producer(name="import") as new:
            again = [new.submit(key, b"x", number=n) for n, key in ((1, "a"), (2, "z"), (3, "a"))]
            assert all(ticket.result().duplicate for ticket in again)
            with pytest.raises(lognode.Fenced):
                old.submit("z", b"zombie", number=4).result()
            new.submit("z", b"4", number=4)
        assert [entry.value for entry in log.scan("a")] == [b"1", b"3"]
        assert [entry.value for entry in log.scan("z")] == [b"2", b"4"]
        old.close()


def test_x17_a_range_knows_the_numbers_it_applied(tmp_path: Path) -> None:
    with lognode.testing.cluster(tmp_path, nodes=1) as cluster:

        async def ask(number: int) -> bool:
            async with lognode.AsyncClient(cluster.servers) as client:
                log = client.log("log")
                async with log.producer() as producer:
                    await (await producer.submit("k", b"v")).result()
                    sender = producer._sender
                    identity, _ = await sender.identity.opened(client._deadline(5.0))
                    answer, _ = await client._cluster.call(
                        client._cluster.log("log"), b"k", PRODUCER_NUMBER,
                        {"producer": identity, "number": number}, deadline=client._deadline(5.0),
                    )  # fmt: skip
                    return bool(answer["applied"])

        with lognode.Client(cluster.servers) as client:
            client.create_log("log", ranges=1)
        assert asyncio.run(ask(1))
        assert not asyncio.run(ask(2))
