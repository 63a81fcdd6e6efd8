"""The index of a memtable finds what a look at every entry finds."""

import random
from array import array
from itertools import islice

import pytest

from lognode.client.protocol import key_column
from lognode.client.protocol.key_column import KeyColumn
from lognode.statemachine import seq_index as module
from lognode.statemachine.column_cache import ColumnCache
from lognode.statemachine.seq_index import SeqIndex

FIRST = (1 << 40) + 7


@pytest.fixture(params=["own hash", "three hashes", "without the compiled module"])
def names(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Keys, of which none or many have the same hash; the runs are short."""
    monkeypatch.setattr(module, "_TAIL", 8)
    monkeypatch.setattr(module, "_RUN_MAX", 64)
    monkeypatch.setattr(module, "_CHAIN_MIN", 4)
    if request.param != "own hash":  # the compiled table hashes keys itself
        monkeypatch.setattr(module, "memtables", None)
    if request.param == "without the compiled module":
        monkeypatch.setattr(module, "native", None)
    if request.param == "three hashes":
        for each in (module, key_column):
            monkeypatch.setattr(each, "hash", lambda key: (-1, 0, 1)[key[-1] % 3], raising=False)
    return [b"key %d" % n for n in range(40)]


@pytest.mark.parametrize("seed", range(10))
def test_S7_the_index_finds_the_seqs_that_a_scan_finds(names: list[bytes], seed: int) -> None:
    rng = random.Random(seed)
    index, entries = SeqIndex(FIRST, ColumnCache(1 << 20)), list[bytes]()
    for _ in range(60):
        keys = rng.choices(names[:-2], k=rng.choice((1, 3, 20)))
        index.add(KeyColumn.of(keys))
        entries += keys
        seqs = {
            name: [seq for seq, key in enumerate(entries, FIRST) if key == name] for name in names
        }
        last = {name: found[-1] if found else 0 for name, found in seqs.items()}
        assert {name: index.last(name) for name in names} == last
        asked = rng.choices(names, k=rng.choice((3, 50)))
        assert index.lasts(asked) == [last[name] for name in asked]
        name = rng.choice((keys[-1], *names))
        newest = FIRST + len(entries)
        least, end = sorted((rng.randrange(newest + 9), newest - rng.choice((1, 3, 9, 99))))
        found = [seq for seq in seqs[name] if least <= seq < end]
        assert list(index.back(name, least, end)) == found[::-1]
        assert list(index.run(name, least, end)) == found
        assert list(reversed(index.run(name, least, None))) == [
            seq for seq in reversed(seqs[name]) if seq >= least
        ]
    assert len(index) == len(entries)
    assert len(index._runs) > 5


@pytest.mark.parametrize("batches", [0, 1, 60])
def test_S9_last_seqs_that_are_first_asked_for_late_are_found(
    names: list[bytes], batches: int
) -> None:
    index = SeqIndex(FIRST, ColumnCache(1 << 20))
    entries = random.Random(3).choices(names[:-2], k=7 * batches)
    for begin in range(0, len(entries), 7):
        index.add(KeyColumn.of(entries[begin : begin + 7]))
    last = {key: seq for seq, key in enumerate(entries, FIRST)}
    assert index.lasts(names) == [last.get(name, 0) for name in names]
    index.add(KeyColumn.of(names[-3:]))
    last |= zip(names[-3:], range(FIRST + len(entries), FIRST + len(index)), strict=True)
    assert index.lasts(names) == [last.get(name, 0) for name in names]
    index.forget()
    assert index.lasts(names) == [0] * len(names)


def test_S7_a_read_goes_on_below_where_it_was_when_entries_are_added(names: list[bytes]) -> None:
    index = SeqIndex(FIRST, ColumnCache(1 << 20))
    index.add(KeyColumn.of(names[:3] * 50))
    expected = list(index.back(names[1], 0))
    walk = index.back(names[1], 0)
    found = list(islice(walk, 2))
    while True:
        index.add(KeyColumn.of(names[:3] * 7))
        more = list(islice(walk, 3))
        found += more
        if not more:
            break
    assert found == expected


def test_a_pattern_across_two_hashes_is_not_an_entry() -> None:
    """The newest hashes lie side by side as bytes, in which a hash may also be found in between."""
    index = SeqIndex(FIRST, ColumnCache(1 << 20))
    index.add(KeyColumn.of([b"a", b"b"]))
    index._tail = bytearray(array("q", [1 << 32, 1]))
    crossing = int.from_bytes(index._tail[4:12], "little", signed=True)
    assert index._tail.rfind(module._packed(crossing)) == 4
    assert list(index._in_tail(crossing)) == []
