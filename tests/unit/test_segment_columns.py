"""Columns of strings on their way into a segment: each step does what plain Python would do."""

import os
import random
import subprocess
import sys
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import google_crc32c
import msgpack
import numpy as np
import pytest

import lognode
from lognode.client.protocol.errors import CorruptData
from lognode.client.protocol.records import encode_batch
from lognode.statemachine import key_order
from lognode.statemachine.batch_entries import entries_of
from lognode.statemachine.block_cache import BlockCache
from lognode.statemachine.block_entries import EntryBlock
from lognode.statemachine.compiled import building
from lognode.statemachine.key_hashes import hash_keys
from lognode.statemachine.key_order import sort_keys
from lognode.statemachine.packed_strings import located, unpacked
from lognode.statemachine.segment_block import HEAD, PLAIN, Block
from lognode.statemachine.segment_format import BLOCK, Bases, seal, unseal
from lognode.statemachine.segment_reader import Segment
from lognode.statemachine.segment_writer import Source, build
from lognode.statemachine.strings import Strings, copy, joined, words

MODULES = [None] if building is None else [building, None]
Make = Callable[[random.Random], bytes]
KEYS: dict[str, Make] = {
    "numbers": lambda rng: b"%016d" % rng.randrange(300),
    "bytes": lambda rng: rng.randbytes(rng.randrange(1, 20)),
    "few bytes": lambda rng: bytes(rng.choices((0, 1, 255), k=rng.randrange(1, 20))),
    "zeros": lambda rng: bytes(rng.randrange(1, 40)),
    "prefixes": lambda rng: b"ab" * rng.randrange(1, 12) + bytes(rng.randrange(3)),
    "long prefixes": lambda rng: b"x" * rng.randrange(1, 480) + rng.randbytes(1),
    "the same prefix": lambda rng: b"x" * 150 + rng.randbytes(rng.randrange(3)) + b"y" * 150,
    "the same key": lambda rng: b"x" * 200,
    "eight": lambda rng: rng.randbytes(8),
    "nine": lambda rng: b"12345678" + rng.randbytes(1),
    "one": lambda rng: b"the same key",
    "zeros behind a prefix": lambda rng: b"x" * 9 + bytes(rng.randrange(60)),
    "a few": lambda rng: bytes(rng.randrange(9)) + b"y" * rng.choice((0, 9, 70)),
}


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("kind", KEYS)
def test_keys_are_sorted_as_bytes_are_and_equal_keys_stay_in_order(
    kind: str, module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_order, "building", module)
    for seed in range(60):
        rng = random.Random(f"{kind} {seed}")
        keys = [KEYS[kind](rng) for _ in range(rng.choice([1, 2, 3, 50, 700]))]
        order, fresh = sort_keys(Strings.of(keys))
        expected = sorted(range(len(keys)), key=keys.__getitem__)
        assert order.tolist() == expected, f"seed={seed}"
        in_order = [keys[at] for at in expected]
        new = [at == 0 or in_order[at - 1] != key for at, key in enumerate(in_order)]
        assert fresh.tolist() == new, f"seed={seed}"
    order, fresh = sort_keys(Strings.of([]))
    assert not len(order)
    assert not len(fresh)


def test_strings_of_any_length_are_copied_and_nothing_else_changes() -> None:
    lengths = [*range(70), 127, 128, 129, 1_000, 4_095, 4_096, 70_000]
    for seed in range(40):
        rng = random.Random(seed)
        chosen = rng.choices(lengths[: rng.choice([1, 2, 9, 70, 77])], k=rng.randrange(1, 60))
        if seed == 0:
            chosen = [5 << 20, 3, 5 << 20]
        texts = [rng.randbytes(length) for length in chosen]
        column = Strings.of(texts)
        places = rng.choices(range(len(texts)), k=100 if seed else 4)
        taken = column.take(np.array(places))
        assert list(taken) == [texts[at] for at in places], f"seed={seed}"
        assert list(joined([taken, column.slice(3, 9)])) == [*taken, *texts[3:9]]
        # Into a buffer with other bytes between the strings.
        starts = np.cumsum([2, *(length + 3 for length in chosen)])
        target = np.full(int(starts[-1]) + 9, 0xEE, np.uint8)
        copy(column, target, starts[:-1])
        expected = bytearray(b"\xee" * len(target))
        for start, string in zip(starts.tolist(), texts, strict=False):
            expected[start : start + len(string)] = string
        assert target.tobytes() == bytes(expected)


def test_words_are_big_endian_and_end_in_zeros() -> None:
    rng = random.Random(1)
    texts = [rng.randbytes(rng.randrange(30)) for _ in range(300)]
    column = Strings.of(texts)
    for at in (0, 1, 8, 16, 24, 32):
        expected = [int.from_bytes(each[at : at + 8].ljust(8, b"\0"), "big") for each in texts]
        assert words(column, np.arange(300), at).tolist() == expected


def packed(strings: list[bytes | None], rng: random.Random, *, wasteful: bool) -> bytes:
    """A column as the SDK packs it, or with heads longer than they need to be."""
    if not wasteful:
        return bytes(msgpack.packb(strings))
    found = bytearray(b"\xdd" + len(strings).to_bytes(4, "big"))
    for each in strings:
        if each is None:
            found += b"\xc0"
            continue
        width = rng.choice([width for width in (1, 2, 4) if len(each) < 1 << 8 * width])
        found += bytes((0xC3 + width.bit_length(),)) + len(each).to_bytes(width, "big") + each
    return bytes(found)


def test_packed_columns_have_the_strings_that_msgpack_finds() -> None:
    kinds: list[Callable[[random.Random], bytes | None]] = [
        lambda rng: rng.randbytes(16),
        lambda rng: rng.randbytes(rng.randrange(9)),
        lambda rng: rng.randbytes(rng.choice([255, 256, 257])),
        lambda rng: rng.randbytes(300),
        lambda rng: rng.randbytes(rng.choice([1, 65_535, 65_536])),
        lambda rng: bytes(70_000),
        lambda rng: None if rng.random() < 0.5 else b"",
        lambda rng: None,
        lambda rng: b"\xc4\x02\xc4\x00"[: rng.randrange(5)],  # looks like heads
    ]
    for seed in range(150):
        rng = random.Random(seed)
        columns: list[bytes] = []
        every: list[bytes | None] = []
        counts = []
        for _ in range(rng.randrange(1, 9)):
            kind = rng.choice(kinds)
            strings = [kind(rng) for _ in range(rng.choice([1, 2, 15, 16, 40]))]
            columns.append(packed(strings, rng, wasteful=rng.random() < 0.2))
            counts.append(len(strings))
            every += strings
        found, absent = located(columns, counts)
        assert list(found.together()) == [string or b"" for string in every], f"seed={seed}"
        missing = [string is None for string in every]
        assert (missing if absent is not None else any(missing)) == (
            False if absent is None else absent.tolist()
        )


@pytest.mark.parametrize(
    "column",
    [b"", b"\x92\xc4\x01a", b"\x91\xc4\x01a", b"\x92\xc4\x01a\xc4\x01", b"\x92\xc4\x01a\xc4\x01b!",
     b"\x92\xa1a\xa1b", b"\x92\xd9\x01a\xd9\x01b",
     b"\x92\xc4\x01a\xc0", b"\x92\x01\x02", b"\xc4\x04abcd",
     b"\x92\xc4\x01a\x91\xc0", b"\xdc\x00\x02\xc4\x01a"],
)  # fmt: skip
def test_a_column_that_is_not_so_many_strings_is_refused(column: bytes) -> None:
    with pytest.raises(ValueError, match=r"array|bytes|element|[Uu]npack"):
        unpacked([msgpack.packb([b"x", b"y"]), column], [2, 2])


def test_a_damaged_batch_is_an_error_of_its_own(tmp_path: Path) -> None:
    data = encode_batch([b"a", b"b"], [b"1", b"2"], producer=1, epoch=1, low=1, numbers=1)
    broken = data.replace(b"\xc4\x01a", b"\xa1a\x00")
    with pytest.raises(CorruptData):
        build(tmp_path / "made", 1, [Source(broken, None, 1)])


@pytest.mark.parametrize("longest", [1, 2, 16, 480])
def test_the_hashes_of_keys_are_their_crcs(longest: int) -> None:
    rng = random.Random(longest)
    for least in (1, longest):
        keys = [rng.randbytes(rng.randint(least, longest)) for _ in range(200)]
        expected = [google_crc32c.value(key) | zlib.crc32(key) << 32 for key in keys]
        assert hash_keys(Strings.of(keys)).tolist() == expected
    assert not len(hash_keys(Strings.of([])))


def test_entries_have_the_records_that_were_new_with_their_marks() -> None:
    one = encode_batch(
        [b"a", b"b", b"c"], [b"1", None, b"3"], producer=1, epoch=1, low=1, numbers=1,
        headers=[{b"h": b"x"}, None, {b"h": b"z"}], snapshots=[2],
    )  # fmt: skip
    two = encode_batch([b"d"], [b"4"], producer=1, epoch=1, low=1, numbers=4)
    sources = [Source(two, None, 1_000), Source(one, [1, 2], 1_003), Source(one, None, 1_001)]
    entries, bases = entries_of(10, sources)
    assert list(entries.keys) == [b"d", b"b", b"c", b"a", b"b", b"c"]
    assert [entries.values[at] for at in range(6)] == [b"4", b"", b"3", b"1", b"", b"3"]
    assert entries.absent is not None
    assert np.flatnonzero(entries.absent).tolist() == [1, 4]
    assert entries.headers == {2: {b"h": b"z"}, 3: {b"h": b"x"}, 5: {b"h": b"z"}}
    assert entries.snapshots == {2, 5}
    assert entries.seqs.tolist() == [0, 1, 2, 3, 4, 5]
    assert entries.timestamps.tolist() == [0, 3, 3, 1, 1, 1]
    assert bases == (10, 1_000, "I", "I")


def test_a_merge_and_a_reader_decode_a_block_alike_or_refuse_it_both(tmp_path: Path) -> None:
    """Also where a writer that is wrong made the checksum."""
    rng = random.Random(1)
    keys = [b"k%02d" % rng.randrange(40) for _ in range(60)]
    values = [rng.choice([None, b"", rng.randbytes(9)]) for _ in keys]
    data = encode_batch(
        keys, values, producer=1, epoch=1, low=1, numbers=1, snapshots=[3],
        headers=[{b"h": b"v"}] + [None] * 59,
    )  # fmt: skip
    build(tmp_path / "made", 10, [Source(data, None, 1_000)])
    segment = Segment(tmp_path / "made", "x", BlockCache(0))
    body, codec = unseal(segment._part(BLOCK, 0), BLOCK), segment._codec
    segment.close()
    fields = [*HEAD.unpack_from(body)]
    end = HEAD.size + fields[8]
    head = codec.unpack(body[HEAD.size : end], PLAIN, fields[7])
    outcomes: Counter[bool] = Counter()
    for at in range(4_000):
        broken, numbers = bytearray(head), fields.copy()
        for _ in range(rng.randrange(3) if at else 0):
            broken[rng.randrange(len(broken))] = rng.choice([0, 1, 2, 0xFF, rng.randrange(256)])
        if at and rng.random() < 0.3:
            numbers[rng.choice([2, 3, 6])] = rng.choice([0, 1, 2, 59, 60, 61, 1 << 31])
            numbers[1] = rng.choice([0] * 9 + [1, 2, 3])
        if at and rng.random() < 0.1:
            del broken[rng.randrange(len(broken)) :]
        packed = codec.pack_head(bytes(broken))
        numbers[7:9] = len(broken), len(packed)
        sealed = seal(HEAD.pack(*numbers) + packed + body[end:], BLOCK)
        found: list[object] = []
        for decode in (Block, EntryBlock):
            try:
                block = decode(sealed, codec, 0)
            except CorruptData:
                found.append(None)
                continue
            found.append([*block.keys, block.count, block.first, block.last, block.next_first_key])
            spans = [block.span(key) for key in sorted({*block.keys, b"", b"k2", b"z"})]
            if list(block.keys) == sorted(set(block.keys)):
                found[-1] = [found[-1], spans]
        assert found[0] == found[1], f"at={at}"
        outcomes[found[0] is None] += 1
    assert min(outcomes.values()) > 300
    sound = EntryBlock(seal(body, BLOCK), codec, 0).entries(1, 60, Bases(3, 0, "Q", "I"))
    order = sorted(range(60), key=keys.__getitem__)
    assert list(sound.keys) == [keys[at] for at in order[1:]]
    assert list(sound.values.together()) == [values[at] or b"" for at in order[1:]]
    assert sound.seqs.tolist() == [10 + at - 3 for at in order[1:]]
    assert sound.timestamps.tolist() == [1_000] * 59


def test_a_build_calls_python_a_few_times_a_block_and_never_for_a_record(tmp_path: Path) -> None:
    """Counts instead of times: what is done for each record is done by C, over columns."""

    def calls(records: int) -> int:
        rng = random.Random(1)
        sources = []
        for at in range(0, records, 1_000):
            keys = [b"%016d" % rng.randrange(10**6) for _ in range(1_000)]
            values = [rng.randbytes(rng.randrange(150, 250)) for _ in keys]
            data = encode_batch(keys, values, producer=1, epoch=1, low=1, numbers=1 + at)
            sources.append(Source(data, None, 1_000))
        found: Counter[str] = Counter()

        def count(_: FrameType, event: str, __: object) -> None:
            found[event] += 1

        sys.setprofile(count)
        try:
            build(tmp_path / "made", 1, sources)
        finally:
            sys.setprofile(None)
        return found["call"] + found["c_call"]

    calls(1_000)  # makes tables that stay
    more, less = calls(20_000), calls(4_000)
    # It is 0.55, above all some 60 calls a block of 145 records.
    assert (more - less) / 16_000 < 0.8


def test_a_client_does_not_load_numpy() -> None:
    """The node, the builder and the merger do: it takes 17 MB and 0.1 s."""
    where = str(Path(lognode.__file__).parents[1])
    for module in ("lognode", "lognode.client.cli.main", "lognode.node.main"):
        code = f"import sys, {module}; sys.exit('numpy' in sys.modules)"
        done = subprocess.run(
            [sys.executable, "-c", code], check=False, env={**os.environ, "PYTHONPATH": where}
        )
        assert done.returncode == 0, module
