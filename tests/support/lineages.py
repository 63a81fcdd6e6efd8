"""Ranges of one log that split and merge, over real files, beside a model of what each key shows.

The model knows keys alone: nothing that a range does to keys of its neighbours, and no split or
merge, may be seen in it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgpack
from band_walk import walk

from lognode.client.pages import entries_of
from lognode.client.protocol import chunks
from lognode.client.protocol.records import encode_batch
from lognode.client.protocol.types import Entry
from lognode.statemachine import commands
from lognode.statemachine.chains import chains
from lognode.statemachine.clip import clipped
from lognode.statemachine.merge_plan import is_oldest
from lognode.statemachine.merge_process import Task, run
from lognode.statemachine.page import Page
from lognode.statemachine.range_state import Base, RangeState
from lognode.statemachine.segment_format import SegmentInfo
from lognode.statemachine.segment_writer import build
from lognode.statemachine.segments import SegmentStore
from lognode.statemachine.spans import Span, common, has
from lognode.statemachine.unite import Parent, united
from lognode.statemachine.visibility import Rules

KEYS = [b"%c" % letter for letter in b"abcdefgh"]


@dataclass
class Shown:
    """What is visible of one key."""

    entries: list[Entry] = field(default_factory=list)
    before: int = 0
    cutoff_ms: int = 0

    def trim(self, before: int) -> None:
        self.entries = [entry for entry in self.entries if entry.seq >= before]

    def compact(self, before: int, cutoff_ms: int) -> None:
        self.before, self.cutoff_ms = max(before, self.before), max(cutoff_ms, self.cutoff_ms)
        below = [entry for entry in self.entries if entry.seq < self.before]
        if below:
            last = below[-1]
            gone = last.value is None and last.timestamp_ms < self.cutoff_ms
            self.trim(last.seq + gone)

    def pass_snapshots(self, before: int) -> None:
        newest = [e.seq for e in self.entries if e.snapshot and e.seq < before]
        if newest:
            self.trim(newest[-1])


class Lineages:
    """The ranges, in the order of keys, and the model."""

    def __init__(self, root: Path) -> None:
        (root / "files").mkdir(parents=True)
        self.root = root
        self.store = SegmentStore(root / "files")
        self.ranges = [RangeState(start=b"", end=None, store=self.store)]
        self.shown = {key: Shown() for key in KEYS}
        self.leased: dict[tuple[str, bytes], tuple[int, list[Entry]]] = {}
        """By lease and key: through which seq, and what it shows."""
        self._readable: dict[tuple[RangeState, bytes, int], bytes | None] = {}

    def close(self) -> None:
        self.store.close()

    def do(self, state: RangeState, kind: int, payload: object, ms: int = 0) -> dict[str, Any]:
        command = commands.encode(kind, ms, payload)
        (reply,) = state.apply(state.applied_index + 1, 1, command).replies or ()
        return dict(reply)

    def own(self, state: RangeState, span: Span = (b"", None)) -> list[bytes]:
        """The model's keys that are the range's, in the span."""
        own = common((state.start, state.end), span)
        return [] if own is None else [key for key in KEYS if has(own, key)]

    # What is done to a range.

    def append(
        self, state: RangeState, keys: Iterable[bytes], *, ms: int = 0, value: bytes | None = b"v",
        snapshot: bool = False,
    ) -> None:  # fmt: skip
        keys = list(keys)
        data = encode_batch(
            keys, [value] * len(keys), producer=0, epoch=1, low=1, numbers=1,
            snapshots=[0] if snapshot else [],
        )  # fmt: skip
        seq = state.next_seq
        assert self.do(state, commands.APPEND, [data], ms)["status"] == "ok"
        for at, key in enumerate(keys):
            self.shown[key].entries.append(
                Entry(key, seq + at, state.last_timestamp_ms, None, value, snapshot and not at)
            )

    def trim_span(self, state: RangeState, span: Span, before: int) -> None:
        assert self.do(state, commands.TRIM_SPANS, [[*span, before]])["status"] == "ok"
        for key in self.own(state, span):
            self.shown[key].trim(min(before, state.next_seq))

    def trim_keys(self, state: RangeState, keys: Iterable[bytes], before: int) -> None:
        assert self.do(state, commands.TRIM_KEYS, [[k, before] for k in keys])["status"] == "ok"
        for key in keys:
            self.shown[key].trim(min(before, state.next_seq))

    def compact(self, state: RangeState, span: Span, before: int, mode: int) -> None:
        self.do(state, commands.COMPACT_TO, [*span, before, mode, 2])
        before = min(before, state.next_seq)
        for key in self.own(state, span):
            if mode == commands.SNAPSHOT:
                self.shown[key].pass_snapshots(before)
            else:
                self.shown[key].compact(before, max(0, state.last_timestamp_ms - 2))

    def take_lease(self, state: RangeState, name: str, span: Span, through: int) -> None:
        """Unless its keys have one of that id or seq already."""
        keys = self.own(state, span)
        live = [(n, held[0]) for (n, key), held in self.leased.items() if key in self.own(state)]
        if not keys or through >= state.next_seq or any(name in it or through in it for it in live):
            return
        reply = self.do(state, commands.TAKE_LEASE, [name, *span, through, 1 << 40])
        assert reply["status"] == "ok", reply
        for key in keys:
            seen = [entry for entry in self.shown[key].entries if entry.seq <= through]
            self.leased[name, key] = through, seen

    def release_lease(self, state: RangeState, name: str) -> None:
        self.do(state, commands.RELEASE_LEASE, [name])
        for key in self.own(state):
            self.leased.pop((name, key), None)

    # Files.

    def flush(self, state: RangeState) -> None:
        state.freeze()
        while state.queue:
            frozen = state.queue[0]
            info: SegmentInfo | None = None
            if len(frozen.memtable):
                path = self.root / "new"
                info = build(path, frozen.memtable.first_seq, list(frozen.sources()))
                self.store.add(path, info.content_id)
            state.flushed(stored(state.base_with(frozen, info)))

    def unlink(self, state: RangeState) -> None:
        """Let go of what nobody sees."""
        base = state.durable_base
        rules = Rules.of(base.tables, state.start, state.end)
        gone = [info for info in base.manifest if rules.unneeded(info)]
        if gone:
            state.merged(stored(state.base_merged(gone, None)))

    def join(self, state: RangeState, begin: int, end: int) -> None:
        """Merge the segments of these rows, which have one clip."""
        base, span = state.durable_base, (state.start, state.end)
        inputs = base.manifest[begin:end]
        self.store.doubt(info.content_id for info in inputs)  # open once in a process
        files = [(self.store.path(info.content_id), info) for info in inputs]
        rules, oldest = Rules.of(base.tables, *span), is_oldest(base.manifest, begin)
        merged = run(Task(self.root / "merged", files, *span, rules, oldest))
        if merged is not None:
            own = common(inputs[0].clip, span)
            assert own is not None
            assert has(own, merged.min_key)
            assert has(own, merged.max_key)
            self.store.add(self.root / "merged", merged.content_id)
        state.merged(stored(state.base_merged(inputs, merged)))

    # Splits and merges of ranges.

    def split(self, state: RangeState, key: bytes) -> None:
        if not state.start < key or (state.end is not None and key >= state.end):
            return
        self.flush(state)
        at = self.ranges.index(state)
        spans = [(state.start, key), (key, state.end)]
        self.ranges[at : at + 1] = [
            self._begun(span, clipped(state.durable_base, *span)) for span in spans
        ]

    def unite(self, begin: int, count: int = 2) -> None:
        parents = self.ranges[begin : begin + count]
        if len(parents) < 2:
            return
        for state in parents:
            self.flush(state)
        rows = [Parent(state.start, state.end, state.durable_base) for state in parents]
        before = msgpack.packb([row.base.to_wire() for row in rows])
        base = united(rows, 2, 1)
        assert msgpack.packb([row.base.to_wire() for row in rows]) == before, "it changed them"
        span = parents[0].start, parents[-1].end
        self.ranges[begin : begin + count] = [self._begun(span, base)]

    def _begun(self, span: Span, base: Base) -> RangeState:
        return RangeState(start=span[0], end=span[1], store=self.store, base=stored(base))

    # What must hold.

    def check(self) -> None:
        for state in self.ranges:
            check_manifest(state)
            self._check_keys(state)
            self._check_spans(state)
            self._check_leases(state)
            self._check_shares(state)
            self._check_readable(state)

    def _check_keys(self, state: RangeState) -> None:
        own = self.own(state)
        for key in own:
            entries = self.shown[key].entries
            page = state.scan(key, limit=999, bytes_max=1 << 20)
            assert page.entries() == entries, key
            assert state.last_seq(key) == (entries[-1].seq if entries else 0)
            assert state.count(key) == len(entries)
            assert state.latest(key) == (entries[-1] if entries else None)
            assert state.tail(key, 2) == (entries[-2:][0].seq if entries else 1)
        visible = [key for key in own if self.shown[key].entries]
        assert state.keys(limit=99) == visible
        assert state.keys(limit=3) == visible[:3]
        for key in own:
            assert state.keys(key, limit=9) == [k for k in visible if k == key]
            assert state.keys(b"", key, limit=2) == [k for k in visible if k > key][:2]

    def _check_spans(self, state: RangeState) -> None:
        for span in [(b"", None), (b"b", b"g"), (b"c\0", b"d\0"), (b"d", None)]:
            expected = [e for key in self.own(state, span) for e in self.shown[key].entries]
            assert walk(state, *span, limit=4) == expected
            ends = sorted({entry.seq for entry in expected} | {1, state.next_seq})
            for from_seq in ends[:: max(1, len(ends) // 3)]:
                later = [entry for entry in expected if entry.seq >= from_seq]
                assert by_seq(state, span, from_seq) == later
            for ms in (0, 3, state.last_timestamp_ms, state.last_timestamp_ms + 1):
                check_time(state, span, ms, expected)
        assert state.readable_to(b"", None, state.next_seq) is None

    def _check_readable(self, state: RangeState) -> None:
        """What a follow was told at its beginning holds for as long as the range lives."""
        for start in (b"", *KEYS[::2]):
            for from_seq in (1, 3, 6, 12):
                until = state.readable_to(start, None, from_seq)
                before = self._readable.get((state, start, from_seq), b"")
                assert until is None or (before is not None and until >= before)
                self._readable[state, start, from_seq] = until

    def _check_shares(self, state: RangeState) -> None:
        while not state.measure():
            continue
        held = sum(map(len, state.memtables()))
        for info in state.manifest:
            segment = self.store.segment(info.content_id)
            own = self.own(state, info.clip)
            held += sum(segment.count(key, 1, None) for key in own)
        assert state.entries_held == held

    def _check_leases(self, state: RangeState) -> None:
        covered = set()
        for lease in state.removal.leases.values():
            expected = []
            for key in self.own(state, lease.span):
                through, entries = self.leased[lease.lease_id, key]
                assert through == lease.through_seq
                covered.add((lease.lease_id, key))
                expected += entries
                page = state.scan(key, limit=999, bytes_max=1 << 20, as_of=lease.lease_id)
                assert page.entries() == entries
            as_of = lease.lease_id
            assert walk(state, *lease.span, limit=4, as_of=as_of) == expected
            assert by_seq(state, lease.span, 1, as_of) == expected
        own = self.own(state)
        assert covered == {name for name in self.leased if name[1] in own}


def stored(base: Base) -> Base:
    """As meta gives it back."""
    row = msgpack.unpackb(msgpack.packb(base.to_wire()), strict_map_key=False)
    return Base.from_wire(row)


def check_manifest(state: RangeState) -> None:
    """Of every key the rows that have it rise, in seqs and in time."""
    for chain in chains(state.manifest, (state.start, state.end)):
        for at, info in enumerate(chain.rows):
            for older in chain.rows[:at]:
                assert older.end_seq <= info.first_seq
                assert older.max_timestamp_ms <= info.min_timestamp_ms
        if chain.rows:
            assert chain.rows[-1].end_seq <= state.next_seq


def by_seq(state: RangeState, span: Span, from_seq: int, as_of: str | None = None) -> list[Entry]:
    """Entries from that seq on, sorted by key and seq, read as a caller has to: as objects, and as
    columns."""
    found = _by_seq(state, span, from_seq, as_of, columns=False)
    assert _by_seq(state, span, from_seq, as_of, columns=True) == found
    return found


def _by_seq(
    state: RangeState, span: Span, from_seq: int, as_of: str | None, *, columns: bool
) -> list[Entry]:
    found: list[Entry] = []
    begin: bytes | None = span[0]
    while begin is not None:
        until = state.readable_to(begin, span[1], from_seq)
        end, page = span[1], Page(next=from_seq, more=True)
        part: list[Entry] = []
        first = True
        while page.more:
            page = state.read_span(
                begin, end, page.next, limit=3, bytes_max=1 << 20, as_of=as_of, columns=columns
            )
            assert len(page) <= 3
            assert page.end_key == (until if first else None)
            entries = as_objects(page) if columns else page.entries()
            assert until is None or all(entry.key < until for entry in entries)
            end, first = page.end_key or end, False
            part += entries
        assert all(one.seq < other.seq for one, other in pairwise(part))
        found += part
        begin = until
    return sorted(found, key=lambda entry: (entry.key, entry.seq))


def as_objects(page: Page) -> list[Entry]:
    """The entries of a page that may have chunks, once it has travelled."""
    body = page.to_chunks()
    body["chunks"] = [[*chunk] for chunk in body["chunks"]]
    return entries_of(chunks.unpacked(body))


def check_time(state: RangeState, span: Span, ms: int, entries: list[Entry]) -> None:
    """Of every key the entries from the answer on are those that are not older."""
    begin: bytes | None = span[0]
    while begin is not None:
        seq, until = state.seq_at_timestamp(ms, begin, span[1])
        for entry in entries:
            if entry.key >= begin and (until is None or entry.key < until):
                assert (entry.seq >= seq) == (entry.timestamp_ms >= ms)
        begin = until
