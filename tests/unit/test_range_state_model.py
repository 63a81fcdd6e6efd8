"""RangeState against a model of lists and dicts: whatever is done to it, in whatever order.

Appends with and without conditions, producers with duplicates, gaps and epochs, memtables frozen,
built, committed or thawed, restarts from what meta has; and every read, whole and in pages.
"""

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgpack
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lognode.client.records import encode_batch
from lognode.client.types import Entry
from lognode.statemachine import commands
from lognode.statemachine.page import Page
from lognode.statemachine.range_state import Base, Frozen, RangeState
from lognode.statemachine.segment_writer import build
from lognode.statemachine.segments import SegmentStore

KEYS = st.one_of(
    st.sampled_from([b"a", b"a\0", b"a\0\0", b"ab", b"a" * 480, b"b", b"\xff" * 480]),
    st.integers(1, 480).map(lambda n: b"\0" * n),
    st.binary(min_size=1, max_size=3),
)
VALUES = st.one_of(
    st.none(), st.just(b""), st.binary(max_size=30), st.integers(39_999, 40_000).map(bytes)
)
HEADERS = st.one_of(st.none(), st.dictionaries(st.binary(max_size=4), st.binary(max_size=4)))
RECORDS = st.lists(st.tuples(KEYS, VALUES, HEADERS, st.booleans()), min_size=1, max_size=12)


@dataclass
class Producer:
    """Everything that a producer ever applied, by number."""

    epoch: int = 0
    low: int = 1
    applied: dict[int, int] = field(default_factory=dict)


@dataclass
class Model:
    """What the range holds, as plainly as can be said."""

    entries: list[Entry] = field(default_factory=list)
    producers: dict[int, Producer] = field(default_factory=dict)
    last_ms: int = 0

    def of(self, key: bytes) -> list[Entry]:
        return [entry for entry in self.entries if entry.key == key]

    def append(self, batch: dict[str, Any], ms: int) -> tuple[str, list[int | None]]:
        """The status, or an error's code, and the seqs."""
        self.last_ms = max(self.last_ms, ms)
        records, numbers = batch["records"], batch["numbers"]
        row = self.producers.get(batch["producer"], Producer())
        fresh = list(range(len(records)))
        low = 1
        if batch["producer"]:
            if batch["epoch"] < row.epoch:
                return "FENCED", []
            low = max(row.low, batch["low"])
            for at, prev in enumerate(batch["prevs"] or ()):
                if prev >= low and prev not in row.applied and prev not in numbers[:at]:
                    return "OUT_OF_ORDER", []
            fresh = [at for at in fresh if numbers[at] >= low and numbers[at] not in row.applied]
        newest = {entry.key: entry.seq for entry in self.entries}
        seq = len(self.entries) + 1
        for offset, at in enumerate(fresh):
            key = records[at][0]
            if batch["expects"] and batch["expects"][at] not in (-1, newest.get(key, 0)):
                return "SEQUENCE_MISMATCH", []
            newest[key] = seq + offset
        seqs: list[int | None] = [row.applied.get(number) for number in numbers]
        for offset, at in enumerate(fresh):
            key, value, headers, snapshot = records[at]
            self.entries.append(
                Entry(key, seq + offset, self.last_ms, headers or None, value, snapshot)
            )
            seqs[at] = seq + offset
        if batch["producer"]:
            row.epoch, row.low = max(row.epoch, batch["epoch"]), low
            row.applied.update((numbers[at], seq + offset) for offset, at in enumerate(fresh))
            self.producers[batch["producer"]] = row
        return "ok", seqs


class Machine(RuleBasedStateMachine):
    """Drives both and compares."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        (self.directory / "files").mkdir()
        self.store = SegmentStore(self.directory / "files")
        self.state = RangeState(start=b"", end=None, store=self.store)
        self.model = Model()
        self.log: list[bytes] = []
        self.frozen: Frozen | None = None
        self.next_number = {1: 1, 2: 1}

    def teardown(self) -> None:
        self.store.close()
        shutil.rmtree(self.directory)

    def apply(self, command: bytes) -> list[dict[str, Any]]:
        self.log.append(command)
        return list(self.state.apply(len(self.log) + 1, 1, command).replies or ())

    # Writing.

    def _send(self, batches: list[dict[str, Any]], ms: int) -> None:
        encoded = [
            encode_batch(
                [r[0] for r in b["records"]], [r[1] for r in b["records"]],
                producer=b["producer"], epoch=b["epoch"], low=b["low"], numbers=b["numbers"],
                prevs=b["prevs"], expects=b["expects"], headers=[r[2] for r in b["records"]],
                snapshots=[at for at, r in enumerate(b["records"]) if r[3]],
            )
            for b in batches
        ]  # fmt: skip
        replies = self.apply(commands.encode(commands.APPEND, ms, encoded))
        assert len(replies) == len(batches)
        for batch, reply in zip(batches, replies, strict=True):
            status, seqs = self.model.append(batch, ms)
            if status != "ok":
                assert reply["error"]["code"] == status
                assert reply["error"]["outcome"] == "not_applied"
                continue
            assert reply["status"] == "ok", (reply, batch)
            assert reply["timestamp_ms"] == self.model.last_ms
            if "first_seq" in reply:
                assert seqs == list(range(reply["first_seq"], reply["first_seq"] + len(seqs)))
            else:
                # Of what is settled the seq may be forgotten, never wrong.
                low = self.model.producers[batch["producer"]].low
                for number, seq, told in zip(batch["numbers"], seqs, reply["seqs"], strict=True):
                    assert told == seq or (told is None and number < low)
                fresh = {s for s in seqs if s is not None and s > len(self.model.entries) - 99}
                assert {
                    seqs[at] for at in range(len(seqs)) if at not in reply["duplicates"]
                } <= fresh

    @rule(records=RECORDS, ms=st.integers(0, 50))
    def append(self, records: list[Any], ms: int) -> None:
        self._send([_batch(records)], ms)

    @rule(parts=st.lists(RECORDS, min_size=2, max_size=3), ms=st.integers(0, 50))
    def append_several(self, parts: list[Any], ms: int) -> None:
        self._send([_batch(records) for records in parts], ms)

    @rule(records=RECORDS, data=st.data(), ms=st.integers(0, 50))
    def append_if(self, records: list[Any], data: st.DataObject, ms: int) -> None:
        newest = {entry.key: entry.seq for entry in self.model.entries}
        expects = [
            data.draw(st.sampled_from([-1, newest.get(key, 0), newest.get(key, 0), 0, 1]))
            for key, *_ in records
        ]
        self._send([_batch(records, expects=expects)], ms)

    @rule(
        records=RECORDS, producer=st.integers(1, 2), epoch=st.integers(1, 2),
        back=st.integers(0, 20), steps=st.lists(st.integers(1, 3), min_size=12, max_size=12),
        settled=st.integers(0, 40), gaps=st.booleans(), data=st.data(),
    )  # fmt: skip
    def append_numbered(
        self, records: list[Any], producer: int, epoch: int, back: int, steps: list[int],
        settled: int, gaps: bool, data: st.DataObject,
    ) -> None:  # fmt: skip
        number = max(1, self.next_number[producer] - back)
        numbers = []
        for step in steps[: len(records)]:
            numbers.append(number)
            number += step if gaps else 1
        prevs = None
        if data.draw(st.booleans()):
            prevs = [data.draw(st.integers(0, n - 1)) if gaps else 0 for n in numbers]
        low = max(1, numbers[0] - settled)
        self.next_number[producer] = max(self.next_number[producer], number)
        self._send(
            [
                _batch(
                    records, producer=producer, epoch=epoch, low=low, numbers=numbers, prevs=prevs
                )
            ],
            7,
        )

    @rule(producer=st.integers(1, 2), epoch=st.integers(1, 3))
    def fence(self, producer: int, epoch: int) -> None:
        self.apply(commands.encode(commands.FENCE, 0, [producer, epoch, 5]))
        row = self.model.producers.setdefault(producer, Producer())
        row.epoch = max(row.epoch, epoch)

    @rule(producer=st.integers(1, 2))
    def retire(self, producer: int) -> None:
        self.apply(commands.encode(commands.RETIRE_PRODUCERS, 0, [producer]))
        self.model.producers.pop(producer, None)

    @rule()
    def no_op(self) -> None:
        self.apply(commands.NO_OP)

    # From memory to files, and back from them.

    @precondition(lambda self: self.frozen is None)
    @rule()
    def freeze(self) -> None:
        self.frozen = self.state.freeze()

    @precondition(lambda self: self.frozen is not None)
    @rule()
    def flush(self) -> None:
        frozen, self.frozen = self.frozen, None
        assert frozen is not None
        info = None
        if len(frozen.memtable):
            path = self.directory / "building"
            info = build(path, frozen.memtable.first_seq, frozen.sources())
            self.store.add(path, info.content_id)
        base = self.state.base_with(frozen, info)
        row = msgpack.unpackb(msgpack.packb(base.to_wire()), strict_map_key=False)
        self.state.flushed(Base.from_wire(row))

    @precondition(lambda self: self.frozen is not None)
    @rule()
    def thaw(self) -> None:
        frozen, self.frozen = self.frozen, None
        assert frozen is not None
        self.state.thaw(frozen)

    @rule()
    def restart(self) -> None:
        before, self.frozen = self.state, None
        base = before.durable_base
        self.store.close()
        self.store = SegmentStore(self.directory / "files")
        self.state = RangeState(start=b"", end=None, store=self.store, base=base)
        for index in range(base.applied_index + 1, len(self.log) + 2):
            self.state.apply(index, 1, self.log[index - 2])
        for name in ("next_seq", "last_timestamp_ms", "state_hash", "applied_index"):
            assert getattr(self.state, name) == getattr(before, name)
        assert self.state.producers.to_wire() == before.producers.to_wire()

    # Reading.

    @rule(
        key=KEYS, bounds=st.tuples(st.integers(0, 60), st.none() | st.integers(0, 60)),
        limit=st.integers(1, 7), bytes_max=st.sampled_from([1, 100, 1 << 20]),
    )  # fmt: skip
    def read_key(
        self, key: bytes, bounds: tuple[int, int | None], limit: int, bytes_max: int
    ) -> None:
        start, end = bounds
        held = self.model.of(key)
        within = [e for e in held if e.seq >= start and (end is None or e.seq < end)]
        forwards = _pages(
            lambda at: self.state.scan(key, at, end, limit=limit, bytes_max=bytes_max),
            start, limit, bytes_max,
        )  # fmt: skip
        assert forwards == within
        backwards = _pages(
            lambda at: self.state.scan(
                key, start, at, limit=limit, bytes_max=bytes_max, reverse=True
            ),
            1000 if end is None else end, limit, bytes_max,
        )  # fmt: skip
        assert backwards == within[::-1]
        assert self.state.count(key, start, end) == len(within)
        assert self.state.latest(key) == (held[-1] if held else None)
        assert self.state.last_seq(key) == (held[-1].seq if held else 0)
        expected = held[-limit:][0].seq if held else 1
        assert self.state.tail(key, limit) == expected

    @rule(prefix=st.binary(max_size=2), after=st.none() | KEYS, limit=st.integers(1, 9))
    def list_keys(self, prefix: bytes, after: bytes | None, limit: int) -> None:
        keys = sorted({entry.key for entry in self.model.entries})
        wanted = [k for k in keys if k.startswith(prefix) and (after is None or k > after)]
        assert self.state.keys(prefix, after, limit=limit) == wanted[:limit]

    @rule(
        start=st.binary(max_size=2), end=st.none() | KEYS, at=st.integers(1, 40),
        limit=st.integers(1, 9), bytes_max=st.sampled_from([1, 300, 1 << 20]),
    )  # fmt: skip
    def read_span(
        self, start: bytes, end: bytes | None, at: int, limit: int, bytes_max: int
    ) -> None:
        found = _pages(
            lambda at: self.state.read_span(start, end, at, limit=limit, bytes_max=bytes_max),
            at, limit, bytes_max,
        )  # fmt: skip
        assert found == [
            e for e in self.model.entries
            if e.seq >= at and e.key >= start and (end is None or e.key < end)
        ]  # fmt: skip

    @rule(ms=st.integers(0, 60))
    def by_time(self, ms: int) -> None:
        later = [entry.seq for entry in self.model.entries if entry.timestamp_ms >= ms]
        expected = later[0] if later else len(self.model.entries) + 1
        assert self.state.seq_at_timestamp(ms) == expected

    @invariant()
    def totals(self) -> None:
        assert self.state.next_seq == len(self.model.entries) + 1
        assert self.state.last_timestamp_ms == self.model.last_ms


def _batch(records: list[Any], **fields: Any) -> dict[str, Any]:
    defaults = {
        "producer": 0, "epoch": 1, "low": 1, "numbers": list(range(1, len(records) + 1)),
        "prevs": None, "expects": None,
    }  # fmt: skip
    return {**defaults, "records": records, **fields}


def _pages(read: Callable[[int], Page], at: int, limit: int, bytes_max: int) -> list[Entry]:
    """All entries, page by page; each page within its bounds."""
    found: list[Entry] = []
    for _ in range(2000):
        page = read(at)
        assert len(page) <= limit
        sizes = [len(e.key) + len(e.value or b"") + 32 for e in page.entries()]
        assert sum(sizes[:-1]) < bytes_max
        found += page.entries()
        at = page.next
        if not page.more:
            return found
    raise AssertionError("the pages never end")


TestRangeState = Machine.TestCase
TestRangeState.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, print_blob=True,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
