"""Requests to append of more bytes than the node keeps at a time."""

import asyncio
import contextlib
import struct
from collections.abc import Sequence
from typing import Any, Final

import kafka_wire as wire
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lognode.node.kafka import api, codes, requests
from lognode.node.kafka.answers import Appended
from lognode.node.kafka.api import head_of
from lognode.node.kafka.large_produce import NAMES_MAX, LargeProduce
from lognode.node.kafka.producing import Settled
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
        batch_bytes_max=BATCH_MAX,
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
    found.acks, begun = await large.batches(begin)
    for settled in begun:
        found.rows += await settled()
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


def test_a_large_request_whose_rest_does_not_come_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lognode.node.kafka.large_produce._PART_S", 0.05)
    data = request([("a", [(0, b"x"), (1, bytes(BATCH_MAX))])])
    begun: list[Any] = []

    async def run() -> None:
        room, reader = Room(1 << 30), asyncio.StreamReader()
        reader.feed_data(data[:-1])
        large = LargeProduce(
            reader.readexactly, len(data), room=room, host="h", batch_bytes_max=BATCH_MAX
        )
        await large.head()

        async def begin(part: Produce) -> Settled:
            begun.append(part)
            return lambda: asyncio.sleep(0, [])

        with pytest.raises(TimeoutError):
            await large.batches(begin)
        assert not room._taken

    asyncio.run(run())
    assert len(begun) == 1
