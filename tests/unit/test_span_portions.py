"""Reads of a span take the entries of a memtable together, with the result of one by one."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from lineages import KEYS, Lineages

from lognode.client.protocol.records import encode_batch
from lognode.client.protocol.types import Entry
from lognode.statemachine import commands
from lognode.statemachine.memtable import Memtable
from lognode.statemachine.range_state import RangeState
from lognode.statemachine.span_reads import Sieve

Ask = tuple[bytes, bytes | None, int, int | None, int, int]


def walk(state: RangeState, ask: Ask) -> tuple[list[Entry], int]:
    """Return all entries of an ask, page by page, and where the last page ends."""
    start, end, at, until, limit, bytes_max = ask
    entries: list[Entry] = []
    while True:
        page = state.read_span(start, end, at, until, limit=limit, bytes_max=bytes_max)
        entries += page.entries()
        if not page.more:
            return entries, page.next
        assert page.next > at
        assert len(page.seqs) <= limit
        at = page.next


@pytest.fixture
def state(tmp_path: Path) -> RangeState:
    log = Lineages(tmp_path / "log")
    (state,) = log.ranges
    rng = random.Random(5)
    for _ in range(300):
        log.append(state, rng.choices(KEYS, k=rng.randint(1, 9)), value=b"v" * rng.randint(0, 40))
    log.trim_span(state, (b"", b"c"), 400)
    log.trim_span(state, (b"c", b"e"), 900)
    return state


def asks(rng: random.Random, count: int) -> list[Ask]:
    found: list[Ask] = []
    for _ in range(count):
        start, end = sorted(rng.choices([b"", *KEYS], k=2))
        bounds = sorted(rng.choices(range(1, 1_700), k=2))
        found.append((
            start, rng.choice([None, end + b"z"]), bounds[0], rng.choice([None, bounds[1]]),
            rng.choice([1, 7, 64, 5_000]), rng.choice([1, 200, 1 << 20]),
        ))  # fmt: skip
    return found


@pytest.mark.parametrize("is_trimmed", [True, False])
def test_entries_that_are_read_together_are_those_that_are_read_one_by_one(
    state: RangeState, monkeypatch: pytest.MonkeyPatch, is_trimmed: bool
) -> None:
    together = 0
    shows_all: Callable[[Sieve, int], bool] = Sieve.shows_all

    def counted(sieve: Sieve, seq: int) -> bool:
        nonlocal together
        found = shows_all(sieve, seq)
        together += found
        return found

    for ask in asks(random.Random(7), 50):
        begin = ask[2] if is_trimmed else max(ask[2], 900)
        ask = (*ask[:2], begin, *ask[3:])
        with monkeypatch.context() as patch:
            patch.setattr(Sieve, "shows_all", counted)
            found = walk(state, ask)
            patch.setattr(Sieve, "shows_all", lambda *_: False)
            assert found == walk(state, ask), ask
        with monkeypatch.context() as patch:
            patch.setattr(Memtable, "plain", lambda *_: None)
            assert found == walk(state, ask), ask
    assert together > 50


def test_plain_entries_are_columns_of_the_same_entries(state: RangeState) -> None:
    (memtable,) = state.memtables()
    rng = random.Random(11)
    for _ in range(100):
        begin, end = sorted(rng.sample(range(memtable.first_seq, memtable.end_seq), 2))
        plain = memtable.plain(begin, end)
        assert plain is not None
        entries = memtable.entries(begin, end)
        assert list(plain.seqs) == [entry.seq for entry in entries]
        assert plain.keys == [entry.key for entry in entries]
        assert plain.timestamps == [entry.timestamp_ms for entry in entries]
        assert plain.values == [entry.value for entry in entries]


def test_entries_with_headers_and_snapshots_are_not_plain(tmp_path: Path) -> None:
    log = Lineages(tmp_path / "log")
    (state,) = log.ranges
    log.append(state, [b"a", b"b"])
    log.append(state, [b"a"], snapshot=True)
    data = encode_batch(
        [b"a", b"b"],
        [b"v", b"v"],
        producer=0,
        epoch=1,
        low=1,
        numbers=1,
        headers=[None, {b"h": b""}],
    )
    assert log.do(state, commands.APPEND, [data])["status"] == "ok"
    log.append(state, [b"a"])
    (memtable,) = state.memtables()
    assert memtable.plain(1, 3) is not None
    for begin, end in ((1, 4), (3, 4), (4, 6), (5, 6), (1, 7)):
        assert memtable.plain(begin, end) is None
    assert memtable.plain(6, 7) is not None
    page = state.read_span(b"", None, 1, limit=99, bytes_max=1 << 20)
    assert page.snapshots == [2]
    assert page.headers == {4: {b"h": b""}}
    log.close()
