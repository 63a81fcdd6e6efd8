"""Batches of idempotent producers, at a range that is the real state machine."""

import asyncio
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lognode.client.protocol.records import encode_batch, pack_strings
from lognode.node.kafka import codes
from lognode.node.kafka.batches import Batch
from lognode.node.kafka.idempotent import Idempotent, _check, open_id
from lognode.node.kafka.record_columns import Packed
from lognode.node.kafka.refused import Refused
from lognode.node.kafka.room import Room
from lognode.statemachine import commands
from lognode.statemachine.range_state import RangeState
from lognode.statemachine.segments import SegmentStore

VALUE_BYTES = 1_000
END = 1 << 31
"""Sequences are below."""


class Range:
    """A range, and nodes that append to it."""

    def __init__(self, path: Path) -> None:
        self.state = RangeState(start=b"", end=None, store=SegmentStore(path))
        self.entries = 0

    def apply(self, kind: int, payload: Any) -> Any:
        self.entries += 1
        command = commands.encode(kind, 1, payload)
        return self.state.apply(self.state.applied_index + 1, 1, command).replies[0]

    def node(self) -> "Node":
        return Node(self)


class Node(Idempotent):
    """A node that has just begun."""

    def __init__(self, of: Range) -> None:
        cluster: Any = SimpleNamespace(now=lambda: 0.0, attempts=lambda *_: None)
        super().__init__(cluster, open_id, Room(1 << 30))
        self._range = of

    async def _attempt(self, sent: Any, attempts: Any) -> Any:
        return self._range.apply(commands.APPEND, [sent.batch.data]), None

    def send(self, sequence: int, count: int = 2) -> int:
        """Return the first offset, or the error code below 0, of a batch."""

        async def run() -> int:
            topic: Any = SimpleNamespace(routes=SimpleNamespace(name="topic"))
            keys, values = (pack_strings([each] * count) for each in (b"k", b"v"))
            entries = Packed(keys, values, None, count, 2 * count)
            batch = Batch(0, count, 7, 0, sequence, b"")
            until = asyncio.get_running_loop().time() + 60
            try:
                return (await (await self.begin(topic, 0, batch, entries, until, "h")))[0]
            except Refused as refusal:
                return -refusal.code

        return asyncio.run(run())


OUT_OF_ORDER = -codes.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.parametrize("turn", [0, 1, 2, 77])
def test_S8_sequences_begin_at_0_again_after_2_31_records(tmp_path: Path, turn: int) -> None:
    """After 2^31 records to a partition (7 hours at 85,000 a second), producers failed for good."""
    at = Range(tmp_path)
    last = turn * END + END - 3
    first = encode_batch([b"k"] * 2, [b"v"] * 2, producer=open_id(7, 0)[0], epoch=0,
                         low=last + 1, numbers=last + 1)  # fmt: skip
    assert at.apply(commands.APPEND, [first])["first_seq"] == 1
    node = at.node()
    assert node.send(END - 3) == 1
    assert node.send(END - 9) == OUT_OF_ORDER
    assert node.send(END - 1) == 3, "half of it in the next turn"
    assert node.send(9) == OUT_OF_ORDER
    assert node.send(1) == 5
    assert [node.send(each) for each in (END - 1, 1)] == [3, 5]
    other = at.node()  # which does not know the turn
    assert other.send(9) == OUT_OF_ORDER
    assert other.send(1) == 5
    began = at.entries
    assert other.send(3) == 7
    assert other.send(9) == OUT_OF_ORDER
    assert at.entries == began + 2, "it knows the turn now"
    assert node.send(5) == 9
    assert at.state.next_seq == 11


def test_S8_a_producer_that_the_range_forgot_gets_another_id(tmp_path: Path) -> None:
    """librdkafka fails for good after OUT_OF_ORDER_SEQUENCE_NUMBER where all earlier batches were
    acknowledged, and begins anew after UNKNOWN_PRODUCER_ID."""
    at = Range(tmp_path)
    node, other = at.node(), at.node()
    assert (node.send(0), node.send(2)) == (1, 3)
    at.apply(commands.RETIRE_PRODUCERS, [open_id(7, 0)[0]])
    assert node.send(6) == OUT_OF_ORDER, "the batch before it may still come"
    assert node.send(4) == -codes.UNKNOWN_PRODUCER_ID
    assert other.send(4) == OUT_OF_ORDER, "of which this node knows no batch"


def test_S8_no_batch_of_an_unknown_producer_is_taken_before_its_predecessor(tmp_path: Path) -> None:
    """The first batch is under way through a node that hangs. The client sends the second through
    another node: were it appended, librdkafka would report the first as appended, too."""
    at = Range(tmp_path)
    hangs, other = at.node(), at.node()
    assert other.send(2) == OUT_OF_ORDER
    assert other.send(4) == OUT_OF_ORDER
    assert hangs.send(0) == 1
    assert (other.send(2), other.send(4)) == (3, 5)


class _Stuck(Idempotent):
    """Batches whose outcomes are never known."""

    async def _append(self, *_: Any) -> Any:
        await asyncio.Event().wait()


def test_a_host_whose_batches_are_stuck_stops_no_other_host() -> None:
    """The range of the batches has no majority. The producers of all ranges waited in one line."""

    async def run() -> None:
        loop = asyncio.get_running_loop()
        cluster: Any = SimpleNamespace(now=loop.time)
        topic: Any = SimpleNamespace(routes=SimpleNamespace(name="topic"))
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
