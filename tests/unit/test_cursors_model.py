"""A machine of hypothesis over the cursors of ranges, against a position and a holder per key."""

import tempfile
from pathlib import Path
from typing import Any

import msgpack
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from lognode.client.protocol.levels import CURSORS_FROM
from lognode.client.protocol.records import encode_batch
from lognode.statemachine import commands
from lognode.statemachine.clip import clipped
from lognode.statemachine.range_state import Base, RangeState
from lognode.statemachine.received_base import received
from lognode.statemachine.segments import SegmentStore
from lognode.statemachine.spans import Span, common, has
from lognode.statemachine.unite import Parent, united

KEYS = [b"a", b"b", b"c", b"d", b"e", b"f"]
BATCHES = {key: encode_batch([key], [b"v"], producer=0, epoch=0, low=0, numbers=0) for key in KEYS}
NAMES = ["one", "two"]
BOUNDS: list[bytes] = [b"", *KEYS[1:]]
SPANS: list[Span] = [
    (start, end) for start in BOUNDS for end in [*BOUNDS, None] if end is None or start < end
]
HOLDERS = st.integers(1, 6)
NEXT = st.integers(0, 30)
Positions = dict[tuple[str, bytes], tuple[int, int]]


class Ranges(RuleBasedStateMachine):
    """Ranges that split, merge and start again, and what their cursors should be."""

    def __init__(self) -> None:
        super().__init__()
        self.path = tempfile.TemporaryDirectory()
        self.store = SegmentStore(Path(self.path.name))
        self.ranges: list[RangeState] = []
        self.model: Positions = {}
        """The holder and the position of each key that a cursor has."""
        self.highest: Positions = {}
        """The same, since the last time that an operator set or deleted the cursor."""

    def teardown(self) -> None:
        self.path.cleanup()

    @initialize()
    def begin(self) -> None:
        self.ranges = [RangeState(start=b"", end=None, store=self.store)]
        self.do(self.ranges[0], commands.LEVEL, CURSORS_FROM)

    def do(self, state: RangeState, kind: int, payload: Any) -> str:
        entry = commands.proposal(kind, 1, payload)
        (reply,) = state.apply(state.applied_index + 1, 1, entry).replies or ()
        return reply["error"]["code"] if reply["status"] == "error" else "ok"

    def within(self, span: Span) -> list[tuple[RangeState, Span, list[bytes]]]:
        """The ranges that have keys of the span, their part of the span, and its keys."""
        parts = ((state, common((state.start, state.end), span)) for state in self.ranges)
        return [(state, own, [key for key in KEYS if has(own, key)]) for state, own in parts if own]

    @rule(key=st.sampled_from(KEYS))
    def append(self, key: bytes) -> None:
        (state, *_), *_ = self.within((key, key + b"\0"))
        assert self.do(state, commands.APPEND, [BATCHES[key]]) == "ok"

    @rule(name=st.sampled_from(NAMES), holder=HOLDERS, span=st.sampled_from(SPANS), first=NEXT)
    def open(self, name: str, holder: int, span: Span, first: int) -> None:
        for state, own, keys in self.within(span):
            held = {key: self.model.get((name, key), (0, 0)) for key in keys}
            fenced = any(other > holder for other, _ in held.values())
            told = self.do(state, commands.OPEN_CURSOR, [name, holder, [[*own, first]]])
            assert told == ("FENCED" if fenced else "ok")
            if not fenced:
                begins = max(1, min(first, state.next_seq))
                for key in keys:
                    self.model[name, key] = (holder, held[key][1] or begins)

    @rule(
        name=st.sampled_from(NAMES), holder=HOLDERS, next_=NEXT,
        span=st.none() | st.sampled_from(SPANS), key=st.none() | st.sampled_from(KEYS),
    )  # fmt: skip
    def commit(
        self, name: str, holder: int, next_: int, span: Span | None, key: bytes | None
    ) -> None:
        whole: Span = (b"", None)
        for state, own, _ in self.within(whole):
            part = None if span is None else common(own, span)
            one = key if key is not None and has(own, key) else None
            spans = [] if part is None else [[*part, next_]]
            keys = [] if one is None else [[one, next_ + 1]]
            moved = {each: next_ for each in KEYS if part is not None and has(part, each)}
            if one is not None:
                moved[one] = next_ + 1
            holders = {self.model.get((name, each), (0, 0))[0] for each in moved}
            told = self.do(state, commands.COMMIT_CURSOR, [name, holder, spans, keys])
            missing, others = 0 in holders, holders - {holder}
            assert told == ("NOT_FOUND" if missing else "FENCED" if others else "ok")
            if told == "ok":
                for each, wanted in moved.items():
                    before = self.model[name, each][1]
                    self.model[name, each] = (
                        holder, max(before, max(1, min(wanted, state.next_seq)))
                    )  # fmt: skip

    @rule(name=st.sampled_from(NAMES), holder=HOLDERS, span=st.sampled_from(SPANS), next_=NEXT)
    def set(self, name: str, holder: int, span: Span, next_: int) -> None:
        for state, own, keys in self.within(span):
            fenced = any(self.model.get((name, key), (0, 0))[0] > holder for key in keys)
            told = self.do(state, commands.SET_CURSOR, [name, holder, [[*own, next_]]])
            assert told == ("FENCED" if fenced else "ok")
            if not fenced:
                for key in keys:
                    self.model[name, key] = (holder, max(1, min(next_, state.next_seq)))
                    self.highest.pop((name, key), None)

    @rule(name=st.sampled_from(NAMES), span=st.sampled_from(SPANS))
    def delete(self, name: str, span: Span) -> None:
        for state, own, keys in self.within(span):
            assert self.do(state, commands.DELETE_CURSOR, [name, *own]) == "ok"
            for key in keys:
                self.model.pop((name, key), None)
                self.highest.pop((name, key), None)

    def base(self, state: RangeState) -> Base:
        """The base of the range, as a node gets it from another node."""
        self.do(state, commands.FREEZE, None)
        while len(state.queue) > 1:
            state.flushed(state.base_with(state.queue[0], None))
        base = state.base_with(state.queue[0], None)
        wire = msgpack.unpackb(msgpack.packb(base.to_wire()), strict_map_key=False)
        return received(wire)

    @rule(at=st.integers(0, 5), cut=st.sampled_from(KEYS[1:]))
    def split(self, at: int, cut: bytes) -> None:
        state = self.ranges[at % len(self.ranges)]
        if not has((state.start, state.end), cut) or cut == state.start:
            return
        base, place = self.base(state), self.ranges.index(state)
        spans: list[Span] = [(state.start, cut), (cut, state.end)]
        self.ranges[place : place + 1] = [
            RangeState(start=start, end=end, store=self.store, base=clipped(base, start, end))
            for start, end in spans
        ]

    @precondition(lambda self: len(self.ranges) > 1)
    @rule(at=st.integers(0, 5))
    def merge(self, at: int) -> None:
        place = at % (len(self.ranges) - 1)
        pair = self.ranges[place : place + 2]
        base = united([Parent(each.start, each.end, self.base(each)) for each in pair], 1, 0)
        self.ranges[place : place + 2] = [
            RangeState(start=pair[0].start, end=pair[1].end, store=self.store, base=base)
        ]

    @rule(at=st.integers(0, 5))
    def restart(self, at: int) -> None:
        place = at % len(self.ranges)
        state = self.ranges[place]
        self.ranges[place] = RangeState(
            start=state.start, end=state.end, store=self.store, base=self.base(state)
        )

    @invariant()
    def every_key_has_the_holder_and_the_position_of_the_model(self) -> None:
        found: Positions = {}
        for state in self.ranges:
            for name, cursor in state.cursors.found.items():
                for key in KEYS:
                    if has((state.start, state.end), key):
                        held = cursor.spans.at(key)
                        found[name, key] = (held.holder, cursor.position(key))
        found = {key: held for key, held in found.items() if held != (0, 0)}
        assert found == self.model

    @invariant()
    def x2_27_a_position_goes_back_only_when_it_is_set(self) -> None:
        for key, (_, next_) in self.model.items():
            assert next_ >= self.highest.get(key, (0, 0))[1]
        self.highest = dict(self.model)

    @invariant()
    def pages_have_all_rows_in_order(self) -> None:
        for state in self.ranges:
            for name, cursor in state.cursors.found.items():
                start: bytes | None = state.start
                spans: list[Any] = []
                keys: list[Any] = []
                while start is not None:
                    page = state.cursors.page(name, (start, state.end), 1)
                    assert page[0] or page[1] or page[2] is None
                    spans += page[0]
                    keys += page[1]
                    assert page[2] is None or page[2] > start
                    start = page[2]
                assert dict(keys) == cursor.keys
                for key in KEYS:
                    rows = [row[2:] for row in spans if has(row[:2], key)]
                    assert rows == [cursor.spans.at(key)] * (cursor.spans.at(key) != (0, 0))


Ranges.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestRanges = Ranges.TestCase
