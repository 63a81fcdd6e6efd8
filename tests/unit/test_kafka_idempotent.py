"""Batches of idempotent producers: which are refused, and the memory for what is under way."""

import asyncio
import random
from types import SimpleNamespace
from typing import Any

import pytest

from lognode.client.protocol.records import pack_strings
from lognode.node.kafka import codes
from lognode.node.kafka.batches import Batch
from lognode.node.kafka.idempotent import Idempotent, _check, open_id
from lognode.node.kafka.record_columns import Packed
from lognode.node.kafka.refused import Refused
from lognode.node.kafka.room import Room

VALUE_BYTES = 1_000


class _Stuck(Idempotent):
    """Batches whose outcomes are never known."""

    async def _append(self, *_: Any) -> Any:
        await asyncio.Event().wait()


def test_a_host_whose_batches_are_stuck_stops_no_other_host() -> None:
    """The range of the batches has no majority. The producers of all ranges waited in one line."""

    async def run() -> None:
        loop = asyncio.get_running_loop()
        cluster: Any = SimpleNamespace(now=loop.time)
        topic: Any = SimpleNamespace(log_id=7)
        room = Room(4 * VALUE_BYTES, 2 * VALUE_BYTES)
        stuck = _Stuck(cluster, open_id, room)
        value = random.Random(1).randbytes(VALUE_BYTES)  # does not compress
        entries = Packed(pack_strings([b"k"]), pack_strings([value]), None, 1, 1 + VALUE_BYTES)

        async def begin(producer: int, host: str, seconds: float = 60.0) -> asyncio.Task[Any]:
            batch: Any = SimpleNamespace(producer=producer, epoch=0, sequence=0, count=1)
            return await stuck.begin(topic, 0, batch, entries, loop.time() + seconds, host)

        tasks = [await begin(0, "a")]
        with pytest.raises(Refused, match="no memory for more batches under way") as refused:
            await begin(1, "a", 0.05)
        assert refused.value.code == codes.NOT_ENOUGH_REPLICAS
        async with asyncio.timeout(5):
            tasks.append(await begin(9, "b"))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)
        await asyncio.wait_for(room.take(4 * VALUE_BYTES), 5)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("producer", "epoch", "sequence", "code"),
    [
        (1 << 49, 0, 0, codes.UNKNOWN_PRODUCER_ID),
        (1 << 62, 0, 0, codes.UNKNOWN_PRODUCER_ID),
        (7, -1, 0, codes.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (7, 0, -1, codes.OUT_OF_ORDER_SEQUENCE_NUMBER),
    ],
)
def test_a_batch_without_a_number_is_refused(
    producer: int, epoch: int, sequence: int, code: int
) -> None:
    with pytest.raises(Refused) as refusal:
        _check(Batch(0, 2, producer, epoch, sequence, b""))
    assert refusal.value.code == code
