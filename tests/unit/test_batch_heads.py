"""Reads of a span pass the batches of a memtable that have no key of the span."""

import random
from array import array
from collections.abc import Iterator
from pathlib import Path

import pytest
from lineages import Lineages

from lognode.client.protocol.key_column import KeyColumn
from lognode.client.protocol.key_partitions import prefix, span
from lognode.client.protocol.records import encode_batch
from lognode.client.protocol.types import Entry
from lognode.statemachine import column_cache, commands
from lognode.statemachine.batch_heads import BatchHeads
from lognode.statemachine.column_cache import Columns
from lognode.statemachine.range_state import RangeState
from lognode.statemachine.spans import Span

PARTITIONS = 33
BATCHES = 200


def batches_of(runs: list[tuple[int, int]]) -> list[int]:
    return [at for begin, end in runs for at in range(begin, end)]


def spans(rng: random.Random, letters: bytes, longest: int) -> Iterator[Span]:
    def key() -> bytes:
        return bytes(rng.choices(letters, k=rng.randint(0, longest)))

    for _ in range(400):
        start, end = sorted((key(), key()))
        yield start, rng.choice([end, end, None])


@pytest.mark.parametrize(("letters", "longest"), [(b"\0\1a\xff", 3), (b"\0a", 12), (b"ab", 12)])
def test_no_batch_with_a_key_of_the_span_is_passed(letters: bytes, longest: int) -> None:
    rng = random.Random(longest)
    heads, batches = BatchHeads(), []
    for _ in range(60):
        keys = [
            bytes(rng.choices(letters, k=rng.randint(1, longest)))
            for _ in range(rng.randint(1, 2))
        ]  # fmt: skip
        batches.append(keys)
        heads.add(KeyColumn.of(keys))
    passed = 0
    for start, end in spans(rng, letters, longest):
        low, high = sorted(rng.sample(range(61), 2))
        named = batches_of(heads.runs(low, high, (start, end)))
        assert named == sorted(set(named))
        assert set(named) <= set(range(low, high))
        wanted = {
            at for at in range(low, high)
            if any(start <= key and (end is None or key < end) for key in batches[at])
        }  # fmt: skip
        assert wanted <= set(named)
        passed += high - low - len(named)
    assert passed > 1_000


def test_batches_of_other_partitions_are_passed_without_exception() -> None:
    heads = BatchHeads()
    numbers = [0, 1, 254, 255, 256, 257, 1, 1, 999]
    for number in numbers:
        heads.add(KeyColumn.of([prefix(number) + b"k", prefix(number) + b"\xff" * 9]))
    for number in numbers:
        wanted = [at for at, each in enumerate(numbers) if each == number]
        assert batches_of(heads.runs(0, len(numbers), span(number))) == wanted
    assert heads.runs(0, len(numbers), span(1)) == [(1, 2), (6, 8)]


@pytest.fixture
def state(tmp_path: Path) -> Iterator[RangeState]:
    log = Lineages(tmp_path / "log")
    (state,) = log.ranges
    rng = random.Random(3)
    for at in range(BATCHES):
        partition = rng.randrange(PARTITIONS)
        keys = [prefix(partition) + b"%d" % rng.randrange(50) for _ in range(rng.randint(1, 9))]
        values = [b"%d" % at] * len(keys)
        data = encode_batch(keys, values, producer=0, epoch=1, low=1, numbers=1)
        assert log.do(state, commands.APPEND, [data])["status"] == "ok"
    yield state
    log.close()


def pages(state: RangeState, of: Span, start: int, end_seq: int | None) -> list[Entry]:
    found: list[Entry] = []
    while True:
        page = state.read_span(*of, start, end_seq, limit=7, bytes_max=1 << 20)
        found += page.entries()
        if not page.more:
            assert page.next == (state.next_seq if end_seq is None else end_seq)
            return found
        assert page.next > start
        start = page.next


@pytest.mark.parametrize("is_trimmed", [False, True])
def test_a_read_of_a_partition_decodes_its_own_batches_alone(
    state: RangeState, monkeypatch: pytest.MonkeyPatch, is_trimmed: bool
) -> None:
    """Also where each entry is looked at, since others are removed."""
    everything = pages(state, (b"", None), 1, None)
    if is_trimmed:
        payload = [[*span(0), state.next_seq]]
        state.apply(state.applied_index + 1, 1, commands.encode(commands.TRIM_SPANS, 1, payload))
    decoded: list[bytes] = []
    made = Columns.__init__

    def counted(columns: Columns, data: bytes) -> None:
        decoded.append(data)
        made(columns, data)

    monkeypatch.setattr(column_cache.Columns, "__init__", counted)
    for partition in range(1, PARTITIONS):
        decoded.clear()
        state.store.columns._columns.clear()
        wanted = [each for each in everything if each.key.startswith(prefix(partition))]
        assert pages(state, span(partition), 1, None) == wanted
        assert len(set(decoded)) == len({each.value for each in wanted})
        begin, end = state.next_seq // 3, state.next_seq // 2
        part = [each for each in wanted if begin <= each.seq < end]
        assert pages(state, span(partition), begin, end) == part


def test_reads_of_restored_entries_pass_batches_and_gaps(tmp_path: Path) -> None:
    """1,100 entries whose seqs have gaps are more than a turn reads, and their seqs rise by more
    than that in a turn."""
    log = Lineages(tmp_path / "log")
    (state,) = log.ranges
    entries: list[Entry] = []
    rows = []
    for at in range(110):
        partition = at % PARTITIONS
        some = [
            Entry(prefix(partition) + b"k", 5 + 30 * at + 3 * each, 7, None, b"%d" % each, False)
            for each in range(10)
        ]
        seqs = array("q", [each.seq for each in some]).tobytes()
        data = encode_batch(
            [each.key for each in some], [each.value for each in some],
            producer=0, epoch=0, low=1, numbers=1,
        )  # fmt: skip
        rows.append([7, seqs, data])
        entries += some
    command = commands.encode(commands.RESTORE, 9, [entries[-1].seq + 4, rows])
    (reply,) = state.apply(state.applied_index + 1, 1, command).replies or ()
    assert reply["status"] == "ok"
    assert [each.seq for each in whole(state)] == [each.seq for each in entries]
    for partition in range(PARTITIONS):
        wanted = [each for each in entries if each.key.startswith(prefix(partition))]
        assert pages(state, span(partition), 1, None) == wanted
    assert pages(state, span(4), 700, 1_400) == [
        each for each in entries if each.key.startswith(prefix(4)) and 700 <= each.seq < 1_400
    ]
    log.close()


def whole(state: RangeState) -> list[Entry]:
    found: list[Entry] = []
    at = 1
    while True:
        page = state.read_span(b"", None, at, None, limit=5_000, bytes_max=1 << 20)
        found += page.entries()
        if not page.more:
            return found
        assert page.next > at
        at = page.next
