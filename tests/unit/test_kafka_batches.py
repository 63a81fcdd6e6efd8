"""Record batches of Kafka by their bytes: of producers, also hostile ones, and for consumers."""

import asyncio
import contextlib
import gzip
import zlib
from collections.abc import Sequence
from typing import Any

import cramjam
import kafka_wire as wire
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from lognode.client.cluster import Cluster
from lognode.client.protocol import limits
from lognode.client.protocol.types import Headers
from lognode.node.kafka import batches, codes, stored_records
from lognode.node.kafka.batches import Record
from lognode.node.kafka.clients import Shared
from lognode.node.kafka.compression import unpacked
from lognode.node.kafka.idempotent import open_id
from lognode.node.kafka.producing import Producing
from lognode.node.kafka.refused import Refused
from lognode.node.kafka.topics import Topics

ROWS: list[Any] = [
    (b"k", b"v"),
    (None, b"no key"),
    (b"", b"empty key"),
    (b"k", None),
    (b"headers", b"v", [(b"a", b"1"), (b"a", b"2"), (b"b", None)]),
    (b"x" * 300, b"y" * 70_000, [(b"one", b"1")]),
]
MOST = 4 * limits.MIB


def taken(steps: Any) -> Any:
    """The result of work in steps."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value


def read(data: bytes) -> list[Record]:
    batch = batches.opened(data)
    return taken(batches.records(unpacked(batch.compression, batch.packed, MOST), batch.count))


def expected(rows: Sequence[Any]) -> list[Any]:
    return [(key, value, [*map(tuple, more[0])] if more else []) for key, value, *more in rows]


def shown(records: Sequence[Record]) -> list[Any]:
    return [(key, value, list(headers)) for key, value, headers in records]


@pytest.mark.parametrize("rows", [ROWS, ROWS[:1], [(b"%d" % n, b"v") for n in range(1_000)]])
def test_a_batch_has_the_records_that_were_packed(rows: list[Any]) -> None:
    assert shown(read(wire.batch(rows))) == expected(rows)
    assert shown(read(wire.gzipped(rows))) == expected(rows)


def test_zstandard_frames_are_unpacked() -> None:
    body = b"".join(wire.record(at, row) for at, row in enumerate(ROWS))
    for packed in (
        zstandard.ZstdCompressor().compress(body),
        zstandard.ZstdCompressor(write_content_size=False).compress(body),
    ):
        data = wire.batch(ROWS, packed=packed, attributes=4)
        assert shown(read(data)) == expected(ROWS)


def test_snappy_and_lz4_are_unpacked() -> None:
    body = b"".join(wire.record(at, row) for at, row in enumerate(ROWS))
    block = bytes(cramjam.snappy.compress_raw(body))
    java = java_blocks(body[:40_000], body[40_000:])
    for kind, packed in ((2, block), (2, java), (3, bytes(cramjam.lz4.compress(body)))):
        assert shown(read(wire.batch(ROWS, packed=packed, attributes=kind))) == expected(ROWS)


@pytest.mark.parametrize("kind", [1, 2, 3, 4])
def test_a_small_batch_that_claims_to_be_huge_is_refused(kind: int) -> None:
    huge = bytes(64 * limits.MIB)
    if kind == 2:
        packed = bytes(cramjam.snappy.compress_raw(huge))
    elif kind == 3:
        packed = bytes(cramjam.lz4.compress(huge))
    else:
        packed = gzip.compress(huge) if kind == 1 else zstandard.compress(huge)
    with pytest.raises(Refused) as refusal:
        unpacked(kind, packed, MOST)
    assert refusal.value.code == codes.MESSAGE_TOO_LARGE


def java_blocks(*blocks: bytes) -> bytes:
    """What Java's Snappy makes: blocks with their lengths."""
    packed = [bytes(cramjam.snappy.compress_raw(each)) for each in blocks]
    return b"\x82SNAPPY\x00" + bytes(8) + b"".join(
        len(each).to_bytes(4, "big") + each for each in packed
    )  # fmt: skip


def test_many_tiny_blocks_of_snappy_are_refused_as_if_they_were_large() -> None:
    """Each takes ten microseconds of the thread that unpacks the batches of all clients."""
    assert unpacked(2, java_blocks(*[bytes(1_024)] * 4_096), 4 * limits.MIB) == bytes(
        4 * limits.MIB
    )
    assert unpacked(2, java_blocks(*[b"x"] * 4_096), 4 * limits.MIB) == b"x" * 4_096
    with pytest.raises(Refused) as refusal:
        unpacked(2, java_blocks(*[b"x"] * 4_097), 4 * limits.MIB)
    assert refusal.value.code == codes.MESSAGE_TOO_LARGE


@pytest.mark.parametrize(
    ("kind", "packed", "code"),
    [
        (1, b"", codes.CORRUPT_MESSAGE),
        (1, gzip.compress(b"x" * 99, mtime=0)[:-9], codes.CORRUPT_MESSAGE),
        (1, zlib.compress(b"x"), codes.CORRUPT_MESSAGE),
        (4, b"not a frame", codes.CORRUPT_MESSAGE),
        (5, b"x", codes.UNSUPPORTED_COMPRESSION_TYPE),
        (7, b"x", codes.UNSUPPORTED_COMPRESSION_TYPE),
    ],
)
def test_damaged_records_are_refused(kind: int, packed: bytes, code: int) -> None:
    with pytest.raises(Refused) as refusal:
        unpacked(kind, packed, MOST)
    assert refusal.value.code == code


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", codes.CORRUPT_MESSAGE),
        (wire.batch(ROWS)[:60], codes.CORRUPT_MESSAGE),
        (wire.batch(ROWS)[:-1], codes.CORRUPT_MESSAGE),
        (wire.batch(ROWS, crc=1), codes.CORRUPT_MESSAGE),
        (wire.batch(ROWS, magic=3), codes.CORRUPT_MESSAGE),
        (wire.batch(ROWS, magic=1), codes.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        (wire.batch(ROWS, magic=0), codes.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        (wire.batch(ROWS) + wire.batch(ROWS), codes.INVALID_RECORD),
        (wire.batch(ROWS, length=-5), codes.CORRUPT_MESSAGE),
        (wire.batch(ROWS, attributes=16), codes.INVALID_RECORD),
        (wire.batch(ROWS, attributes=32), codes.INVALID_RECORD),
        (wire.batch(ROWS, count=0), codes.INVALID_RECORD),
        (wire.batch(ROWS, count=-1), codes.INVALID_RECORD),
        (wire.batch(ROWS, last=99), codes.INVALID_RECORD),
        (wire.batch(ROWS, count=1 << 30, last=(1 << 30) - 1), codes.CORRUPT_MESSAGE),
        (wire.batch(ROWS[:2], packed=wire.record(0, ROWS[0])), codes.CORRUPT_MESSAGE),
        (wire.batch(ROWS[:1], packed=wire.record(1, ROWS[0])), codes.CORRUPT_MESSAGE),
        (wire.batch(ROWS[:1], packed=wire.record(0, ROWS[0]) + b"\0"), codes.CORRUPT_MESSAGE),
        (wire.batch(ROWS[:1], packed=b"\xff" * 40), codes.CORRUPT_MESSAGE),
        (wire.batch(ROWS[:1], packed=wire.varint(-7)), codes.CORRUPT_MESSAGE),
    ],
)
def test_a_bad_batch_is_refused_with_the_code_of_kafka(data: bytes, code: int) -> None:
    with pytest.raises(Refused) as refusal:
        read(data)
    assert refusal.value.code == code


@given(st.binary(max_size=200), st.integers(1, 40))
def test_any_bytes_are_records_or_refused(data: bytes, count: int) -> None:
    try:
        found = taken(batches.records(data, count))
    except Refused:
        return
    assert len(found) == count


@given(st.data())
def test_a_damaged_batch_is_refused(data: st.DataObject) -> None:
    whole = bytearray(wire.batch(ROWS[:4]))
    at = data.draw(st.integers(12, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    if 12 <= at < 16:  # the epoch of a leader, which no checksum covers
        return
    with pytest.raises(Refused):
        read(bytes(whole))


# Records as entries.


def stored(rows: Sequence[Any], *, keyed: bool = False) -> list[Any]:
    return list(stored_records.rows(b"\0\3", read(wire.batch(rows)), keyed=keyed))


def test_a_record_comes_back_as_it_was_stored() -> None:
    found = []
    for key, value, *more in stored(ROWS):
        assert key.startswith(b"\0\3")
        headers: Headers | None = more[0] if more else None
        found.append(stored_records.record(key, headers, value))
    assert shown(found) == expected(ROWS)


def test_records_without_surprises_are_stored_as_the_sdk_stores_them() -> None:
    assert stored([(b"k", b"v"), (b"k", None), (b"k", b"v", [(b"a", b"1"), (b"b", b"2")])]) == [
        (b"\0\3k", b"v"), (b"\0\3k", None), (b"\0\3k", b"v", {b"a": b"1", b"b": b"2"}),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("row", "code"),
    [
        ((b"k" * 479, b"v"), codes.INVALID_RECORD),
        ((b"k", b"v" * (limits.MIB + 1)), codes.MESSAGE_TOO_LARGE),
        ((b"k", b"v", [(b"%d" % n, b"") for n in range(33)]), codes.INVALID_RECORD),
        ((b"k", b"v", [(b"a", b"x" * 4_096)]), codes.INVALID_RECORD),
        ((b"k", b"v", [(b"a", b"x" * 2_100)] * 2), codes.INVALID_RECORD),
    ],
)
def test_a_record_beyond_the_limits_is_refused(row: Any, code: int) -> None:
    with pytest.raises(Refused) as refusal:
        stored([row])
    assert refusal.value.code == code


def test_a_compacted_topic_needs_keys() -> None:
    with pytest.raises(Refused) as refusal:
        stored([(None, b"v")], keyed=True)
    assert refusal.value.code == codes.INVALID_RECORD
    assert stored([(b"k", b"v")], keyed=True)


@given(st.binary(max_size=60))
def test_a_reserved_header_of_another_program_is_shown_as_it_is(data: bytes) -> None:
    found = stored_records.record(b"\0\3k", {stored_records.RESERVED: data}, b"v")
    assert found.value == b"v"
    assert all(type(name) is bytes for name, _ in found.headers)


# Batches for consumers.


def page(seqs: list[int], times: list[int], **more: Any) -> dict[str, Any]:
    count = len(seqs)
    return {"seqs": seqs, "timestamps": times, "keys": [b"\0\0k%d" % n for n in seqs],
            "values": [b"v"] * count, "headers": {}, **more}  # fmt: skip


def test_a_page_becomes_a_batch_for_each_timestamp() -> None:
    found = taken(batches.written(page([5, 6, 9, 20], [1, 1, 1, 2]), stored_records.record))
    heads = [batches._HEAD.unpack_from(each) for each in found]
    assert [(head[0], head[6], head[7], head[8], head[12]) for head in heads] == [
        (5, 4, 1, 1, 3), (20, 0, 2, 2, 1),
    ]  # fmt: skip
    assert all(head[5] & batches._LOG_APPEND_TIME for head in heads)
    for each in found:
        assert batches._HEAD.unpack_from(each)[1] == len(each) - 12
        assert wire.google_crc32c.value(each[21:]) == batches._HEAD.unpack_from(each)[4]


def test_the_page_of_a_single_key_is_written_too() -> None:
    found = taken(batches.written(page([1, 2], [1, 1], keys=b"\0\0k"), stored_records.record))
    assert found[0].count(b"\x02k") == 2


def test_a_control_batch_moves_a_consumer_to_the_end() -> None:
    data, end = batches.passed(5, 10)
    head = batches._HEAD.unpack_from(data)
    assert (head[0], head[6], head[12]) == (5, 4, 1)
    assert head[5] & 32
    assert end == 10


def test_a_control_batch_passes_as_much_of_a_wide_gap_as_a_batch_can() -> None:
    data, end = batches.passed(5, 1 << 40)
    assert end == 5 + (1 << 31)
    assert batches._HEAD.unpack_from(data)[6] == (1 << 31) - 1


# Batches that cost more than they seem.


def test_a_record_with_more_headers_than_an_entry_holds_is_refused_before_they_are_read() -> None:
    rows: list[Any] = [(b"k", b"v", [(b"", None)] * 100_000)]
    with pytest.raises(Refused) as refusal:
        read(wire.batch(rows))
    assert refusal.value.code == codes.INVALID_RECORD
    most = [(b"k", b"v", [(b"", None)] * 1_000)]
    assert shown(read(wire.batch(most))) == expected(most)


def test_records_with_many_headers_are_read_in_more_steps() -> None:
    """64 records are a step; their headers count as records."""
    rows: list[Any] = [(b"k", b"v", [(b"", None)] * 1_000)] * 64
    batch = batches.opened(wire.batch(rows))
    steps = sum(1 for _ in batches.records(batch.packed, batch.count))
    assert steps >= len(rows)


@pytest.mark.parametrize(
    ("attributes", "pack"),
    [
        (1, lambda data: zlib.compress(data, wbits=31)),
        (2, lambda data: bytes(cramjam.snappy.compress_raw(data))),
        (3, lambda data: bytes(cramjam.lz4.compress(data))),
        (4, zstandard.compress),
        (2, lambda _: b"\x82SNAPPY\0" + bytes(8) + b"\0\0\0\1\0" * 6_000),
    ],
)
@pytest.mark.parametrize("count", [4, 5])
def test_a_small_batch_that_unpacks_to_much_is_unpacked_beside_the_loop(
    attributes: int, pack: Any, count: int
) -> None:
    """Four million bytes take ten milliseconds of a processor, which is a thread's work."""
    packed = pack(bytes(count * limits.MIB))
    data = wire.batch([(b"k", b"v")], packed=packed, attributes=attributes)
    batch, turns = batches.opened(data), list[int]()

    async def run() -> None:
        cluster = Cluster((("127.0.0.1", 1),))
        shared = Shared()
        producing = Producing(
            cluster, Topics(cluster), open_id, shared.memory, compacts=lambda _: None
        )
        asyncio.get_running_loop().call_soon(turns.append, 1)
        try:
            with contextlib.suppress(Refused):
                await producing._plain(batch.compression, batch.packed)
            assert turns, "the loop stood still"
        finally:
            shared.close()
            await cluster.close()

    asyncio.run(run())


def test_batches_that_wait_have_bounded_memory_and_a_share_for_each_host() -> None:
    """A few kilobytes become megabytes of records, which wait while a range has no leader."""
    batch = batches.opened(wire.batch([(b"k", b"v")] * 10_000, packed=b"", attributes=1))
    shrinks: list[Any] = []

    async def run() -> None:
        cluster = Cluster((("127.0.0.1", 1),))
        shared = Shared()
        producing = Producing(
            cluster, Topics(cluster), open_id, shared.memory, compacts=lambda _: None
        )
        async with contextlib.AsyncExitStack() as stack:

            async def begin(host: str) -> Any:
                soon = cluster.now() + 0.05
                return await stack.enter_async_context(producing._memory(batch, host, soon))

            async def begin_many() -> None:
                for _ in range(100):
                    shrinks.append(await begin("greedy"))

            with pytest.raises(Refused) as refusal:
                await begin_many()
            assert refusal.value.code == codes.NOT_ENOUGH_REPLICAS
            await begin("other")
            shrinks[0](0)
            await begin("greedy")
        shared.close()
        await cluster.close()

    asyncio.run(run())
