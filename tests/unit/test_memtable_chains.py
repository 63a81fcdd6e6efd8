"""A key's seqs in a memtable: chains that are kept say what following them says."""

import random
from itertools import count

import pytest

from lognode.client.protocol.records import decode_batch, encode_batch
from lognode.statemachine import seq_index as module
from lognode.statemachine.column_cache import ColumnCache
from lognode.statemachine.memtable import Memtable
from lognode.statemachine.seq_index import SeqIndex

FIRST = 101


def filled(memtable: Memtable, keys: list[bytes]) -> None:
    data = encode_batch(
        keys, [b"v"] * len(keys), producer=1, epoch=1, low=1, numbers=1
    )  # fmt: skip
    memtable.add(decode_batch(data), data, None, 1)


@pytest.mark.parametrize("kept", [300, 1 << 17])
def test_S7_reads_between_appends_see_what_was_appended(
    kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_CHAINED_MAX", kept)
    rng = random.Random(5)
    memtable = Memtable(FIRST, ColumnCache(1 << 20))
    names = [b"hot", b"warm", b"cold", b"never"]
    history: dict[bytes, list[int]] = {name: [] for name in names}
    at = count(FIRST)
    for _ in range(200):
        keys = rng.choices(names[:3], weights=[50, 20, 1], k=rng.randint(1, 12))
        filled(memtable, keys)
        for key in keys:
            history[key].append(next(at))
        for key in names:
            start = rng.choice([1, FIRST, rng.randint(1, memtable.end_seq + 5)])
            end = rng.choice([None, rng.randint(start, memtable.end_seq + 5)])
            expected = [s for s in history[key] if start <= s and (end is None or s < end)]
            assert list(memtable.seqs(key, start, end)) == expected
            assert list(memtable.seqs_reversed(key, start, end)) == expected[::-1]
            assert memtable.count(key, start, end) == len(expected)
            if expected:
                n = rng.randint(1, len(expected))
                assert memtable.seq_from_end(key, n, end) == expected[-n]


def test_a_page_of_a_hot_key_passes_only_what_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    memtable = Memtable(FIRST, ColumnCache(1 << 20))
    filled(memtable, [b"hot"] * 5_000)
    passed = 0
    back = SeqIndex.back

    def counted(self: SeqIndex, key: bytes, least: int):  # type: ignore[no-untyped-def]
        nonlocal passed
        for seq in back(self, key, least):
            passed += 1
            yield seq

    monkeypatch.setattr(SeqIndex, "back", counted)
    assert memtable.count(b"hot", 1, None) == 5_000
    filled(memtable, [b"hot"] * 7)
    passed = 0
    assert memtable.count(b"hot", 1, None) == 5_007
    assert list(memtable.seqs(b"hot", FIRST + 10, FIRST + 12)) == [FIRST + 10, FIRST + 11]
    assert passed == 7


def test_chains_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CHAINED_MAX", 1_000)
    memtable = Memtable(FIRST, ColumnCache(1 << 20))
    for number in range(20):
        filled(memtable, [b"%02d" % number] * 200)
    for number in range(20):
        assert memtable.count(b"%02d" % number, 1, None) == 200
    assert list(memtable._index._kept) == [b"%02d" % number for number in range(15, 20)]
    assert memtable._index._kept_entries == 1_000


@pytest.mark.parametrize("seed", range(20))
def test_entries_that_are_read_together_are_those_read_one_by_one(seed: int) -> None:
    rng = random.Random(seed)
    memtable = Memtable(FIRST, ColumnCache(1 << 20))
    for at in range(rng.randint(1, 6)):
        size = rng.randint(1, 9)
        keys = rng.choices([b"a", b"b", b"c"], k=size)
        values = [rng.choice([None, b"", b"%d" % at]) for _ in keys]
        headers = [rng.choice([None, {b"h": b"%d" % at}]) for _ in keys]
        marks = [place for place in range(size) if rng.random() < 0.2]
        data = encode_batch(
            keys, values, headers=rng.choice([None, headers]), snapshots=marks,
            producer=1, epoch=1, low=1, numbers=1,
        )  # fmt: skip
        chosen = sorted(rng.sample(range(size), rng.randint(1, size)))
        memtable.add(decode_batch(data), data, rng.choice([None, chosen]), 50 + at)
    one_by_one = list(map(memtable.entry, range(FIRST, memtable.end_seq)))
    for begin in range(FIRST, memtable.end_seq):
        for end in range(begin, memtable.end_seq + 1):
            found = memtable.entries(begin, end)
            assert found == one_by_one[begin - FIRST : end - FIRST], f"seed={seed}"
