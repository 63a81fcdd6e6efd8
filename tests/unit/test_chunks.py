"""Columns of bytes: what a node puts in is what a reader unpacks, as objects or as Arrow arrays."""

import random
from array import array
from typing import Any

import msgpack
import numpy as np
import pytest

from lognode.client.pages import entries_of
from lognode.client.protocol import chunks, frame, frames
from lognode.client.protocol.chunks import Chunk, Chunks
from lognode.client.protocol.errors import LimitExceeded, RemoteProtocolError
from lognode.client.protocol.frame import Decoder, Frame, Spliced
from lognode.client.protocol.reads import EXPORT
from lognode.client.protocol.types import Entry
from lognode.statemachine.block_layout import ALL_BYTES, Laid, layout_of
from lognode.statemachine.block_output import BlockEncoder, HeaderMarks
from lognode.statemachine.block_slices import Portion
from lognode.statemachine.entries import Entries
from lognode.statemachine.scattered import Scattered
from lognode.statemachine.segment_block import PLAIN, Block, Codec
from lognode.statemachine.segment_format import Bases
from lognode.statemachine.strings import Strings


def made_up(rng: random.Random, count: int, first_seq: int) -> list[Entry]:
    """In the order of key and seq, some without a value, with headers or marked."""
    keys = sorted(b"k%03d" % rng.randrange(max(1, count // 2)) for _ in range(count))
    return [
        Entry(
            key, first_seq + at, 5_000 + rng.randrange(100),
            {b"h": b"%d" % at} if rng.random() < 0.1 else None,
            None if rng.random() < 0.2 else rng.randbytes(rng.randrange(30)),
            rng.random() < 0.1,
        )
        for at, key in enumerate(keys)
    ]  # fmt: skip


def block_of(entries: list[Entry], bases: Bases) -> Block:
    keys = [e.key for e in entries]
    values = [e.value or b"" for e in entries]
    rows = Entries(
        Strings.of(keys),
        np.array([e.seq - bases.seq for e in entries], bases.seq_code),
        np.array([e.timestamp_ms - bases.timestamp_ms for e in entries], bases.timestamp_code),
        Scattered.side_by_side(b"".join(values), np.array(list(map(len, values)), np.int64)),
        np.array([e.value is None for e in entries]),
        {at: e.headers for at, e in enumerate(entries) if e.headers},
        {at for at, e in enumerate(entries) if e.snapshot},
    )
    fresh = np.array([at == 0 or keys[at - 1] != key for at, key in enumerate(keys)])
    codec = Codec(PLAIN, None)
    order = np.arange(len(rows))
    layout = layout_of(rows, order, fresh, rows.keys.take(order[fresh]), None)
    laid = Laid._make(layout.take(ALL_BYTES, True))
    data = BlockEncoder(codec, bases).encode(laid, HeaderMarks(rows, order), 0)
    return Block(data, codec, 0)


def received(portion: Portion) -> list[Entry]:
    """What a client makes of the frame of it."""
    body = Spliced({**portion.to_wire(), "position": None})
    (message,) = Decoder().feed(frame.encode(7, frames.OK, body))
    assert isinstance(message, Frame)
    assert (message.request_id, message.kind) == (7, frames.OK)
    assert frame.encode(7, frames.OK, message.body) == frame.encode(7, frames.OK, body)
    return entries_of(chunks.unpacked(message.body))


def joined(*parts: Chunk) -> list[Chunk]:
    """The chunks as which these travel."""
    return answered(msgpack.unpackb(b"".join(Chunks(parts).pieces()), strict_map_key=False))


def test_parts_of_blocks_and_single_entries_come_as_they_were_put_in() -> None:
    for seed in range(200):
        rng = random.Random(seed)
        bases = [Bases(1, 4_000, "I", "I"), Bases(3, 5_000, "Q", "I"), Bases(3, 4_990, "I", "Q")]
        portion, whole, expected, seq = Portion(), Portion(), [], 10
        for _ in range(rng.randrange(1, 6)):
            entries = made_up(rng, rng.randrange(1, 40), seq)
            seq += len(entries)
            if rng.random() < 0.3:
                for entry in entries:
                    portion.add(entry)
                expected += entries
            else:
                begin, end = sorted(rng.sample(range(len(entries) + 1), 2))
                portion.take(block_of(entries, rng.choice(bases)).chunk(begin, end))
                expected += entries[begin:end]
            if rng.random() < 0.3:
                whole.extend(portion)
                portion = Portion()
        whole.extend(portion)
        assert len(whole) == len(expected)
        assert received(whole) == expected, f"seed={seed}"


def test_blocks_of_one_file_travel_as_one_chunk() -> None:
    bases = Bases(1, 5_000, "I", "I")
    parts = [block_of(made_up(random.Random(at), 20, 1 + 20 * at), bases) for at in range(5)]
    (one,) = joined(*(part.chunk(0, part.count) for part in parts))
    assert one.rows == 100
    other = block_of(made_up(random.Random(9), 20, 200), Bases(7, 5_000, "I", "I"))
    assert len(joined(one, other.chunk(3, 9), one)) == 3


def test_entries_together_fill_a_portion_as_they_do_one_by_one() -> None:
    for seed in range(300):
        rng = random.Random(seed)
        entries = made_up(rng, rng.randrange(1, 30), 10)
        if rng.random() < 0.5:
            entries = [entry._replace(headers=None) for entry in entries]
        room: dict[str, Any] = {
            "limit": rng.choice([1, 7, 99]), "bytes_max": rng.randrange(1, 2_000),
            "begun": rng.random() < 0.3,
        }  # fmt: skip
        one_by_one, together = Portion(**room), Portion(**room)
        before = rng.randrange(len(entries))
        for entry in entries[:before]:
            assert one_by_one.add(entry) == together.add(entry)
        added = 0
        while before + added < len(entries) and one_by_one.add(entries[before + added]):
            added += 1
        assert together.add_all(entries[before:]) == added, f"seed={seed}"
        assert (together.size, together.full) == (one_by_one.size, one_by_one.full)
        assert together.chunks() == one_by_one.chunks()


def test_a_large_page_is_one_frame_and_one_over_the_limit_is_refused() -> None:
    """Columns of each of the lengths that msgpack tells apart."""
    for size in (0, 1, 255, 256, 65_535, 65_536, 1 << 20):
        entry = Entry(b"k", 1, 5, {b"h": b"x"}, bytes(size), True)
        portion = Portion()
        for at in range(3):
            portion.take(block_of([entry._replace(seq=1 + at)], Bases(1, 5, "I", "I")).chunk(0, 1))
        assert received(portion) == [entry._replace(seq=1 + at) for at in range(3)]
    part = block_of([Entry(b"k", 1, 5, None, bytes(1 << 20))], Bases(1, 5, "I", "I")).chunk(0, 1)
    with pytest.raises(LimitExceeded, match=r"frame has 943\d{4} bytes; at most 9437184"):
        frame.encode(7, frames.OK, Spliced({"chunks": Chunks([part] * 9)}))


def test_values_that_are_absent_are_none_and_empty_ones_are_not() -> None:
    chunk = Chunk.of([b"a", b"b", b"b"], [1, 2, 3], [5, 5, 6], [None, b"", b"x"], {}, [1])
    assert chunk.unpacked_values() == [None, b"", b"x"]
    assert (chunk.headers, chunk.snapshots) == (None, [1])
    assert Chunk.from_wire(list(chunk)) == chunk


@pytest.mark.parametrize(
    "broken",
    [{"rows": 3}, {"rows": 0}, {"rows": "2"}, {"first_seq": -1}, {"first_seq": 1 << 63},
     {"first_ms": None},
     {"key_lengths": b"\1\0"}, {"key_lengths": b"\1\0\3"}, {"key_lengths": "ab"},
     {"repeats": b"\1\0\0\0"}, {"repeats": b"\1\0\0\0\2\0\0\0"}, {"keys": b"a"}, {"keys": None},
     {"seqs": b"1234"}, {"seqs": b"123456789"}, {"seqs": None}, {"timestamps": b""},
     {"value_lengths": b"\1\0\0\0"}, {"values": b"12"}, {"values": [b"1"]},
     {"headers": {2: {}}}, {"headers": {-1: {}}}, {"headers": 7}, {"snapshots": [2]},
     {"snapshots": 7}, {"snapshots": [[]]}],
)  # fmt: skip
def test_an_oversized_chunk_is_refused(broken: dict[str, Any]) -> None:
    chunk = Chunk.of([b"a", b"b"], [1, 2], [5, 5], [b"1", None], {}, [])
    with pytest.raises(RemoteProtocolError, match=r"is not valid|breaks the protocol"):
        answered([list(chunk._replace(**broken))])


LAST = (1 << 63) - 1
SHORT = [3, (1 << 32) - 1]


@pytest.mark.parametrize(("column", "first"), [("seqs", "first_seq"), ("timestamps", "first_ms")])
@pytest.mark.parametrize(
    ("code", "offsets", "base", "is_valid"),
    [
        ("Q", [1, LAST], 0, True), ("Q", [1, LAST + 1], 0, False), ("Q", [1 << 63, 2], 0, False),
        ("Q", [1, LAST - 9], 9, True), ("Q", [1, LAST - 8], 9, False),
        ("Q", [(1 << 64) - 1, 1], 0, False), ("Q", [1, (1 << 64) - 1], LAST, False),
        ("I", SHORT, LAST - SHORT[1], True), ("I", SHORT, LAST - SHORT[1] + 1, False),
        ("I", [3, 4], LAST - 4, True), ("I", [3, 4], LAST - 3, False),
    ],
)  # fmt: skip
def test_S12_a_chunk_with_a_number_above_the_largest_is_refused(
    column: str, first: str, code: str, offsets: list[int], base: int, is_valid: bool
) -> None:
    """Compiled code would take the number for a negative one."""
    chunk = Chunk.of([b"a", b"b"], [1, 2], [5, 5], [b"1", None], {}, [])
    chunk = chunk._replace(**{column: array(code, offsets).tobytes(), first: base})
    if is_valid:
        assert answered([list(chunk)]) == [chunk]
    else:
        with pytest.raises(RemoteProtocolError, match="is above 9223372036854775807"):
            answered([list(chunk)])


@pytest.mark.parametrize("page", [{}, {"chunks": None}, {"chunks": {}}, {"chunks": [7]},
                                  {"chunks": [[1, 2]]}])  # fmt: skip
def test_a_page_without_chunks_is_refused(page: dict[str, Any]) -> None:
    with pytest.raises(RemoteProtocolError):
        chunks.unpacked(EXPORT.check_answer(page))


def answered(rows: list[Any]) -> list[Chunk]:
    """The chunks of a page as a client takes it from a node."""
    return chunks.of_page(EXPORT.check_answer({"chunks": rows}))
