"""Restored entries: the seqs of a backup, through memory, files and a crash."""

import asyncio
import contextlib
import random
from array import array
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgpack
import pytest

from lognode.client.pages import entries_of
from lognode.client.protocol import chunks, limits
from lognode.client.protocol.errors import LimitExceeded
from lognode.client.protocol.levels import LEVEL_MAX
from lognode.client.protocol.records import encode_batch
from lognode.client.protocol.types import Entry
from lognode.node.serving.restores import Restores
from lognode.partitions.model import Span
from lognode.statemachine import commands, restored
from lognode.statemachine.band_reads import Position
from lognode.statemachine.builder import Builder
from lognode.statemachine.range_state import Base, RangeState
from lognode.statemachine.segments import SegmentStore
from lognode.statemachine.turn_limits import TurnOver, Turns


class Range:
    """A range that is driven, flushed and restarted."""

    def __init__(self, directory: Path) -> None:
        (directory / "files").mkdir()
        self.directory = directory
        self.log: list[bytes] = []
        self._open(Base())

    def _open(self, base: Base) -> None:
        self.store = SegmentStore(self.directory / "files")
        self.state = RangeState(start=b"", end=None, store=self.store, base=base)
        for index in range(base.applied_index + 1, len(self.log) + 2):
            self.state.apply(index, 1, self.log[index - 2])

    def apply(self, command: bytes) -> dict[str, Any]:
        self.log.append(command)
        (reply,) = self.state.apply(len(self.log) + 1, 1, command).replies or ()
        return dict(reply)

    def flush(self) -> None:
        """Build the segments as the node does, in the builder process."""
        self.state.freeze()
        while self.state.queue:
            frozen, info = self.state.queue[0], None
            if len(frozen.memtable):
                path = self.directory / "building"
                info = builder.build(path, frozen.memtable.first_seq, frozen.sources())
                self.store.add(path, info.content_id)
            self.state.flushed(Base.from_wire(self.state.base_with(frozen, info).to_wire()))

    def crash(self) -> None:
        base = self.state.durable_base
        self.store.close()
        self._open(base)


builder = Builder()


@pytest.fixture(scope="module", autouse=True)
def _end_builder() -> Iterator[None]:
    yield
    builder.stop()


@pytest.fixture
def range_(tmp_path: Path) -> Range:
    return Range(tmp_path)


def row(entries: list[Entry]) -> list[Any]:
    seqs = array("q", [entry.seq for entry in entries]).tobytes()
    data = encode_batch(
        [entry.key for entry in entries], [entry.value for entry in entries],
        producer=0, epoch=0, low=1, numbers=1,
    )  # fmt: skip
    return [entries[0].timestamp_ms, seqs, data]


def restore(range_: Range, next_seq: int, *rows: list[Any], ms: int = 9_000) -> dict[str, Any]:
    return range_.apply(commands.encode(commands.RESTORE, ms, [next_seq, list(rows)]))


def append(range_: Range, key: bytes, ms: int = 1) -> dict[str, Any]:
    data = encode_batch([key], [b"new"], producer=0, epoch=0, low=1, numbers=1)
    return range_.apply(commands.encode(commands.APPEND, ms, [data]))


def held(range_: Range) -> list[Entry]:
    """All entries in the order of seq, by the read that a backup uses."""
    found: list[Entry] = []
    start = 1
    while True:
        page = range_.state.read_span(b"", None, start, None, limit=7, bytes_max=1 << 20)
        found += page.entries()
        if not page.more:
            return found
        start = page.next


@pytest.mark.parametrize("seed", range(6))
def test_S6_restored_entries_keep_seqs_and_times(range_: Range, seed: int) -> None:
    rng = random.Random(seed)
    entries: list[Entry] = []
    seq, ms = 0, 1_000
    for _ in range(300):
        seq += rng.choice([1, 1, 1, 2, 50, 1 << 33])
        ms += rng.choice([0, 0, 1, 100])
        key = b"k%d" % rng.randrange(20)
        entries.append(Entry(key, seq, ms, None, rng.choice([None, b"v%d" % seq]), False))
    at = 0
    while at < len(entries):
        some = [e for e in entries[at : at + 9] if e.timestamp_ms == entries[at].timestamp_ms]
        at += len(some)
        command = (some[-1].seq + 1, row(some))
        assert restore(range_, *command)["status"] == "ok"
        action = rng.random()
        if action < 0.1:
            range_.flush()
        elif action < 0.2:
            range_.crash()
        if rng.random() < 0.3:  # a repetition changes nothing
            assert restore(range_, *command)["status"] == "ok"
    assert restore(range_, seq + 100)["status"] == "ok"
    steps = (range_.crash, range_.flush, range_.crash) if seed % 2 else ()
    for step in (lambda: None, *steps):  # without steps, the next append meets the same memtable
        step()
        assert held(range_) == entries
        state = range_.state
        for key in {entry.key for entry in entries}:
            own = [entry for entry in entries if entry.key == key]
            page = state.scan(key, 1, limit=1_000, bytes_max=1 << 20)
            assert page.entries() == own
            assert state.count(key) == len(own)
            assert state.last_seq(key) == own[-1].seq
            back = state.scan(key, limit=1_000, bytes_max=1 << 20, reverse=True)
            assert back.entries() == own[::-1]
    reply = append(range_, b"k1", ms=10_000)
    assert (reply["first_seq"], reply["timestamp_ms"]) == (seq + 100, 10_000)
    assert held(range_)[:-1] == entries
    assert held(range_)[-1].seq == seq + 100
    range_.flush()
    assert held(range_)[-1].seq == seq + 100
    late = Entry(b"k", seq + 200, ms, None, b"late", False)
    assert restore(range_, seq + 201, row([late]))["error"]["code"] == "CONFLICT"


def exported(range_: Range, limit: int) -> list[Entry]:
    """All entries by the read that checks a restore, in turns as a node reads."""
    found: list[Entry] = []
    at: Position | None = Position()
    turns = Turns()
    for _ in range(2_000):
        with contextlib.suppress(TurnOver), range_.store.on_hand(turns):
            page, at = range_.state.read_bands(b"", None, at, limit=limit, bytes_max=1 << 20)
            body = msgpack.unpackb(msgpack.packb(page.to_wire()), strict_map_key=False)
            found += entries_of(chunks.unpacked(body))
        if at is None:
            return sorted(found)
    raise AssertionError("the read does not end")


@pytest.mark.parametrize("removed", [False, True], ids=["whole", "with-a-floor"])
def test_gaps_between_seqs_cost_a_read_of_memory_nothing(range_: Range, removed: bool) -> None:
    """A turn paid for each seq of a gap, so a turn never sufficed, and the read never ended."""
    entries = [Entry(b"k%d" % (at % 3), at << 33, 5, None, b"v", False) for at in range(1, 40)]
    assert restore(range_, 1 << 40, row(entries))["status"] == "ok"
    if removed:
        range_.apply(commands.encode(commands.TRIM_KEYS, 5, [[b"k1", 5 << 33]]))
        entries = [each for each in entries if each.key != b"k1" or each.seq >= 5 << 33]
    for limit in (1, 3, 1_000):
        assert exported(range_, limit) == sorted(entries)


@pytest.mark.parametrize(
    "seqs", [[2, 2], [3, 2], [0, 1], [1], [1, 9]], ids=["twice", "falls", "zero", "few", "beyond"]
)
def test_unsound_seqs_are_refused(range_: Range, seqs: list[int]) -> None:
    sound = row([Entry(b"a", 1, 5, None, b"", False), Entry(b"b", 2, 5, None, b"", False)])
    sound[1] = array("q", seqs).tobytes()
    assert restore(range_, 9, sound)["error"]["code"] == "CORRUPT_DATA"
    assert held(range_) == []
    assert range_.state.next_seq == 1


def test_seqs_and_times_leave_room_for_later_ones() -> None:
    assert restored.fits([limits.restored_seq_max, []])
    assert not restored.fits([limits.restored_seq_max + 1, []])
    last = limits.timestamp_max_ms
    assert restored.fits([9, [[last, bytes(8), b""]]])
    assert not restored.fits([9, [[last + 1, bytes(8), b""]]])


def test_a_range_with_entries_of_its_own_takes_no_backup(range_: Range) -> None:
    append(range_, b"a")
    reply = restore(range_, 10, row([Entry(b"a", 5, 5, None, b"", False)]))
    assert reply["error"]["code"] == "CONFLICT"
    assert [entry.seq for entry in held(range_)] == [1]


@pytest.mark.parametrize(
    ("count", "value", "limit"),
    [(4_000, b"", "batch_records_max"), (2, b"v" * (256 << 10), "values_bytes_max")],
    ids=["records", "values"],
)
def test_all_batches_of_a_request_together_have_bounds(
    count: int, value: bytes, limit: str
) -> None:
    """Members apply a request in one step: 256 batches had 2,560,000 records."""
    proposed: list[Any] = []

    async def propose(*command: Any) -> dict[str, Any]:
        proposed.append(command)
        return {}

    replica: Any = SimpleNamespace(
        state=SimpleNamespace(level=LEVEL_MAX, next_seq=1), check_takes=lambda: None,
        descriptor=SimpleNamespace(span=Span(b"", None)), propose_and_wait=propose,
    )  # fmt: skip
    keys = [b"k%04d" % at for at in range(count)]
    batch = encode_batch(keys, [value] * count, producer=0, epoch=0, low=1, numbers=1)

    def restore(rows: int) -> None:
        body = {"next_seq": 1 << 20, "rows": [[1, b"", batch]] * rows}
        asyncio.run(Restores(lambda: LEVEL_MAX).restore(replica, body))

    restore(2)
    assert len(proposed) == 1
    with pytest.raises(LimitExceeded) as refused:
        restore(8)
    assert refused.value.fields["limit"] == limit
    assert len(proposed) == 1
