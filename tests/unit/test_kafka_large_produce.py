"""Requests to append of more bytes than the node keeps at a time."""

import asyncio
import contextlib
import gc
import struct
import tracemalloc
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, Final

import kafka_wire as wire
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lognode.client.appends import AppendBatch, Columns
from lognode.client.protocol.errors import LogNotFound, Unavailable
from lognode.node.kafka import api, codes, requests
from lognode.node.kafka.answers import Appended
from lognode.node.kafka.api import head_of
from lognode.node.kafka.idempotent import Idempotent
from lognode.node.kafka.large_produce import NAMES_MAX, LargeProduce
from lognode.node.kafka.producing import Memory, Producing, Settled
from lognode.node.kafka.refused import Refused
from lognode.node.kafka.requests import Produce, Produced
from lognode.node.kafka.room import FREE, Room
from lognode.node.kafka.wire import ELEMENTS_MAX, Malformed, Reader

BATCH_MAX: Final = 4 * FREE
Topics = Sequence[tuple[str, Sequence[tuple[int, bytes | None]]]]


def request(topics: Topics, *, acks: int = -1, transactional: str | None = None) -> bytes:
    """A request without its length."""
    rows = [
        wire.text(name) + wire.array([struct.pack(">i", n) + wire.data(each) for n, each in rows])
        for name, rows in topics
    ]
    body = wire.text(transactional) + struct.pack(">hi", acks, 5_000) + wire.array(rows)
    return wire.request(api.PRODUCE, 7, body)[4:]


class Taken:
    """What was handed over of a request, the rows of its answer, and the most memory it had."""

    def __init__(self) -> None:
        self.parts: list[Produce] = []
        self.rows: list[Appended] = []
        self.acks = 0
        self.most = 0


async def take(data: bytes, size: int | None = None) -> Taken:
    found, room = Taken(), Room(1 << 30)
    reader = asyncio.StreamReader()
    reader.feed_data(data)
    reader.feed_eof()
    large = LargeProduce(
        reader.readexactly, len(data) if size is None else size, room=room, host="h",
        batch_bytes_max=BATCH_MAX, within_s=30,
    )  # fmt: skip

    async def begin(part: Produce) -> Settled:
        found.parts.append(part)
        found.most = max(found.most, room._taken)
        (each,) = part.batches

        async def settled() -> list[Appended]:
            return [Appended(each.topic, each.partition, offset=len(each.records))]

        return settled

    head = await large.head()
    assert head == head_of(Reader(data))
    found.acks, found.rows = await large.appended(begin)
    assert not room._taken
    return found


@given(
    st.lists(
        st.tuples(
            st.text(max_size=9),
            st.lists(st.tuples(st.integers(0, 99), st.none() | st.binary(max_size=40)), max_size=5),
        ),
        max_size=5,
    ),
    st.sampled_from((-1, 0, 1)),
    st.none() | st.text(max_size=3),
)
def test_a_large_request_means_what_the_decoder_of_others_says(
    topics: list[tuple[str, list[tuple[int, bytes | None]]]], acks: int, transactional: str | None
) -> None:
    data = request(topics, acks=acks, transactional=transactional)
    reader = Reader(data)
    same = requests.produce(reader, head_of(reader).version)
    names = [(each.topic, each.partition) for each in same.batches]
    if len(set(names)) < len(names):
        with pytest.raises(Malformed, match="twice"):
            asyncio.run(take(data))
        return
    found = asyncio.run(take(data))
    assert [each for part in found.parts for each in part.batches] == same.batches
    assert all(part._replace(batches=same.batches) == same for part in found.parts)
    assert found.acks == acks
    assert [(row.topic, row.partition) for row in found.rows] == names


@given(st.binary(max_size=80), st.integers(0, 200), st.integers(0, 3))
def test_any_bytes_are_a_request_or_malformed(noise: bytes, at: int, cut: int) -> None:
    whole = request([("orders", [(0, b"x" * 20), (1, None)]), ("b", [(2, b"y")])])
    data = whole[:at] + noise + whole[at + len(noise) :]
    with contextlib.suppress(Malformed):
        asyncio.run(take(data[: len(data) - cut]))


def test_one_batch_has_memory_at_a_time() -> None:
    batches = [(n, bytes(BATCH_MAX)) for n in range(50)]
    found = asyncio.run(take(request([("a", batches)])))
    assert len(found.parts) == 50
    assert found.most == BATCH_MAX


def test_a_batch_that_is_too_large_is_refused_and_the_others_are_appended() -> None:
    batches = [(0, b"x"), (1, bytes(BATCH_MAX + 1)), (2, b"y")]
    found = asyncio.run(take(request([("a", batches)])))
    assert [part.batches for part in found.parts] == [
        [Produced("a", 0, b"x")], [Produced("a", 2, b"y")]
    ]  # fmt: skip
    assert [row.error for row in found.rows] == [codes.NONE, codes.MESSAGE_TOO_LARGE, codes.NONE]


LONG: Final = "n" * 30_000


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (wire.request(api.FETCH, 4, bytes(99))[4:], "only requests to append"),
        (wire.request(api.PRODUCE, 99, bytes(99))[4:], "not served"),
        (request([("a", [(n, None) for n in range(ELEMENTS_MAX)])]), "topics and partitions"),
        (request([(f"{LONG}{n}", []) for n in range(1 + NAMES_MAX // 30_000)]), "names"),
        (request([("a", [(0, None)])]) + b"x", "behind its end"),
        (request([("a", [(0, b"xyz")])])[:-1], "ends early"),
        (request([("a", [(0, bytes(BATCH_MAX + 1))])])[:-1], "ends early"),
        (request([("a", [(0, None)])])[:-4] + struct.pack(">i", -2), "ends early"),
        (request([("a", [])])[:-4] + struct.pack(">i", -2), "topics and partitions"),
        (request([])[:-4] + wire.array([wire.text(None)]), "a text is null"),
        (request([])[:-4] + wire.array([struct.pack(">h", 1) + b"\xff"]), "UTF-8"),
        (wire.request(api.PRODUCE, 7, b"", client=None)[4:-2] + b"\xff\x00", "ends early"),
    ],
)
def test_a_large_request_that_breaks_the_protocol_is_malformed(data: bytes, told: str) -> None:
    with pytest.raises(Malformed, match=told):
        asyncio.run(take(data))


def large(reader: asyncio.StreamReader, size: int, *, within_s: float = 30) -> LargeProduce:
    return LargeProduce(
        reader.readexactly, size, room=Room(1 << 30), host="h", batch_bytes_max=BATCH_MAX,
        within_s=within_s,
    )  # fmt: skip


@pytest.mark.parametrize("pause_s", [10, 0.15])
def test_a_large_request_has_one_time_for_all_of_its_bytes(pause_s: float) -> None:
    """A client that sends a field now and then would keep what a request has for days."""
    data = request([("a", [(n, b"x") for n in range(9)])])
    begun: list[Any] = []

    async def run() -> None:
        reader = asyncio.StreamReader()
        found = large(reader, len(data), within_s=0.3)
        head, at = len(request([])) - 4, 0

        async def send() -> None:
            nonlocal at
            for end in range(head, len(data), 9):
                reader.feed_data(data[at:end])
                at = end
                await asyncio.sleep(pause_s)

        sending = asyncio.create_task(send())
        await found.head()

        async def begin(part: Produce) -> Settled:
            begun.append(part)
            return lambda: asyncio.sleep(0, [])

        with pytest.raises(TimeoutError):
            await found.appended(begin)
        assert not found._room._taken
        sending.cancel()

    asyncio.run(run())
    assert len(begun) < 9


def test_few_batches_of_a_request_are_under_way() -> None:
    data = request([("a", [(n, b"x") for n in range(50)])])
    under_way: list[int] = []

    async def run() -> list[Appended]:
        reader = asyncio.StreamReader()
        reader.feed_data(data)
        found = large(reader, len(data))
        await found.head()
        open_ = 0

        async def begin(part: Produce) -> Settled:
            nonlocal open_
            open_ += 1
            under_way.append(open_)

            async def settled() -> list[Appended]:
                nonlocal open_
                open_ -= 1
                return [Appended("a", part.batches[0].partition)]

            return settled

        return (await found.appended(begin))[1]

    assert [row.partition for row in asyncio.run(run())] == [*range(50)]
    assert max(under_way) == 16


def test_S11_batches_behind_those_that_wait_for_long_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A range without a majority kept a request of thousands of batches for hours."""
    monkeypatch.setattr("lognode.node.kafka.large_produce._WAITS_S", 0.1)
    data = request([("a", [(n, b"x" * n) for n in range(99)])])

    async def run() -> list[Appended]:
        reader = asyncio.StreamReader()
        reader.feed_data(data)
        found = large(reader, len(data))
        await found.head()

        async def begin(part: Produce) -> Settled:
            async def settled() -> list[Appended]:
                await asyncio.sleep(0.03)
                return [Appended("a", part.batches[0].partition, codes.REQUEST_TIMED_OUT)]

            return settled

        return (await found.appended(begin))[1]

    rows = asyncio.run(run())
    assert [row.partition for row in rows] == [*range(99)]
    count = [row.error for row in rows].index(codes.NOT_ENOUGH_REPLICAS)
    assert 16 < count < 40
    assert {row.error for row in rows[:count]} == {codes.REQUEST_TIMED_OUT}
    assert {row.error for row in rows[count:]} == {codes.NOT_ENOUGH_REPLICAS}


def test_the_loop_runs_while_a_request_of_many_small_batches_is_taken() -> None:
    """All of the bytes are there, and no read suspends: the loop stood still for 70 ms."""
    data = request([("a", [(n, None) for n in range(9_000)])])

    async def run() -> int:
        reader = asyncio.StreamReader()
        reader.feed_data(data)
        found, turns = large(reader, len(data)), 0
        await found.head()

        async def begin(_: Produce) -> Settled:
            return lambda: asyncio.sleep(0, [])

        taking = asyncio.create_task(found.appended(begin))
        while not taking.done():
            turns += 1
            await asyncio.sleep(0)
        return turns

    assert asyncio.run(run()) > 20


class Failing:
    """Topics; the topic `gone` does not exist."""

    def __init__(self) -> None:
        self.batches: list[AppendBatch] = []

    async def known(self, name: str, _: float) -> Any:
        if name == "gone":
            raise LogNotFound(f"log {name!r} does not exist")
        routes = SimpleNamespace(name=name, compacts=False)
        return SimpleNamespace(check=lambda _: None, log_id=None, routes=routes, sender=self.sender)

    def gone(self, _: str) -> None:
        return

    async def sender(self, _: int, __: float) -> Any:
        return SimpleNamespace(batcher=SimpleNamespace(add_atomic=self.add))

    def add(self, columns: Columns, _: float) -> AppendBatch:
        attempts: Any = None
        batch = AppendBatch(attempts, asyncio.get_running_loop().create_future())
        columns.fill(batch, range(len(columns)))
        self.batches.append(batch)
        return batch

    def fail(self) -> None:
        for batch in self.batches:
            batch.error = Unavailable("no majority")
            batch.done.set_result(None)
            batch.wake()
        self.batches.clear()


@pytest.mark.parametrize("kind", ["unknown topic", "without numbers", "with numbers"])
def test_a_batch_that_has_an_outcome_keeps_no_memory(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer of a client that reads none waits, and had kept all bytes of its request."""

    async def append(_: Any, sent: Any, before: Any) -> Any:
        data = sent.batch.data
        raise Refused(codes.INVALID_PRODUCER_EPOCH, f"{len(data)} bytes, {before}")

    monkeypatch.setattr(Idempotent, "_append", append)

    async def run() -> None:
        topics: Any = Failing()
        cluster: Any = SimpleNamespace(now=asyncio.get_running_loop().time)
        with ThreadPoolExecutor(1) as threads:
            memory = Memory(threads)
            producing = Producing(
                cluster, topics, lambda producer, _: (producer, None), memory,
                compacts=lambda _: None,
            )  # fmt: skip
            name = "gone" if kind == "unknown topic" else "there"
            numbered = {"producer": 7, "epoch": 0, "sequence": 0} if kind == "with numbers" else {}
            gc.disable()
            tracemalloc.start()
            begun = []
            for n in range(20):
                batch = wire.batch([(b"k", bytes(1_000_000))], **numbered)
                produced = Produced(name, n, batch)
                begun.append(await producing.begin(Produce(False, -1, 9_000, [produced]), "h"))
                del batch, produced
                topics.fail()
                await asyncio.sleep(0)
            for _ in range(9):
                await asyncio.sleep(0)
            kept, _ = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            gc.enable()
            rows = [row for settled in begun for row in await settled()]
        assert codes.NONE not in {row.error for row in rows}
        assert len(rows) == 20
        assert kept < 3 << 20
        assert not memory.under_way._taken
        assert not memory.plain_under_way._taken

    asyncio.run(run())
