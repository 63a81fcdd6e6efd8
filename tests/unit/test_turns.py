"""What one turn of the event loop does, counted: a bound, however much there is."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from flushed_range import FlushedRange as Range
from loose_operations import asked
from prepared import make_ready
from storage_node import StorageNode, descriptor, numbered_batch

from lognode.client.protocol import OPERATIONS
from lognode.client.protocol.errors import (
    SequenceMismatch,
    Unavailable,
    from_wire,
)
from lognode.client.protocol.reads import FOLLOW, SCAN
from lognode.client.protocol.records import encode_batch
from lognode.node.replicas.range_replica import RangeReplica
from lognode.node.replicas.read_turns import in_turns
from lognode.node.serving import follow as follow_module
from lognode.node.serving import reads
from lognode.node.serving.follow import Follow
from lognode.statemachine import commands, seq_index, turn_limits
from lognode.statemachine.block_cache import BlockCache
from lognode.statemachine.column_cache import ColumnCache
from lognode.statemachine.range_state import Ahead, Base, RangeState
from lognode.statemachine.segments import SegmentStore
from lognode.statemachine.turn_limits import ENTRIES_A_TURN, TurnOver, Turns
from lognode.statemachine.visibility import Rules

PARTS_A_TURN = 17
"""1 MiB of parts that count for 64 KiB at least, and the one that goes beyond."""
SEGMENTS = 40
KEYS = [b"%04d" % at for at in range(2_000)]


@pytest.fixture
def filled(tmp_path: Path) -> Range:
    """40 segments with all keys in each."""
    made = Range(tmp_path)
    for _ in range(SEGMENTS):
        made.append(KEYS)
        made.flush()
    made.append(KEYS[::2])
    return made


READS: dict[str, Callable[[RangeState], object]] = {
    "count": lambda state: state.count(b"0700"),
    "tail": lambda state: state.tail(b"0700", 39),
    "first": lambda state: state.tail(b"0701", 99),
    "scan": lambda state: state.scan(b"0700", limit=100, bytes_max=1 << 20).to_wire(),
    "back": lambda state: state.scan(b"0700", limit=39, bytes_max=1 << 20, reverse=True).to_wire(),
    "keys": lambda state: state.keys_page(b"", b"0700", limit=300),
    "time": lambda state: state.seq_at_timestamp(17_500)[0],
    "span": lambda state: state.read_span(b"", None, 1, limit=99, bytes_max=1 << 20).to_wire(),
}


PARTIAL = ("scan", "back", "span")
"""Reads that end a page where their turn is over."""


def check(name: str, found: Any, expected: Any) -> None:
    """What a read found is what it should find, or the beginning of that."""
    if name in PARTIAL:
        assert 0 < len(found["seqs"]) == len(found["values"])
        assert found["more"] == (len(found["seqs"]) < len(expected["seqs"]) or expected["more"])
        expected["seqs"] = expected["seqs"][: len(found["seqs"])]
        expected["values"] = expected["values"][: len(found["seqs"])]
        assert (found["seqs"], found["values"]) == (expected["seqs"], expected["values"])
    else:
        assert found == expected


@pytest.mark.slow
@pytest.mark.parametrize("name", READS)
def test_S7_a_cold_read_decodes_a_bounded_number_of_parts_a_turn_and_comes_to_its_end(
    filled: Range, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, read = filled.state, READS[name]
    expected = read(state)
    filled.store.close()
    filled.store._blocks = BlockCache(1)
    for info in state.manifest:
        make_ready(filled.store, info.content_id)
    parts: list[int] = []
    put = BlockCache.put

    def counted(self: BlockCache, *args: Any) -> None:
        parts[-1] += 1
        put(self, *args)

    monkeypatch.setattr(BlockCache, "put", counted)

    def turn() -> object:
        parts.append(0)
        return read(state)

    check(name, asyncio.run(in_turns(filled, turn)), expected)  # type: ignore[arg-type]
    print(f"{name}: {parts}")
    assert max(parts) <= PARTS_A_TURN
    if name in ("scan", "back"):
        assert max(parts) >= PARTS_A_TURN - 1, "it is too small to show anything"
    elif name not in ("time", "span"):
        assert len(parts) > 2, "it is too small to show anything"


@pytest.mark.slow
@pytest.mark.parametrize("name", READS)
def test_S5_S7_a_read_goes_on_over_another_manifest_when_segments_are_merged_meanwhile(
    filled: Range, name: str
) -> None:
    state, read = filled.state, READS[name]
    expected = read(state)
    turns = 0

    def turn() -> object:
        nonlocal turns
        turns += 1
        if turns in (2, 3):
            filled.merge(5 * turns, 5 * turns + 8)  # the files that it has read are gone
        if turns == 4:
            filled.flush()
        return read(state)

    found = asyncio.run(in_turns(filled, turn))  # type: ignore[arg-type]
    check(name, found, expected)


@pytest.mark.parametrize("reverse", [False, True])
def test_S7_a_page_of_a_cold_key_has_all_that_its_limits_allow(
    filled: Range, *, reverse: bool
) -> None:
    state = filled.state
    expected = state.scan(b"0700", limit=39, bytes_max=1 << 20, reverse=reverse)
    filled.store.close()
    filled.store._blocks = BlockCache(1)
    for info in state.manifest:
        make_ready(filled.store, info.content_id)
    body = {"key": b"0700", "limit": 39, "bytes": 1 << 20, "reverse": reverse}
    found = asyncio.run(reads.scan(filled, asked(SCAN, **body)))  # type: ignore[arg-type]
    assert found == {**expected.to_wire(), "applied": state.applied_index}


def between(filled: Range, monkeypatch: pytest.MonkeyPatch, what: Callable[[], None]) -> None:
    """Once, after the first part of a page."""
    real = asyncio.sleep
    done = False

    async def sleep(seconds: float) -> None:
        nonlocal done
        await real(seconds)
        if not done:
            done = True
            what()

    monkeypatch.setattr(asyncio, "sleep", sleep)


def hot(tmp_path: Path) -> Range:
    """A key with entries for many parts of a page, and many keys."""
    made = Range(tmp_path, cache_bytes=1 << 26)
    for _ in range(3):
        made.append([b"hot"] * ENTRIES_A_TURN + KEYS, value_bytes=1)
        made.flush()
    return made


PAGES: dict[str, dict[str, object]] = {
    "scan": {"key": b"hot", "limit": 10_000, "bytes": 1 << 20},
    "read_span": {"start_key": b"", "limit": 10_000, "bytes": 1 << 20},
    "keys": {"limit": 10_000},
}


def page_of(made: Range, op: str, **body: object) -> dict[str, Any]:
    operation = OPERATIONS[op]
    wanted = asked(operation, **PAGES[op], **body)
    return asyncio.run(reads.READS[operation](made, wanted))  # type: ignore[arg-type]


@pytest.mark.parametrize("op", PAGES)
def test_S5_S7_a_page_of_many_turns_is_that_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, op: str
) -> None:
    made = hot(tmp_path)
    before, applied = page_of(made, op), made.state.applied_index
    assert len(before["keys" if op == "keys" else "seqs"]) > ENTRIES_A_TURN
    between(made, monkeypatch, lambda: made.append([b"hot", b"later"]))
    during = page_of(made, op)
    assert during["applied"] == before["applied"] == applied
    if op == "keys":
        assert during["more"], "the page ends where keys came meanwhile"
        assert during["after"] == during["keys"][-1]
        assert during["keys"] == before["keys"][: len(during["keys"])]
        rest = page_of(made, op, start_after=during["after"])
        assert [*during["keys"], *rest["keys"]] == sorted([*before["keys"], b"later"])
    else:
        assert during == before, "what was appended meanwhile is not in it"


@pytest.mark.parametrize("op", PAGES)
def test_S5_S6_a_page_ends_where_something_was_removed_and_the_next_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, op: str
) -> None:
    made = hot(tmp_path)
    column = "keys" if op == "keys" else "seqs"
    before = page_of(made, op)
    removal = [[b"0300", 1 << 40], [b"1900", 1 << 40], [b"hot", 2 * ENTRIES_A_TURN]]
    between(made, monkeypatch, lambda: made.apply(commands.TRIM_KEYS, removal))
    during = page_of(made, op)
    assert during["more"]
    assert 0 < len(during[column]) < len(before[column])
    assert during[column] == before[column][: len(during[column])], "as if nothing was removed"


def test_S5_keys_of_which_all_is_removed_are_passed_a_bounded_number_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Range(tmp_path, cache_bytes=1 << 26)
    made.append([*KEYS, b"z"])
    for begin in range(0, len(KEYS), 32):
        made.apply(commands.DELETE_KEYS, [[key, 1 << 40] for key in KEYS[begin : begin + 32]])
    looked: list[int] = []
    visible = made.state._is_visible

    def counted(*args: Any) -> bool:
        looked[-1] += 1
        return visible(*args)

    monkeypatch.setattr(made.state, "_is_visible", counted)
    after: bytes | None = b""
    found: list[bytes] = []
    while after is not None:
        looked.append(0)
        some, after = made.state.keys_page(b"", after, limit=10)
        found += some
    assert found == [b"z"]
    assert max(looked) <= 64
    assert sum(looked) == len(KEYS) + 1


def turns_of(made: Range, monkeypatch: pytest.MonkeyPatch, op: str, **body: object) -> int:
    """How many turns a read of a memtable takes, of which nothing is decoded."""
    made.store.columns._columns.clear()
    turns = 0
    begin = Turns.begin

    def counted(self: Turns) -> None:
        nonlocal turns
        turns += 1
        begin(self)

    with monkeypatch.context() as patched:
        patched.setattr(Turns, "begin", counted)
        wanted = asked(OPERATIONS[op], **body)
        asyncio.run(reads.READS[OPERATIONS[op]](made, wanted))  # type: ignore[arg-type]
    return turns


@pytest.mark.parametrize(
    ("op", "body"),
    [("scan", {"limit": 1}), ("count", {}), ("resolve", {"start": ["tail", 90_000]})],
    ids=["scan", "count", "tail"],
)
def test_S7_a_read_follows_a_bounded_part_of_a_long_chain_a_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, op: str, body: dict[str, object]
) -> None:
    """1 MiB of cost a turn, at 64 bytes an entry."""
    made = Range(tmp_path)
    for _ in range(10):
        made.append([b"hot"] * 10_000, value_bytes=0)
    before = turns_of(made, monkeypatch, op, key=b"hot", **body)
    print(f"{op}: {before} turns")
    assert before >= 100_000 * 64 // (1 << 20)
    made.append([b"hot"] * 100, value_bytes=0)
    assert turns_of(made, monkeypatch, op, key=b"hot", **body) <= 2, "only what is new is followed"
    assert made.state.count(b"hot") == 100_100
    assert made.state.tail(b"hot", 100_099) == 2


def test_S7_a_chain_that_grows_while_it_is_followed_is_whole(tmp_path: Path) -> None:
    made = Range(tmp_path)
    for _ in range(10):
        made.append([b"hot"] * 5_000, value_bytes=0)
    turns = 0

    def turn() -> list[int]:
        nonlocal turns
        turns += 1
        if turns in (2, 3):
            made.append([b"hot"] * 7, value_bytes=0)
        return list(made.state.memtable.seqs(b"hot", 1, None))

    assert asyncio.run(in_turns(made, turn)) == list(range(1, 50_015))  # type: ignore[arg-type]
    assert turns > 3


def test_S7_a_list_of_keys_sorts_a_bounded_number_of_keys_a_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Range(tmp_path)
    keys = [b"%d" % at for at in range(50_000)]
    made.rng.shuffle(keys)
    for begin in range(0, len(keys), 10_000):
        made.append(keys[begin : begin + 10_000], value_bytes=0)
    turns = turns_of(made, monkeypatch, "keys", limit=10)
    print(f"{turns} turns")
    assert turns >= len(keys) // 8_192
    made.append([b"new", *keys[:100]], value_bytes=0)
    assert turns_of(made, monkeypatch, "keys", limit=10) <= 3, "only what is new is sorted"
    assert made.state.keys(limit=100_000) == sorted([*keys, b"new"])
    assert (
        made.state.keys(prefix=b"499", limit=9)
        == sorted(key for key in keys if key.startswith(b"499"))[:9]
    )


@pytest.mark.parametrize("op", ["scan", "read_span", "export"])
def test_S7_a_read_decodes_a_bounded_number_of_batches_of_a_memtable_a_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, op: str
) -> None:
    """The key has one entry in each of 20 batches, each of which takes a turn to decode."""
    made = Range(tmp_path)
    made.store.columns = made.state.memtable._cache = ColumnCache(1)
    for _ in range(20):
        made.append([b"hot", *[b"other"] * 5_000], value_bytes=200)
    body: dict[str, Any] = {"key": b"hot"} if op == "scan" else {"start_key": b"hot",
                                                                 "end_key": b"hot\0"}  # fmt: skip
    kept = 0
    decoded = Turns.decoded

    def counted(self: Turns, *args: Any, **named: Any) -> None:
        nonlocal kept
        decoded(self, *args, **named)
        kept = max(kept, sum(part.size for part in self.kept.values()))

    monkeypatch.setattr(Turns, "decoded", counted)
    assert turns_of(made, monkeypatch, op, limit=20, bytes=1 << 20, **body) >= 20
    assert kept <= 3 * 5_000 * (2 * 200 + 100), "a read holds a few batches, not all of them"


@pytest.mark.slow
@pytest.mark.parametrize("op", ["scan", "back", "read_span", "export", "keys", "count", "tail"])
def test_S7_a_read_comes_to_its_end_though_every_cache_is_empty_in_every_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, op: str
) -> None:
    """Others read in between, so that nothing stays but what the read keeps; and others append."""
    made = Range(tmp_path, cache_bytes=1)
    made.store.columns = ColumnCache(1)
    monkeypatch.setattr(seq_index, "_CHAINED_MAX", 1)
    monkeypatch.setattr(turn_limits, "_BYTES_A_TURN", 300_000)
    for _ in range(2):
        for _ in range(4):
            made.append([b"hot", b"warm", *KEYS[:300]] * 20)
        made.flush()
    for _ in range(4):
        made.append([b"hot", b"warm", *KEYS[:300]] * 20)
        made.append([b"hot"] * 5_000, value_bytes=0)  # a chain of many turns
    bodies: dict[str, dict[str, Any]] = {
        "scan": {"key": b"hot"}, "back": {"key": b"hot", "reverse": True}, "read_span": {},
        "export": {}, "keys": {}, "count": {"key": b"hot"},
        "tail": {"key": b"hot", "start": ["tail", 150]},
    }  # fmt: skip
    operation = OPERATIONS[{"back": "scan", "tail": "resolve"}.get(op, op)]
    wanted = asked(operation, **bodies[op])
    expected = asyncio.run(reads.READS[operation](made, wanted))  # type: ignore[arg-type]
    begin, count = Turns.begin, 0

    def others(self: Turns) -> None:
        nonlocal count
        count += 1
        assert count < 3_000, "it does not come to its end"
        begin(self)
        if count % 3 == 0:
            made.append([b"new-%05d" % count, b"warm"])
        made.state.memtable._index.run(b"warm", 1, None)
        made.store.columns._columns.clear()

    monkeypatch.setattr(Turns, "begin", others)
    found = asyncio.run(reads.READS[operation](made, wanted))  # type: ignore[arg-type]
    print(f"{op}: {count} turns")
    if op in ("count", "tail"):
        assert found == expected
    elif op == "export":
        assert found["chunks"]
    elif op == "keys":
        assert [key for key in found["keys"] if not key.startswith(b"new")] == expected["keys"]
    else:  # a page has 32 parts at most
        both = min(len(found["seqs"]), len(expected["seqs"]))
        assert found["seqs"][:both] == expected["seqs"][:both]
        assert both > 100


# On a node.


@pytest.fixture
def on_loop(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was hashed, opened or unlinked by the thread of the loop."""
    loop = threading.main_thread()
    found: list[str] = []

    def noted(place: Any, name: str) -> None:
        real = getattr(place, name)

        def call(*args: Any, **named: Any) -> Any:
            if threading.current_thread() is loop:
                found.append(name)
            return real(*args, **named)

        monkeypatch.setattr(place, name, call)

    noted(SegmentStore, "verify")
    noted(SegmentStore, "_opened")
    noted(SegmentStore, "remove")
    noted(SegmentStore, "discard")
    return found


def on_node(root: Path, test: Callable[[StorageNode, RangeReplica], Any]) -> None:
    """A node whose range has three segments, none of them hashed."""

    async def main() -> None:
        node = StorageNode(root)
        await node.start()
        replica = await node.host.create_range(descriptor(1), Base(), campaign=True)
        assert replica is not None
        await node.leading(replica)
        for first in (1, 5, 9):
            await replica.append(numbered_batch(first, [b"a", b"b", b"a", b"c"]))
            await node.flusher.flush(replica)
        node.store.doubt(info.content_id for info in replica.state.manifest)
        try:
            await test(node, replica)
        finally:
            node.stop()

    asyncio.run(main())


def conditional(keys: list[bytes], expects: list[int]) -> bytes:
    return encode_batch(keys, [b"v"] * len(keys), producer=0, epoch=1, low=1, numbers=1,
                        expects=expects)  # fmt: skip


def test_S9_x28_a_conditional_append_waits_until_a_thread_has_read_what_it_asks_of(
    tmp_path: Path, on_loop: list[str]
) -> None:
    async def test(node: StorageNode, replica: RangeReplica) -> None:
        on_loop.clear()
        reply = await replica.append(conditional([b"a", b"b", b"a"], [11, 10, 13]))
        assert reply["status"] == "ok"
        assert reply["first_seq"] == 13
        reply = await replica.append(conditional([b"c", b"b"], [12, 10]))
        with pytest.raises(SequenceMismatch):
            raise from_wire(reply["error"])
        assert on_loop == []
        assert replica.state.scan(b"b", limit=9, bytes_max=999).seqs == [2, 6, 10, 14]

    on_node(tmp_path, test)


def test_S12_x28_a_conditional_append_that_meets_damage_stops_that_replica(
    tmp_path: Path,
) -> None:
    async def test(node: StorageNode, replica: RangeReplica) -> None:
        path = node.store.path(replica.state.manifest[1].content_id)
        data = bytearray(path.read_bytes())
        data[9_000] ^= 1
        path.write_bytes(data)
        with pytest.raises(Unavailable, match="stopped"):
            await replica.append(conditional([b"aa"], [0]))
        assert "is damaged: its SHA-256 is" in node.host.damaged[replica.gid]

    on_node(tmp_path, test)


def test_S9_the_conditions_of_an_entry_are_looked_up_a_bounded_number_a_turn(
    filled: Range, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = filled.state
    keys = KEYS[1::2]
    data = conditional(keys, list(map(state.last_seq, keys)))
    filled.store._blocks = BlockCache(1)
    command = commands.encode(commands.APPEND, 10**6, [data])
    looked: list[int] = []
    last_seq = state.last_seq

    def counted(key: bytes, *told: Any) -> int:
        looked[-1] += 1
        return last_seq(key, *told)

    monkeypatch.setattr(state, "last_seq", counted)

    ahead, turns = Ahead.of(command), Turns()
    while True:
        looked.append(0)
        try:
            with filled.store.on_hand(turns):
                state.look_up(ahead)
        except TurnOver:
            assert len(turns.kept) <= SEGMENTS, "what one key takes, not all of them"
            continue
        break
    assert max(looked) <= 129
    assert len(looked) >= 8
    looked.append(0)
    (reply,) = state.apply(state.applied_index + 1, 1, command, ahead).replies or ()
    assert reply["status"] == "ok"
    assert looked[-1] == 0, "what was looked up is not looked up again"
    (reply,) = state.apply(state.applied_index + 1, 1, command).replies or ()
    assert reply["error"]["code"] == "SEQUENCE_MISMATCH", "nothing is remembered longer"


@pytest.mark.parametrize("body", [{"keys": {b"a": 1, b"c": 1}}, {"prefix": b"a"}], ids=str)
def test_x28_a_follower_reads_files_that_a_thread_has_opened(
    tmp_path: Path, on_loop: list[str], body: dict[str, Any]
) -> None:
    async def test(node: StorageNode, replica: RangeReplica) -> None:
        on_loop.clear()
        follow = Follow(replica, SimpleNamespace(body=asked(FOLLOW, **body)))  # type: ignore[arg-type]
        await follow._look_for_unread()
        seqs: list[int] = []
        more = True
        while more:
            page, more = await follow._next_page()
            seqs += page.seqs
        expected = [1, 3, 5, 7, 9, 11] if "prefix" in body else [1, 3, 4, 5, 7, 8, 9, 11, 12]
        assert sorted(seqs) == expected
        assert on_loop == []

    on_node(tmp_path, test)


def test_P4_a_page_of_a_follow_says_whether_other_keys_have_more(
    tmp_path: Path, on_loop: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow_module, "_KEYS_A_PAGE", 1)

    async def test(node: StorageNode, replica: RangeReplica) -> None:
        body = asked(FOLLOW, keys={b"a": 1, b"c": 1})
        follow = Follow(replica, SimpleNamespace(body=body))  # type: ignore[arg-type]
        await follow._look_for_unread()
        told, more = [], True
        while more:
            page, more = await follow._next_page()
            told.append(page.more)
        assert told == [True] * (len(told) - 1) + [False]

    on_node(tmp_path, test)


def test_S2_files_are_unlinked_by_a_thread_and_never_one_that_was_added_since(
    tmp_path: Path, on_loop: list[str]
) -> None:
    async def test(node: StorageNode, replica: RangeReplica) -> None:
        info = replica.state.manifest[0]
        path = node.store.path(info.content_id)
        copy = tmp_path / "copy"
        copy.write_bytes(path.read_bytes())
        on_loop.clear()
        (gone,) = node.store.forget_except(each.content_id for each in replica.state.manifest[1:])
        assert not node.store.has(info.content_id)
        node.store.add(copy, info.content_id)
        await node.files.run(lambda: node.store.remove(gone))
        assert node.store.has(info.content_id)
        assert replica.state.count(b"a") == 6
        await node.host.retire([replica.gid])
        assert not list(node.directory.files.iterdir())
        assert "remove" not in on_loop

    on_node(tmp_path, test)


def test_x13_the_rules_of_a_base_touch_none_of_its_floors(tmp_path: Path) -> None:
    class Untouched(dict[bytes, int]):
        def __iter__(self) -> Iterator[bytes]:
            raise AssertionError("all floors are looked at")

        items = keys = values = copy = __iter__  # type: ignore[assignment]

    made = Range(tmp_path)
    made.append(KEYS)
    made.apply(commands.TRIM_KEYS, [[b"0001", 2]])
    made.flush()
    tables = dict(made.state.durable_base.tables)
    tables["removal"] = {**tables["removal"], "floors": Untouched({b"0001": 2})}
    rules = Rules.of(tables)
    assert rules.hides
    assert rules.views[0].floor(b"0001") == 2
    assert not rules.unneeded(made.state.manifest[0])
