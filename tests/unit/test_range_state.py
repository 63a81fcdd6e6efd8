"""The state machine of a range against a plain model: appends, conditions, duplicates, segments."""

import random
from collections import defaultdict
from pathlib import Path

import pytest

from lognode.client.protocol import limits
from lognode.client.protocol.errors import CorruptData
from lognode.client.protocol.invariants import InvariantError
from lognode.client.protocol.records import encode_batch
from lognode.statemachine import commands, rules
from lognode.statemachine.admission import admit
from lognode.statemachine.builder import Builder
from lognode.statemachine.range_state import Base, Frozen, RangeState
from lognode.statemachine.segment_writer import SegmentInfo, build
from lognode.statemachine.segments import SegmentStore
from lognode.statemachine.unknown import UnknownCommandError


class Range:
    """A RangeState that is driven, flushed and restarted."""

    def __init__(self, directory: Path) -> None:
        (directory / "files").mkdir(exist_ok=True)
        self.directory = directory
        self.store = SegmentStore(directory / "files")
        self.state = RangeState(start=b"", end=None, store=self.store)
        self.log: list[bytes] = []

    def apply(self, command: bytes) -> list[dict]:  # type: ignore[type-arg]
        self.log.append(command)
        return list(self.state.apply(len(self.log) + 1, 1, command).replies or ())

    def append(self, *batches: bytes, ms: int = 1) -> list[dict]:  # type: ignore[type-arg]
        return self.apply(commands.encode(commands.APPEND, ms, batches))

    def flush(self) -> None:
        self.state.freeze()
        while self.state.queue:
            frozen = self.state.queue[0]
            base = self.state.base_with(frozen, self.build(frozen))
            self.state.flushed(Base.from_wire(base.to_wire()))

    def build(self, frozen: Frozen) -> SegmentInfo | None:
        if not len(frozen.memtable):
            return None
        path = self.directory / "building"
        info = build(path, frozen.memtable.first_seq, frozen.sources())
        self.store.add(path, info.content_id)
        return info

    def crash(self) -> None:
        base = self.state.durable_base
        self.store.close()
        self.store = SegmentStore(self.directory / "files")
        self.state = RangeState(start=b"", end=None, store=self.store, base=base)
        for index in range(base.applied_index + 1, len(self.log) + 2):
            self.state.apply(index, 1, self.log[index - 2])


@pytest.fixture
def range_(tmp_path: Path) -> Range:
    return Range(tmp_path)


def batch(
    pairs: list[tuple[bytes, bytes | None]],
    *,
    producer: int = 0,
    numbers: int | list[int] = 1,
    low: int = 1,
    epoch: int = 1,
    prevs: list[int] | None = None,
    expects: list[int] | None = None,
    atomic: bool = False,
    each: bool = False,
) -> bytes:
    return encode_batch(
        [key for key, _ in pairs],
        [value for _, value in pairs],
        producer=producer, epoch=epoch, low=low, numbers=numbers, prevs=prevs, expects=expects,
        atomic=atomic, each=each,
    )  # fmt: skip


def history(state: RangeState, key: bytes) -> list[tuple[int, bytes | None]]:
    found, start = [], 1
    while True:
        page = state.scan(key, start, limit=3, bytes_max=1 << 20)
        found += [(entry.seq, entry.value) for entry in page.entries()]
        if not page.more:
            return found
        start = page.next


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_S3_S4_S6_model_through_segments_and_crashes(range_: Range, seed: int) -> None:
    rng = random.Random(seed)
    keys = [b"k%d" % i for i in range(rng.choice([3, 40]))] + [b"\0" * n for n in range(1, 6)]
    model: dict[bytes, list[tuple[int, bytes | None]]] = defaultdict(list)
    order: list[tuple[int, bytes]] = []
    number, next_seq = 1, 1
    for step in range(120):
        action = rng.random()
        if action < 0.8:
            pairs = [
                (rng.choice(keys), None if rng.random() < 0.1 else rng.randbytes(rng.randrange(90)))
                for _ in range(rng.randrange(1, 60))
            ]
            (reply,) = range_.append(batch(pairs, producer=5, numbers=number), ms=step)
            assert reply == {"status": "ok", "first_seq": next_seq, "timestamp_ms": step}
            number += len(pairs)
            for seq, (key, value) in enumerate(pairs, next_seq):
                model[key].append((seq, value))
                order.append((seq, key))
            next_seq += len(pairs)
        elif action < 0.92:
            range_.flush()
        else:
            range_.crash()
    state = range_.state
    for key in keys:
        assert history(state, key) == model[key], (seed, key)
        assert state.count(key) == len(model[key])
        assert state.last_seq(key) == (model[key][-1][0] if model[key] else 0)
        backwards = state.scan(key, limit=10_000, bytes_max=1 << 30, reverse=True)
        assert [e.seq for e in backwards.entries()] == [s for s, _ in reversed(model[key])]
        low, high = sorted((rng.randrange(1, next_seq + 1), rng.randrange(1, next_seq + 1)))
        assert state.count(key, low, high) == sum(low <= s < high for s, _ in model[key])
        n = rng.randrange(1, 9)
        if model[key]:
            assert state.tail(key, n) == model[key][-n:][0][0]
    present = sorted(key for key in keys if model[key])
    assert state.keys(limit=1000) == present
    assert (
        state.keys(b"k", b"k1", limit=3)
        == [k for k in present if k.startswith(b"k") and k > b"k1"][:3]
    )
    seen, at = [], 1
    while True:
        page = state.read_span(b"", None, at, limit=50, bytes_max=1 << 20)
        seen += [(entry.seq, entry.key) for entry in page.entries()]
        at = page.next
        if not page.more:
            break
    assert seen == order


def test_S8_duplicates_are_applied_once(range_: Range) -> None:
    pairs: list[tuple[bytes, bytes | None]] = [(b"a", b"1"), (b"b", b"2"), (b"a", b"3")]
    data = batch(pairs, producer=7, numbers=1)
    range_.append(data)
    (reply,) = range_.append(data)
    assert reply["duplicates"] == [0, 1, 2]
    assert reply["seqs"] == [1, 2, 3]
    range_.flush()
    range_.crash()
    mixed = batch([*pairs, (b"c", b"4")], producer=7, numbers=1)
    (reply,) = range_.append(mixed)
    assert reply["duplicates"] == [0, 1, 2]
    assert reply["seqs"] == [1, 2, 3, 4]
    assert history(range_.state, b"a") == [(1, b"1"), (3, b"3")]
    assert history(range_.state, b"c") == [(4, b"4")]


def test_S4_S8_a_missing_predecessor_is_out_of_order(range_: Range) -> None:
    second = batch([(b"a", b"2")], producer=7, numbers=2, prevs=[1])
    (reply,) = range_.append(second)
    assert reply["error"]["code"] == "OUT_OF_ORDER"
    assert reply["error"]["fields"]["number"] == 1
    range_.append(batch([(b"a", b"1")], producer=7, numbers=1))
    (reply,) = range_.append(second)
    assert reply["status"] == "ok"
    assert [value for _, value in history(range_.state, b"a")] == [b"1", b"2"]


def test_S4_S8_a_predecessor_may_come_in_the_same_request(range_: Range) -> None:
    range_.append(batch([(b"a", b"0")], producer=7, numbers=1))
    pairs: list[tuple[bytes, bytes | None]] = [(b"a", b"1"), (b"b", b"2"), (b"a", b"3")]
    (reply,) = range_.append(batch(pairs, producer=7, numbers=2, prevs=[1, 0, 2]))
    assert reply["status"] == "ok"
    (reply,) = range_.append(batch(pairs[:2], producer=7, numbers=[6, 7], prevs=[7, 0]))
    assert reply["error"]["code"] == "OUT_OF_ORDER", "a later one of the request is none"


def test_S8_a_late_smaller_number_does_not_open_the_fast_path_to_a_duplicate(
    range_: Range,
) -> None:
    range_.append(batch([(b"a", b"10")], producer=7, numbers=10))
    (late,) = range_.append(batch([(b"b", b"3")], producer=7, numbers=3))
    assert late["status"] == "ok"
    (again,) = range_.append(batch([(b"a", b"10")], producer=7, numbers=10))
    assert (again["duplicates"], again["seqs"]) == ([0], [1])


def test_S8_a_number_below_what_is_settled_is_a_duplicate_whatever_its_request_says(
    range_: Range,
) -> None:
    range_.append(batch([(b"a", b"1")], producer=7, numbers=1))
    range_.append(batch([(b"a", b"1")], producer=7, numbers=1, low=9))
    (unseen,) = range_.append(batch([(b"a", b"4")], producer=7, numbers=4, low=1))
    assert unseen["duplicates"] == [0]
    range_.append(batch([(b"a", b"9")], producer=7, numbers=9, low=9))
    (late,) = range_.append(batch([(b"a", b"5")], producer=7, numbers=5, low=1))
    assert late["duplicates"] == [0]
    assert late["seqs"] == [None]
    assert [value for _, value in history(range_.state, b"a")] == [b"1", b"9"]
    (ahead,) = range_.append(
        batch([(b"a", b"8"), (b"a", b"10")], producer=7, numbers=[8, 10], low=1)
    )
    assert ahead["duplicates"] == [0]
    assert range_.state.producers.rows[7].highest == 10
    (older,) = range_.append(batch([(b"b", b"x")], producer=7, numbers=10, low=9))
    assert (older["duplicates"], older["seqs"]) == ([0], [3])


def test_S8_a_number_too_far_above_the_settled_ones_is_refused(range_: Range) -> None:
    range_.append(batch([(b"a", b"1")], producer=7, numbers=1))
    top = limits.producer_window_max
    (reply,) = range_.append(batch([(b"a", b"2")], producer=7, numbers=1 + top, low=1))
    assert reply["error"]["code"] == "LIMIT_EXCEEDED"
    (reply,) = range_.append(batch([(b"a", b"2")], producer=7, numbers=1 + top, low=2))
    assert reply["status"] == "ok"


def test_S8_a_range_takes_no_more_producers_than_it_can_remember(
    range_: Range, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = rules.of_level(1)._replace(producers_max=2)
    monkeypatch.setattr(range_.state.producers, "rules", few)
    for producer in (1, 2):
        range_.append(batch([(b"a", b"1")], producer=producer))
    (reply,) = range_.append(batch([(b"a", b"1")], producer=3))
    assert reply["error"]["code"] == "OVERLOADED"
    (reply,) = range_.append(batch([(b"a", b"2")], producer=2, numbers=2))
    assert reply["status"] == "ok", "a live one is never evicted"
    range_.apply(commands.encode(commands.RETIRE_PRODUCERS, 1, [1]))
    (reply,) = range_.append(batch([(b"a", b"1")], producer=3))
    assert reply["status"] == "ok"


def test_S9_x10_a_fence_keeps_the_row_and_is_never_lowered(range_: Range) -> None:
    range_.append(batch([(b"a", b"1")], producer=7, numbers=1, epoch=3))
    range_.apply(commands.encode(commands.FENCE, 1, [7, 2, 99]))
    row = range_.state.producers.rows[7]
    assert (row.epoch, row.fence_token, row.numbers()) == (3, 99, [(1, 1)])
    range_.flush()
    range_.crash()
    assert range_.state.producers.rows[7].to_wire() == row.to_wire()
    for epoch in (1, 2):
        (reply,) = range_.append(batch([(b"a", b"2")], producer=7, numbers=2, epoch=epoch))
        assert reply["error"]["fields"] == {"epoch": 3}


def test_x2_21_timestamps_never_go_back(range_: Range) -> None:
    for ms, expected in ((50, 50), (20, 50), (51, 51)):
        (reply,) = range_.append(batch([(b"a", b"1")]), ms=ms)
        assert reply["timestamp_ms"] == expected
    range_.flush()
    range_.crash()
    (reply,) = range_.append(batch([(b"a", b"1")]), ms=1)
    assert reply["timestamp_ms"] == 51


def test_S9_conditions_are_checked_after_duplicates(range_: Range) -> None:
    first = batch([(b"a", b"1")], producer=7, numbers=1, expects=[0])
    range_.append(first)
    (again,) = range_.append(first)
    assert again["duplicates"] == [0]
    (reply,) = range_.append(
        batch([(b"a", b"x"), (b"b", b"y")], producer=7, numbers=2, expects=[0, -1])
    )
    assert reply["error"]["code"] == "SEQUENCE_MISMATCH"
    assert reply["error"]["fields"] == {"key": b"a", "expected": 0, "actual": 1}
    assert reply["error"]["outcome"] == "not_applied"
    assert range_.state.count(b"b") == 0


@pytest.mark.parametrize("where", ["memory", "files", "hidden"])
def test_S9_a_condition_counts_the_records_of_earlier_batches_of_its_entry(
    range_: Range, where: str
) -> None:
    range_.append(batch([(b"a", b"1"), (b"b", b"2")]))
    if where == "files":
        range_.flush()
    elif where == "hidden":
        range_.apply(commands.encode(commands.TRIM_KEYS, 1, [[b"a", 2]]))
    a = 0 if where == "hidden" else 1
    plain = batch([(b"c", b"3")])
    replies = range_.append(
        batch([(b"a", b"4")], expects=[a]), plain, batch([(b"a", b"5")], expects=[a]),
        batch([(b"a", b"6"), (b"c", b"7"), (b"d", b"8")], expects=[3, 4, 0]),
        batch([(b"b", b"9"), (b"d", b"10")], expects=[2, 7], each=True),
    )  # fmt: skip
    assert [reply["status"] for reply in replies] == ["ok", "ok", "error", "ok", "ok"]
    assert replies[2]["error"]["fields"] == {"key": b"a", "expected": a, "actual": 3}
    assert history(range_.state, b"a")[-2:] == [(3, b"4"), (5, b"6")]
    assert history(range_.state, b"d") == [(7, b"8"), (9, b"10")]


def test_S9_records_each_by_itself_are_refused_one_by_one(range_: Range) -> None:
    range_.append(batch([(b"a", b"1")]))
    pairs: list[tuple[bytes, bytes | None]] = [
        (b"a", b"no"),
        (b"b", b"2"),
        (b"b", b"no"),
        (b"a", b"3"),
        (b"b", b"4"),
        (b"c", b"5"),
    ]
    (reply,) = range_.append(
        batch(pairs, producer=7, numbers=1, expects=[0, 0, 0, 1, 2, -1], each=True)
    )
    assert reply == {
        "status": "ok", "seqs": [None, 2, None, 3, 4, 5], "duplicates": [], "timestamp_ms": 1,
        "refused": [0, 2], "actual": [1, 2],
    }  # fmt: skip
    assert history(range_.state, b"a") == [(1, b"1"), (3, b"3")]
    assert history(range_.state, b"b") == [(2, b"2"), (4, b"4")]
    assert history(range_.state, b"c") == [(5, b"5")]
    (reply,) = range_.append(batch([(b"a", b"no"), (b"b", b"no")], expects=[0, 2], each=True))
    assert (reply["seqs"], reply["refused"], reply["actual"]) == ([None, None], [0, 1], [3, 4])
    assert range_.state.next_seq == 6
    range_.flush()
    range_.crash()
    assert history(range_.state, b"b") == [(2, b"2"), (4, b"4")]


def test_S8_S9_a_retry_of_records_each_by_itself_appends_what_was_applied_once(
    range_: Range,
) -> None:
    """What was applied is a duplicate, before its condition; what was refused is asked again."""
    pairs: list[tuple[bytes, bytes | None]] = [(b"a", b"1"), (b"b", b"2"), (b"c", b"3")]
    again = batch(pairs, producer=7, numbers=1, expects=[0, 1, 0], each=True)
    (reply,) = range_.append(again)
    assert (reply["seqs"], reply["refused"]) == ([1, None, 2], [1])
    (reply,) = range_.append(again)
    assert (reply["seqs"], reply["refused"], reply["actual"]) == ([1, None, 2], [1], [0])
    assert reply["duplicates"] == [0, 2]
    range_.append(batch([(b"b", b"other")], producer=8))
    (reply,) = range_.append(batch(pairs, producer=7, numbers=1, expects=[0, 3, 0], each=True))
    assert (reply["seqs"], reply["duplicates"]) == ([1, 4, 2], [0, 2])
    assert "refused" not in reply
    assert history(range_.state, b"b") == [(3, b"other"), (4, b"2")]


def test_S10_a_batch_with_a_common_outcome_and_conditions_of_its_records_is_refused(
    range_: Range,
) -> None:
    data = batch([(b"a", b"1")], expects=[0], atomic=True, each=True)
    with pytest.raises(CorruptData):
        admit(data, b"", None)
    (reply,) = range_.append(data)
    assert reply["error"]["code"] == "CORRUPT_DATA"
    assert range_.state.next_seq == 1


def test_S9_fenced_producer_is_refused(range_: Range) -> None:
    range_.append(batch([(b"a", b"1")], producer=7, numbers=1, epoch=1))
    range_.apply(commands.encode(commands.FENCE, 1, [7, 2, 99]))
    (reply,) = range_.append(batch([(b"a", b"2")], producer=7, numbers=2, epoch=1))
    assert reply["error"]["code"] == "FENCED"
    (reply,) = range_.append(batch([(b"a", b"1")], producer=7, numbers=1, epoch=2))
    assert reply["duplicates"] == [0]  # a resumed import goes on in the same numbering (x10)


def test_S10_a_key_outside_the_span_refuses_its_batch_whole(tmp_path: Path) -> None:
    store = SegmentStore(tmp_path)
    for start, end, key, inside in (
        (b"b", b"d", b"b", True), (b"b", b"d", b"a\xff", False), (b"b", b"d", b"d", False),
        (b"b", b"d", b"c\xff", True), (b"", b"d", b"\0", True), (b"b", None, b"\xff" * 480, True),
        (b"b", b"d", b"d\0", False),
    ):  # fmt: skip
        state = RangeState(start=start, end=end, store=store)
        command = commands.encode(commands.APPEND, 1, [batch([(b"c", b"1"), (key, b"2")])])
        (reply,) = state.apply(2, 1, command).replies or ()
        assert (reply["status"] == "ok") == inside, (start, end, key)
        assert state.next_seq == (3 if inside else 1)
        if not inside:
            assert reply["error"]["code"] == "GENERATION_MISMATCH"


def test_S3_empty_headers_are_none_in_memory_and_in_a_segment(range_: Range) -> None:
    """Found by the model: an entry read before a flush differed from the same one after it."""
    data = encode_batch([b"a", b"b"], [b"1", b"2"], producer=0, epoch=1, low=1, numbers=1,
                        headers=[{}, {b"h": b""}])  # fmt: skip
    range_.append(data)
    before = [range_.state.latest(key) for key in (b"a", b"b")]
    range_.flush()
    assert [range_.state.latest(key) for key in (b"a", b"b")] == before
    assert before[0] is not None
    assert before[0].headers is None


def test_x22_garbage_is_refused_and_stops_nothing(range_: Range) -> None:
    replies = range_.append(b"garbage", batch([(b"a", b"1")]), b"")
    assert [reply["status"] for reply in replies] == ["error", "ok", "error"]
    (reply,) = range_.apply(b"\0garbage")
    assert reply["error"]["code"] == "CORRUPT_DATA"
    assert {r["error"]["outcome"] for r in (*replies[::2], reply)} == {"not_applied"}
    range_.append(batch([(b"a", b"2")]))
    assert len(history(range_.state, b"a")) == 2


def test_an_unknown_command_changes_nothing_and_is_void_after_the_seal(range_: Range) -> None:
    range_.append(batch([(b"a", b"1")]))
    before = range_.state.applied_index, range_.state.state_hash, range_.state.last_timestamp_ms
    unknown = commands.encode(99, 7, ["what", "a newer program", "has to say"])
    last = max(commands.KINDS)
    with pytest.raises(
        UnknownCommandError,
        match=rf"entry 3 is a command of kind 99; this program knows 1, 2, 3, .*, {last}\. Upgrade",
    ):
        range_.apply(unknown)
    state = range_.state
    assert (state.applied_index, state.state_hash, state.last_timestamp_ms) == before
    range_.log.pop()
    range_.append(batch([(b"a", b"2")]))  # as the program that knows the entry would go on
    range_.apply(commands.encode(commands.SEAL, 1, 44))
    (reply,) = range_.apply(unknown)
    assert reply["error"]["code"] == "SEALED"


def test_x2_16_entries_after_the_seal_are_void(range_: Range) -> None:
    range_.append(batch([(b"a", b"1")]))
    range_.apply(commands.encode(commands.SEAL, 1, 44))
    sealed, digest = range_.state.sealed, range_.state.state_hash
    (reply,) = range_.append(batch([(b"a", b"2")]))
    assert reply["error"]["code"] == "SEALED"
    range_.apply(commands.NO_OP)
    range_.apply(commands.encode(commands.SEAL, 1, 45))
    assert (range_.state.sealed, range_.state.state_hash) == (sealed, digest)
    assert sealed is not None
    assert sealed.operation_id == 44
    range_.flush()
    range_.crash()
    assert range_.state.sealed == sealed


def test_x8_a_base_of_an_ended_generation_is_at_its_seal_whatever_came_after(
    range_: Range,
) -> None:
    # A new leader's no-op lands behind the seal before anybody has flushed: every member's base
    # must still be the state at the seal, or nobody is ever prepared.
    range_.append(batch([(b"k", b"v")]))
    range_.apply(commands.encode(commands.SEAL, 2, 44))
    end = len(range_.log) + 1
    range_.apply(commands.NO_OP)
    range_.append(batch([(b"k", b"void")]))
    range_.flush()
    assert range_.state.durable_base.applied_index == end
    assert not range_.state.unflushed
    assert range_.state.freeze() is None
    hashed = range_.state.state_hash
    range_.crash()
    assert range_.state.applied_index == end + 2
    assert (range_.state.state_hash, range_.state.durable_base.applied_index) == (hashed, end)


def test_x6_the_hash_tells_entries_terms_and_indexes_apart(tmp_path: Path) -> None:
    hashes = set()
    for terms, values in (((1, 1), "ab"), ((1, 2), "ab"), ((1, 1), "ac"), ((2, 2), "ab")):
        state = RangeState(start=b"", end=None, store=SegmentStore(tmp_path))
        for index, (term, value) in enumerate(zip(terms, values, strict=True), 2):
            data = batch([(b"k", value.encode())])
            state.apply(index, term, commands.encode(commands.APPEND, 1, [data]))
        hashes.add(state.state_hash)
    assert len(hashes) == 4
    with pytest.raises(InvariantError, match="out of order"):
        state.apply(5, 2, commands.NO_OP)


def test_x16_frozen_memtables_queue_up_and_become_durable_in_order(range_: Range) -> None:
    for at in range(4):
        range_.append(batch([(b"a", b"%d" % at)]))
        assert range_.state.freeze() is not None
        assert range_.state.freeze() is None  # nothing was applied since
    range_.append(batch([(b"a", b"4")]))
    everything = [(at + 1, b"%d" % at) for at in range(5)]
    with pytest.raises(InvariantError, match="before an older one"):
        range_.state.base_with(range_.state.queue[1], None)
    for left in (3, 2, 1, 0):
        assert history(range_.state, b"a") == everything
        assert range_.state.frozen_bytes == sum(m.size for m in range_.state.frozen)
        frozen = range_.state.queue[0]
        range_.state.flushed(range_.state.base_with(frozen, range_.build(frozen)))
        assert len(range_.state.queue) == len(range_.state.frozen) == left
        assert range_.state.durable_base.tables["next_seq"] == 5 - left
    range_.crash()
    assert history(range_.state, b"a") == everything


def test_x16_FREEZE_freezes_at_exactly_its_index_and_all_members_build_the_same_file(
    tmp_path: Path,
) -> None:
    rng = random.Random(5)
    log: list[bytes] = []
    for number in range(12):
        pairs: list[tuple[bytes, bytes | None]] = [
            (b"%03d" % rng.randrange(50), rng.randbytes(rng.randrange(200))) for _ in range(300)
        ]
        data = encode_batch([k for k, _ in pairs], [v for _, v in pairs], producer=9, epoch=1,
                            low=1, numbers=1 + 300 * number)  # fmt: skip
        log.append(commands.encode(commands.APPEND, 1000 + number, [data]))
        if number % 4 == 3:
            log.append(commands.encode(commands.FREEZE, 1000 + number, None))
    found = []
    for member in ("one", "two"):
        path = tmp_path / member
        path.mkdir()
        store = SegmentStore(path)
        state = RangeState(start=b"", end=None, store=store)
        for index, command in enumerate(log, 2):
            replies = state.apply(index, 1, command).replies
            assert replies is not None
            assert replies[0]["status"] == "ok"
        assert [frozen.applied_index for frozen in state.queue] == [6, 11, 16]
        assert [frozen.tables["next_seq"] for frozen in state.queue] == [1201, 2401, 3601]
        assert len(state.memtable) == 0
        # The second member's builder is a process that has built other things before.
        builder = Builder()
        if member == "two":
            other = [source for frozen in state.queue for source in frozen.sources()]
            builder.build(path / "other", 7, other)
        found.append(
            [
                builder.build(path / "building", frozen.memtable.first_seq, frozen.sources())
                for frozen in state.queue
            ]
        )
        builder.stop()
        store.close()
    assert found[0] == found[1]
    assert len({info.content_id for info in found[0]}) == 3


def test_FREEZE_is_void_after_the_seal_and_nothing_where_nothing_is(range_: Range) -> None:
    range_.apply(commands.encode(commands.FREEZE, 1, None))
    (frozen,) = range_.state.queue
    assert len(frozen.memtable) == 0
    assert range_.state.frozen == []
    range_.append(batch([(b"a", b"1")]))
    range_.apply(commands.encode(commands.SEAL, 2, 7))
    range_.apply(commands.encode(commands.FREEZE, 3, None))
    assert len(range_.state.queue) == 1
    assert range_.state.effective[0] == range_.state.applied_index - 1
    for payload in (0, b""):
        with pytest.raises(CorruptData):
            commands.decode(commands.encode(commands.FREEZE, 1, payload))


def test_x16_an_empty_memtable_is_frozen_empty(range_: Range) -> None:
    # Found by the simulator: what was applied during the build was in the segment and in memory.
    range_.apply(b"\x01")
    frozen = range_.state.freeze()
    assert frozen is not None
    range_.append(encode_batch([b"k"], [b"v"], producer=1, epoch=1, low=1, numbers=1))
    assert len(frozen.memtable) == 0
    range_.state.flushed(range_.state.base_with(frozen, range_.build(frozen)))
    page = range_.state.scan(b"k", limit=10, bytes_max=1_000)
    assert page.seqs == [1]


def test_x16_tables_of_the_frozen_index(range_: Range) -> None:
    range_.append(batch([(b"a", b"1")], producer=7, numbers=1))
    frozen = range_.state.freeze()
    assert frozen is not None
    range_.append(batch([(b"a", b"2")], producer=7, numbers=2))
    range_.state.flushed(range_.state.base_with(frozen, range_.build(frozen)))
    range_.crash()
    assert history(range_.state, b"a") == [(1, b"1"), (2, b"2")]


def test_a_failed_build_leaves_everything_readable(range_: Range) -> None:
    range_.append(batch([(b"a", b"1")]))
    assert range_.state.freeze() is not None
    range_.append(batch([(b"a", b"2")]))
    assert history(range_.state, b"a") == [(1, b"1"), (2, b"2")]
    range_.append(batch([(b"a", b"3")]))
    assert history(range_.state, b"a") == [(1, b"1"), (2, b"2"), (3, b"3")]
    range_.flush()
    range_.crash()
    assert history(range_.state, b"a") == [(1, b"1"), (2, b"2"), (3, b"3")]
    assert [info.entries for info in range_.state.manifest] == [1, 2]


def test_keys_of_nuls_and_prefixes_through_a_segment(range_: Range) -> None:
    keys = [b"\0" * n for n in range(1, 481)] + [b"a" * n for n in range(1, 200)]
    keys += [b"a" * n + b"\0" for n in range(1, 200)]
    for at in range(3):
        pairs: list[tuple[bytes, bytes | None]] = [(key, b"%d" % at + key) for key in keys]
        random.Random(at).shuffle(pairs)
        range_.append(batch(pairs))
        if at < 2:
            range_.flush()
    for key in keys:
        assert [value for _, value in history(range_.state, key)] == [
            b"%d" % at + key for at in range(3)
        ]
    assert range_.state.keys(limit=10_000) == sorted(keys)
    for info in range_.state.manifest:
        range_.store.segment(info.content_id).check()
        range_.store.verify(info.content_id)


def test_S12_flipped_bits_in_a_segment_are_found(range_: Range, tmp_path: Path) -> None:
    rng = random.Random(3)
    pairs: list[tuple[bytes, bytes | None]] = [
        (b"key-%04d" % rng.randrange(500), rng.randbytes(100)) for _ in range(4000)
    ]
    range_.append(batch(pairs))
    expected = {key: [v for k, v in pairs if k == key] for key, _ in pairs}
    range_.flush()
    (info,) = range_.state.manifest
    path = range_.store.path(info.content_id)
    whole = path.read_bytes()
    found = 0
    for _ in range(40):
        broken = bytearray(whole)
        at = rng.randrange(4096 * 4, len(whole))
        broken[at] ^= 1 << rng.randrange(8)
        path.write_bytes(broken)
        store = SegmentStore(path.parent)
        with pytest.raises(CorruptData):
            store.verify(info.content_id)
        state = RangeState(start=b"", end=None, store=store, base=range_.state.durable_base)
        for key in rng.sample(sorted(expected), 60):
            try:
                assert [value for _, value in history(state, key)] == expected[key]
            except CorruptData:
                found += 1
                break
        store.close()
    assert found > 0
