"""RangeState against a model of lists and dicts: whatever is done to it, in whatever order.

Appends with and without conditions, producers with duplicates, gaps and epochs, keys trimmed and
deleted, retention, compaction, logical snapshots, leases, memtables frozen, built and committed,
segments merged and unlinked, restarts from what meta has, splits, of which either child goes on;
and every read, whole and in pages.
LOGNODE_MODEL_EXAMPLES and LOGNODE_MODEL_STEPS say how much of it.
"""

import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import msgpack
from band_walk import Todo, in_order, page_of, walk
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lognode.client.protocol import limits
from lognode.client.protocol.records import encode_batch
from lognode.client.protocol.types import Entry
from lognode.statemachine import commands
from lognode.statemachine.band_reads import Position
from lognode.statemachine.clip import clipped
from lognode.statemachine.merge import merge
from lognode.statemachine.page import Page
from lognode.statemachine.range_state import Base, RangeState
from lognode.statemachine.segment_writer import build
from lognode.statemachine.segments import SegmentStore
from lognode.statemachine.visibility import Rules, kept_of_key

KEYS = st.one_of(
    st.sampled_from([b"a", b"a\0", b"a\0\0", b"ab", b"a" * 480, b"b", b"\xff" * 480]),
    st.integers(1, 480).map(lambda n: b"\0" * n),
    st.binary(min_size=1, max_size=3),
)
Span = tuple[bytes, bytes | None]
SPANS: st.SearchStrategy[Span] = st.sampled_from(
    [(b"", None), (b"", None), (b"a", b"b"), (b"", b"a\0"), (b"a", None)]
)
VALUES = st.one_of(
    st.none(), st.just(b""), st.binary(max_size=30), st.integers(39_999, 40_000).map(bytes)
)
HEADERS = st.one_of(
    st.none(),
    st.dictionaries(st.binary(max_size=4), st.binary(max_size=4), max_size=limits.headers_max),
)
RECORDS = st.lists(st.tuples(KEYS, VALUES, HEADERS, st.booleans()), min_size=1, max_size=12)


@dataclass
class Producer:
    """Everything that a producer ever applied, by number."""

    epoch: int = 0
    low: int = 1
    applied: dict[int, int] = field(default_factory=dict)


@dataclass
class Lease:
    """What was promised to stay readable: the seqs that were visible."""

    start: bytes
    end: bytes | None
    through: int
    until_ms: int
    seqs: frozenset[int]

    def clipped(self, start: bytes, end: bytes | None, foreign: set[int]) -> "Lease | None":
        span = _clipped((self.start, self.end), (start, end))
        return span and Lease(*span, self.through, self.until_ms, self.seqs - foreign)


@dataclass
class Model:
    """What the range holds, as plainly as can be said: what is removed is marked, one by one."""

    entries: list[Entry] = field(default_factory=list)
    removed: set[int] = field(default_factory=set)
    compactions: list[tuple[bytes, bytes | None, int, int]] = field(default_factory=list)
    leases: dict[str, Lease] = field(default_factory=dict)
    producers: dict[int, Producer] = field(default_factory=dict)
    last_ms: int = 0
    refused: dict[int, int] = field(default_factory=dict)
    """Of the last append: whose conditions did not hold, and the last seqs of their keys."""

    @property
    def visible(self) -> list[Entry]:
        return [entry for entry in self.entries if entry.seq not in self.removed]

    def of(self, key: bytes) -> list[Entry]:
        return [entry for entry in self.visible if entry.key == key]

    def passes(self, ms: int) -> None:
        """Log time, and what it ends."""
        self.last_ms = max(self.last_ms, ms)
        self.leases = {k: v for k, v in self.leases.items() if v.until_ms > self.last_ms}

    def split(self, start: bytes, end: bytes | None) -> None:
        """Only the keys in [start, end) are left."""
        foreign = {e.seq for e in self.entries if not _within(e.key, start, end)}
        self.removed |= foreign
        leases = {k: v.clipped(start, end, foreign) for k, v in self.leases.items()}
        self.leases = {k: v for k, v in leases.items() if v is not None}

    def remove(self, start: bytes, end: bytes | None, before: int) -> None:
        self.removed.update(
            e.seq for e in self.entries if _within(e.key, start, end) and e.seq < before
        )

    def compact(self, start: bytes, end: bytes | None, before: int, cutoff_ms: int) -> None:
        before = min(before, len(self.entries) + 1)
        self.compactions.append((start, end, before, cutoff_ms))
        for key in {e.key for e in self.visible if _within(e.key, start, end)}:
            own = [mark for mark in self.compactions if _within(key, mark[0], mark[1])]
            before, cutoff_ms = max(m[2] for m in own), max(m[3] for m in own)
            below = [e for e in self.of(key) if e.seq < before]
            self.removed.update(e.seq for e in below[:-1])
            for last in below[-1:]:
                if last.value is None and last.timestamp_ms < cutoff_ms:
                    self.removed.add(last.seq)

    def pass_snapshots(self, start: bytes, end: bytes | None, before: int) -> None:
        for key in {e.key for e in self.visible if _within(e.key, start, end)}:
            newest = max((e.seq for e in self.of(key) if e.snapshot and e.seq < before), default=0)
            self.remove(key, key + b"\0", newest)

    def append(self, batch: dict[str, Any], ms: int) -> tuple[str, list[int | None]]:
        """The status, or an error's code, and the seqs."""
        self.passes(ms)
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
        newest = {entry.key: entry.seq for entry in self.visible}
        seq = len(self.entries) + 1
        taken: list[int] = []
        self.refused = {}
        for at in fresh:
            key = records[at][0]
            if batch["expects"] and batch["expects"][at] not in (-1, newest.get(key, 0)):
                if not batch["each"]:
                    return "SEQUENCE_MISMATCH", []
                self.refused[at] = newest.get(key, 0)
                continue
            newest[key] = seq + len(taken)
            taken.append(at)
        fresh = taken
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
        self.span: Span = (b"", None)
        self.state = self._begun(None)
        self.model = Model()
        self.exports: dict[str, tuple[Any, list[Todo], list[Entry]]] = {}
        """By lease: what is read through it, what is left to read, what was."""
        self.log: list[bytes] = []
        self.next_number = {0: 1, 1: 1, 2: 1}

    def teardown(self) -> None:
        self.store.close()
        shutil.rmtree(self.directory)

    def _begun(self, base: Base | None) -> RangeState:
        start, end = self.span
        return RangeState(start=start, end=end, store=self.store, base=base)

    def _own(self, records: list[Any]) -> list[Any]:
        return [record for record in records if _within(record[0], *self.span)]

    def apply(self, command: bytes) -> list[dict[str, Any]]:
        self.log.append(command)
        return list(self.state.apply(len(self.log) + 1, 1, command).replies or ())

    # Writing.

    def _send(self, batches: list[dict[str, Any]], ms: int) -> None:
        batches = [batch for batch in batches if batch["records"]]
        if not batches:
            return
        encoded = [
            encode_batch(
                [r[0] for r in b["records"]], [r[1] for r in b["records"]],
                producer=b["producer"], epoch=b["epoch"], low=b["low"], numbers=b["numbers"],
                prevs=b["prevs"], expects=b["expects"], each=b["each"],
                headers=[r[2] for r in b["records"]],
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
            refused = self.model.refused
            assert reply.get("refused", []) == list(refused)
            assert reply.get("actual", []) == list(refused.values())
            if "first_seq" in reply:
                assert seqs == list(range(reply["first_seq"], reply["first_seq"] + len(seqs)))
            else:
                # Of what is settled the seq may be forgotten, never wrong.
                row = self.model.producers.get(batch["producer"])
                low = 0 if row is None else row.low
                for number, seq, told in zip(batch["numbers"], seqs, reply["seqs"], strict=True):
                    assert told == seq or (told is None and number < low)
                fresh = {s for s in seqs if s is not None and s > len(self.model.entries) - 99}
                old = {*reply["duplicates"], *refused}
                assert {seqs[at] for at in range(len(seqs)) if at not in old} <= fresh
                assert not refused.keys() & set(reply["duplicates"])

    @rule(records=RECORDS, ms=st.integers(0, 50))
    def append(self, records: list[Any], ms: int) -> None:
        self._send([_batch(self._own(records))], ms)

    @rule(parts=st.lists(RECORDS, min_size=2, max_size=3), ms=st.integers(0, 50))
    def append_several(self, parts: list[Any], ms: int) -> None:
        self._send([_batch(self._own(records)) for records in parts], ms)

    @rule(records=RECORDS, data=st.data(), ms=st.integers(0, 50))
    def append_if(self, records: list[Any], data: st.DataObject, ms: int) -> None:
        records = self._own(records)
        newest = {entry.key: entry.seq for entry in self.model.visible}
        expects = [
            data.draw(st.sampled_from([-1, newest.get(key, 0), newest.get(key, 0), 0, 1]))
            for key, *_ in records
        ]
        self._send([_batch(records, expects=expects)], ms)

    @rule(
        records=RECORDS, producer=st.integers(0, 2), back=st.integers(0, 12),
        settled=st.integers(0, 40), data=st.data(), ms=st.integers(0, 50),
    )  # fmt: skip
    def append_each_if(
        self, records: list[Any], producer: int, back: int, settled: int, data: st.DataObject,
        ms: int,
    ) -> None:  # fmt: skip
        """Records with conditions each by itself, also such that may have been applied before."""
        records = self._own(records)
        newest = {entry.key: entry.seq for entry in self.model.visible}
        expects = [
            data.draw(st.sampled_from([-1, newest.get(key, 0), newest.get(key, 0), 0, 1]))
            for key, *_ in records
        ]
        first = max(1, self.next_number[producer] - back)
        numbers = list(range(first, first + len(records)))
        self.next_number[producer] = max(self.next_number[producer], first + len(records))
        self._send(
            [
                _batch(
                    records, producer=producer, epoch=9, low=max(1, first - settled),
                    numbers=numbers, expects=expects, each=True,
                )
            ],
            ms,
        )  # fmt: skip

    @rule(
        records=RECORDS, producer=st.integers(1, 2), epoch=st.integers(1, 2),
        back=st.integers(0, 20), steps=st.lists(st.integers(1, 3), min_size=12, max_size=12),
        settled=st.integers(0, 40), gaps=st.booleans(), data=st.data(),
    )  # fmt: skip
    def append_numbered(
        self, records: list[Any], producer: int, epoch: int, back: int, steps: list[int],
        settled: int, gaps: bool, data: st.DataObject,
    ) -> None:  # fmt: skip
        records = self._own(records)
        number = max(1, self.next_number[producer] - back)
        if not records:
            return
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

    # Removal.

    def _do(self, kind: int, payload: Any, ms: int) -> str:
        self.model.passes(ms)
        (reply,) = self.apply(commands.encode(kind, ms, payload))
        return "ok" if reply["status"] == "ok" else reply["error"]["code"]

    @rule(
        keys=st.lists(KEYS, min_size=1, max_size=4), before=st.integers(0, 70),
        kind=st.sampled_from([commands.TRIM_KEYS, commands.DELETE_KEYS]), ms=st.integers(0, 50),
    )  # fmt: skip
    def trim_keys(self, keys: list[bytes], before: int, kind: int, ms: int) -> None:
        if any(not _within(key, *self.span) for key in keys):
            assert self._do(kind, [[key, before] for key in keys], ms) == "GENERATION_MISMATCH"
            return
        assert self._do(kind, [[key, before] for key in keys], ms) == "ok"
        for key in keys:
            self.model.remove(key, key + b"\0", before)

    @rule(data=st.data(), kind=st.sampled_from([commands.TRIM_KEYS, commands.DELETE_KEYS]))
    def trim_a_key_that_is_here(self, data: st.DataObject, kind: int) -> None:
        if self.model.visible:
            entry = data.draw(st.sampled_from(self.model.visible))
            self.trim_keys([entry.key], entry.seq + 1, kind, 0)

    @rule(span=SPANS, before=st.integers(0, 70), ms=st.integers(0, 50))
    def trim_spans(self, span: Span, before: int, ms: int) -> None:
        assert self._do(commands.TRIM_SPANS, [[*span, before]], ms) == "ok"
        self.model.remove(*span, min(before, len(self.model.entries) + 1))

    @rule(
        span=SPANS, before=st.integers(0, 100), delete_ms=st.integers(0, 20), ms=st.integers(0, 50)
    )
    def compact(self, span: Span, before: int, delete_ms: int, ms: int) -> None:
        payload = [*span, before, commands.COMPACT, delete_ms]
        assert self._do(commands.COMPACT_TO, payload, ms) == "ok"
        self.model.compact(*span, before, self.model.last_ms - delete_ms)

    @rule(span=SPANS, before=st.integers(0, 100), ms=st.integers(0, 50))
    def pass_snapshots(self, span: Span, before: int, ms: int) -> None:
        payload = [*span, before, commands.SNAPSHOT, 0]
        assert self._do(commands.COMPACT_TO, payload, ms) == "ok"
        self.model.pass_snapshots(*span, min(before, len(self.model.entries) + 1))

    @rule(
        lease=st.sampled_from("xyz"), span=SPANS, back=st.integers(0, 9), ms=st.integers(0, 50),
        length_ms=st.integers(1, 30),
    )  # fmt: skip
    def take_lease(self, lease: str, span: Span, back: int, ms: int, length_ms: int) -> None:
        now_ms = max(ms, self.model.last_ms)
        through = max(0, len(self.model.entries) - back)
        live = {k: v for k, v in self.model.leases.items() if v.until_ms > now_ms}
        if lease in live:
            return  # that would be another matter
        until_ms = now_ms + length_ms
        outcome = self._do(commands.TAKE_LEASE, [lease, *span, through, until_ms], ms)
        own = _clipped(span, self.span)
        if own is None:
            assert outcome == "GENERATION_MISMATCH"
            return
        assert outcome == "ok"
        seqs = [e.seq for e in self.model.visible if e.seq <= through and _within(e.key, *span)]
        self.model.leases[lease] = Lease(*own, through, until_ms, frozenset(seqs))

    @precondition(lambda self: self.model.leases)
    @rule(lease=st.sampled_from("xyz"), ms=st.integers(0, 50), length_ms=st.integers(1, 30))
    def renew_lease(self, lease: str, ms: int, length_ms: int) -> None:
        now_ms = max(ms, self.model.last_ms)
        held = self.model.leases.get(lease)
        through, until_ms = 0 if held is None else held.through, now_ms + length_ms
        span = self.span if held is None else (held.start, held.end)
        outcome = self._do(commands.RENEW_LEASE, [lease, *span, through, until_ms], ms)
        if held is None or held.until_ms <= now_ms:
            assert outcome == "NOT_FOUND"
            return
        assert outcome == "ok"
        self.model.leases[lease] = replace(held, until_ms=max(held.until_ms, until_ms))

    @precondition(lambda self: self.model.leases)
    @rule(lease=st.sampled_from("xyz"))
    def release_lease(self, lease: str) -> None:
        assert self._do(commands.RELEASE_LEASE, [lease], 0) == "ok"
        self.model.leases.pop(lease, None)

    @precondition(lambda self: self.model.leases)
    @rule(data=st.data(), limit=st.integers(1, 7))
    def read_leased(self, data: st.DataObject, limit: int) -> None:
        as_of = data.draw(st.sampled_from(sorted(self.model.leases)))
        lease = self.model.leases[as_of]
        span = lease.start, lease.end
        held = [e for e in self.model.entries if e.seq in lease.seqs]
        read = partial(self.state.read_span, *span, limit=limit, bytes_max=300, as_of=as_of)
        assert _pages(read, 1, limit, 300) == held
        by_key = sorted(held, key=lambda e: (e.key, e.seq))
        assert walk(self.state, *span, limit=limit, bytes_max=300, as_of=as_of) == by_key
        for key in {e.key for e in held}:
            own = [e for e in held if e.key == key]
            assert self.state.latest(key, as_of=as_of) == own[-1]
            assert self.state.count(key, as_of=as_of) == len(own)
            assert self.state.tail(key, 1, as_of=as_of) == own[-1].seq
            assert self.state.scan(key, limit=99, bytes_max=1 << 30, as_of=as_of).entries() == own

    # From memory to files, and back from them.

    @rule()
    def freeze(self) -> None:
        self.state.freeze()

    @rule(ms=st.integers(0, 50))
    def freeze_by_command(self, ms: int) -> None:
        self.apply(commands.encode(commands.FREEZE, ms, None))
        self.model.passes(ms)
        assert len(self.state.memtable) == 0

    @precondition(lambda self: self.state.queue)
    @rule()
    def flush_the_oldest(self) -> None:
        frozen = self.state.queue[0]
        info = None
        if len(frozen.memtable):
            path = self.directory / "building"
            info = build(path, frozen.memtable.first_seq, frozen.sources())
            self.store.add(path, info.content_id)
        base = self.state.base_with(frozen, info)
        row = msgpack.unpackb(msgpack.packb(base.to_wire()), strict_map_key=False)
        self.state.flushed(Base.from_wire(row))

    @precondition(lambda self: self.state.durable_base.manifest)
    @rule(data=st.data())
    def merge(self, data: st.DataObject) -> None:
        base = self.state.durable_base
        begin = data.draw(st.integers(0, len(base.manifest) - 1))
        end = data.draw(st.integers(begin + 1, min(len(base.manifest), begin + 3)))
        inputs = base.manifest[begin:end]
        rules = Rules.of(base.tables, *self.span)
        path = self.directory / "merging"
        self.store.close()  # an environment is open once in a process; nodes merge in another
        merged = merge(
            path, [(self.store.path(info.content_id), info) for info in inputs],
            start=self.span[0], end=self.span[1],
            kept=partial(kept_of_key, rules, oldest=begin == 0),
        )  # fmt: skip
        if merged is not None:
            self.store.add(path, merged.content_id)
        self.state.merged(self.state.base_merged(inputs, merged))

    @precondition(lambda self: self.state.durable_base.manifest)
    @rule()
    def unlink(self) -> None:
        """Whatever nobody may see any more; the files that nobody names go."""
        base = self.state.durable_base
        rules = Rules.of(base.tables, *self.span)
        for info in base.manifest:
            if rules.unneeded(info):
                self.state.merged(self.state.base_merged([info], None))
        for gone in self.store.forget_except(info.content_id for info in self.state.manifest):
            self.store.remove(gone)

    @rule()
    def restart(self) -> None:
        before = self.state
        base = before.durable_base
        self.store.close()
        self.store = SegmentStore(self.directory / "files")
        self.state = self._begun(base)
        for index in range(base.applied_index + 1, len(self.log) + 2):
            self.state.apply(index, 1, self.log[index - 2])
        for name in ("next_seq", "last_timestamp_ms", "state_hash", "applied_index"):
            assert getattr(self.state, name) == getattr(before, name)
        assert self.state.effects.to_wire() == before.effects.to_wire()
        assert self.state.producers.to_wire() == before.producers.to_wire()
        ms = before.last_timestamp_ms
        assert msgpack.packb(self.state.removal.to_wire(ms)) == msgpack.packb(
            before.removal.to_wire(ms)
        )

    @rule(at=KEYS, right=st.booleans())
    def split(self, at: bytes, right: bool) -> None:
        start, end = self.span
        if at == start or not _within(at, start, end):
            return
        self.apply(commands.encode(commands.SEAL, 0, 1))
        self.state.freeze()
        while self.state.queue:
            self.flush_the_oldest()
        self.span = (at, end) if right else (start, at)
        base = clipped(self.state.durable_base, *self.span)
        tables = {**base.tables, "sealed": None}
        row = msgpack.packb(Base(manifest=base.manifest, tables=tables).to_wire())
        self.state = self._begun(Base.from_wire(msgpack.unpackb(row, strict_map_key=False)))
        self.log = []
        self.model.split(*self.span)

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

    @rule(positions=st.dictionaries(KEYS, st.integers(1, 60), max_size=9))
    def look_for_unread(self, positions: dict[bytes, int]) -> None:
        found = self.state.unread(list(positions.items()))
        assert found == [key for key in positions if key in found]
        held = {
            key for key, seq in positions.items()
            if any(entry.key == key and entry.seq >= seq for entry in self.model.entries)
        }  # fmt: skip
        visible = {
            key for key, seq in positions.items()
            if any(entry.seq >= seq for entry in self.model.of(key))
        }  # fmt: skip
        in_files = {
            key for key, seq in positions.items() if seq < self.state.memtables()[0].first_seq
        }
        assert visible <= set(found) <= held | in_files

    @rule(prefix=st.binary(max_size=2), after=st.none() | KEYS, limit=st.integers(1, 9))
    def list_keys(self, prefix: bytes, after: bytes | None, limit: int) -> None:
        keys = sorted({entry.key for entry in self.model.visible})
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
            e for e in self.model.visible if e.seq >= at and _within(e.key, start, end)
        ]

    @rule(start=st.binary(max_size=2), end=st.none() | KEYS, limit=st.integers(1, 9))
    def read_by_key(self, start: bytes, end: bytes | None, limit: int) -> None:
        assert walk(self.state, start, end, limit=limit, bytes_max=300) == sorted(
            (e for e in self.model.visible if _within(e.key, start, end)),
            key=lambda e: (e.key, e.seq),
        )

    @precondition(lambda self: self.model.leases)
    @rule(data=st.data(), limit=st.integers(1, 5))
    def export_leased(self, data: st.DataObject, limit: int) -> None:
        """A page of one that may go on for long, through whatever else happens."""
        name = data.draw(st.sampled_from(sorted(self.model.leases)))
        lease = self.model.leases[name]
        span = lease.start, lease.end
        asked = *span, lease.seqs
        if name not in self.exports or self.exports[name][0] != asked:
            self.exports[name] = asked, [(*span, Position())], []
        _, todo, found = self.exports[name]
        found += page_of(self.state, todo, limit=limit, bytes_max=200, as_of=name)
        if not todo:
            held = [e for e in self.model.entries if e.seq in lease.seqs]
            assert in_order(found) == sorted(held, key=lambda e: (e.key, e.seq))
            del self.exports[name]

    @rule(ms=st.integers(0, 60))
    def by_time(self, ms: int) -> None:
        seq, _ = self.state.seq_at_timestamp(ms)
        assert all((e.seq >= seq) == (e.timestamp_ms >= ms) for e in self.model.visible)
        assert 1 <= seq <= len(self.model.entries) + 1
        if not self.model.removed:
            later = [e.seq for e in self.model.entries if e.timestamp_ms >= ms]
            assert seq == (later[0] if later else len(self.model.entries) + 1)

    @invariant()
    def totals(self) -> None:
        assert self.state.next_seq == len(self.model.entries) + 1
        assert self.state.last_timestamp_ms == self.model.last_ms


def _within(key: bytes, start: bytes, end: bytes | None) -> bool:
    return key >= start and (end is None or key < end)


def _clipped(one: Span, other: Span) -> Span | None:
    start = max(one[0], other[0])
    ends = [end for end in (one[1], other[1]) if end is not None]
    return (start, min(ends, default=None)) if not ends or start < min(ends) else None


def _batch(records: list[Any], **fields: Any) -> dict[str, Any]:
    defaults = {
        "producer": 0, "epoch": 1, "low": 1, "numbers": list(range(1, len(records) + 1)),
        "prevs": None, "expects": None, "each": False,
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
    max_examples=int(os.environ.get("LOGNODE_MODEL_EXAMPLES", "25")),
    stateful_step_count=int(os.environ.get("LOGNODE_MODEL_STEPS", "40")), deadline=None,
    print_blob=True, suppress_health_check=list(HealthCheck),
)  # fmt: skip
