"""Kept cursors from the SDK down to the states of ranges, without sockets or Raft."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgpack
import pytest

from lognode.client.cursor import AsyncKeptCursor, listed
from lognode.client.cursor_commits import CursorCommits
from lognode.client.cursor_rows import of_position
from lognode.client.follow import AsyncFeed
from lognode.client.follow_span import FollowSpan, Push
from lognode.client.protocol import Operation
from lognode.client.protocol.cursors import CURSOR_COMMIT, CURSOR_OPEN, CURSOR_READ
from lognode.client.protocol.errors import (
    Fenced,
    InvalidArgument,
    LimitExceeded,
    LognodeError,
    NotFound,
    Unavailable,
    Unsupported,
)
from lognode.client.protocol.levels import CURSORS_FROM
from lognode.client.protocol.records import encode_batch
from lognode.client.protocol.types import Cursor, CursorInfo, Entry
from lognode.node.serving.cursor_service import READS, CursorChanges
from lognode.partitions.model import Span
from lognode.statemachine import commands
from lognode.statemachine.clip import clipped
from lognode.statemachine.range_state import Base, RangeState
from lognode.statemachine.segments import SegmentStore
from lognode.statemachine.unite import Parent, united


class Member:
    """The leader of a range, whose proposals are applied at once."""

    def __init__(self, range_id: int, state: RangeState) -> None:
        self.state = state
        self.gid = SimpleNamespace(range_id=range_id, generation=1)
        self.proposed_bytes = 0
        self.descriptor = SimpleNamespace(span=Span(state.start, state.end), to_wire=dict)

    async def propose_and_wait(self, kind: int, payload: Any) -> dict[str, Any]:
        entry = commands.proposal(kind, 1, payload)
        (reply,) = self.state.apply(self.state.applied_index + 1, 1, entry).replies or ()
        return reply

    def base(self) -> Base:
        entry = commands.proposal(commands.FREEZE, 1, None)
        self.state.apply(self.state.applied_index + 1, 1, entry)
        while len(self.state.queue) > 1:
            self.state.flushed(self.state.base_with(self.state.queue[0], None))
        return self.state.base_with(self.state.queue[0], None)


class Ranges:
    """The ranges of a log, in place of a client's view of a cluster.

    The client knows the ranges as they were when `known` was set, and its requests go to the
    ranges of the present.
    """

    def __init__(self, path: Path, cuts: Sequence[bytes] = (), level: int = CURSORS_FROM) -> None:
        self.store = SegmentStore(path)
        self.members: list[Member] = []
        self.level = level
        """The feature level of the cluster."""
        self.asked: list[tuple[Operation, dict[str, Any]]] = []
        for start, end in zip([b"", *cuts], [*cuts, None], strict=True):
            self.members.append(self.member(RangeState(start=start, end=end, store=self.store)))
        self.known = self.spans()

    def member(self, state: RangeState) -> Member:
        made = Member(len(self.members) + 1, state)
        for kind, payload in (
            (commands.LEVEL, self.level),
            (commands.APPEND, [encode_batch([state.start or b"a"] * 20, [b"v"] * 20, producer=0,
                                            epoch=0, low=0, numbers=0)]),
        ):  # fmt: skip
            entry = commands.proposal(kind, 1, payload)
            state.apply(state.applied_index + 1, 1, entry)
        return made

    def spans(self) -> list[Any]:
        return [SimpleNamespace(start=each.state.start, end=each.state.end)
                for each in self.members]  # fmt: skip

    def split(self, at: bytes) -> None:
        (old,) = (each for each in self.members if at in each.descriptor.span)
        base, place = old.base(), self.members.index(old)
        self.members[place : place + 1] = [
            self.member(RangeState(start=start, end=end, store=self.store,
                                   base=clipped(base, start, end)))
            for start, end in ((old.state.start, at), (at, old.state.end))
        ]  # fmt: skip

    def merge(self) -> None:
        left, right = self.members[:2]
        parents = [Parent(each.state.start, each.state.end, each.base()) for each in (left, right)]
        self.members[:2] = [
            self.member(RangeState(start=left.state.start, end=right.state.end, store=self.store,
                                   base=united(parents, 1, 0)))
        ]  # fmt: skip

    # What a cursor uses of a client's cluster.

    def now(self) -> float:
        return 0.0

    async def all_ranges(self, log: Any, deadline: float, span: Any) -> list[Any]:
        return [each for each in self.known if each.end is None or each.end > span[0]]

    async def routed(self, log: Any, deadline: float) -> None:
        """The routes of the log are known."""

    async def ranges_of(self, log: Any, keys: Sequence[bytes], deadline: float) -> list[Any]:
        return [each for each in self.known
                if any(key >= each.start and (each.end is None or key < each.end)
                       for key in keys)]  # fmt: skip

    async def call(
        self, log: Any, key: bytes, operation: Operation, body: Any, *, deadline: float
    ) -> tuple[Any, Any]:
        (member,) = (each for each in self.members if key in each.descriptor.span)
        self.asked.append((operation, body))
        checked = operation.request.check({"range": 1, "generation": 1, **body})
        handlers: dict[Any, Any] = {**CursorChanges(lambda: self.level).changes, **READS}
        answer = await handlers[operation](member, checked)
        wire = msgpack.unpackb(msgpack.packb(answer))
        return operation.check_answer(wire), None

    def cursor(self, **options: Any) -> AsyncKeptCursor:
        given = {"keys": None, "prefix": None, "start": "earliest", **options}
        routes: Any = SimpleNamespace(name="log", hierarchy=b"/", log_id=1, partitions=None)
        cluster: Any = self
        return AsyncKeptCursor(cluster, routes, given.pop("name", "c"), timeout=5, **given)


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def whole() -> None:
        await test()

    asyncio.run(whole())


def at(found: Cursor, key: bytes) -> int:
    """The position of a key."""
    (next_,) = (n for start, end, n in found.spans
                if start <= key and (end is None or key < end))  # fmt: skip
    return next_


@pytest.fixture
def ranges(tmp_path: Path) -> Ranges:
    return Ranges(tmp_path, [b"m"])


def test_a_position_is_kept_through_splits_and_merges(ranges: Ranges) -> None:
    async def test() -> None:
        cursor = ranges.cursor()
        await cursor.commit(Cursor(spans=((b"", b"m", 5), (b"m", None, 9))))
        await cursor.commit({b"k": 7})
        ranges.split(b"f")
        ranges.merge()
        ranges.merge()
        ranges.known = ranges.spans()
        assert len(ranges.members) == 1
        found = await ranges.cursor().position()
        assert [at(found, key) for key in (b"a", b"k", b"l", b"z")] == [5, 7, 5, 9]
        await cursor.commit(Cursor(spans=((b"", None, 8),)))
        found = await cursor.position()
        assert [at(found, key) for key in (b"a", b"k", b"z")] == [8, 8, 9], "none goes back"

    run(test)


def test_rows_reach_the_ranges_that_have_the_keys_by_then(ranges: Ranges) -> None:
    async def test() -> None:
        cursor = ranges.cursor()
        await cursor.open()
        ranges.split(b"c")  # the client does not know
        ranges.split(b"t")
        keys = {b"a": 4, b"d": 5, b"n": 6, b"u": 7}
        await cursor.commit(Cursor(spans=((b"", None, 3),)))
        await cursor.commit(keys)
        found = await cursor.position()
        assert {key: at(found, key) for key in keys} == keys
        assert at(found, b"b") == at(found, b"zz") == 3

    run(test)


def test_an_older_reader_is_fenced_in_every_range(ranges: Ranges) -> None:
    async def test() -> None:
        older, newer = ranges.cursor(), ranges.cursor()
        await older.commit({b"a": 3})
        await newer.open()
        for key in (b"a", b"z"):
            with pytest.raises(Fenced, match="another reader has opened"):
                await older.commit({key: 9})
        await newer.commit({b"a": 4})
        assert at(await newer.position(), b"a") == 4

    run(test)


def test_a_commit_goes_only_where_positions_have_moved(ranges: Ranges) -> None:
    async def test() -> None:
        cursor = ranges.cursor()
        await cursor.commit(Cursor(spans=((b"", b"m", 5), (b"m", None, 9))))
        ranges.asked.clear()
        await cursor.commit(Cursor(spans=((b"", b"m", 5), (b"m", None, 11))))
        assert [body["spans"] for _, body in ranges.asked] == [[[b"m", None, 11]]]
        ranges.asked.clear()
        await cursor.commit(Cursor(spans=((b"", b"m", 5), (b"m", None, 11))))
        assert ranges.asked == []

    run(test)


def test_a_cursor_of_keys_has_no_other_keys(ranges: Ranges) -> None:
    async def test() -> None:
        cursor = ranges.cursor(keys=["z", "b"])
        await cursor.commit({"b": 3})
        assert (await cursor.position()).keys == {b"b": 3, b"z": 1}
        for strange in ({b"c": 3}, Cursor(spans=((b"", None, 3),))):
            with pytest.raises(InvalidArgument, match="keys that cursor 'c' does not have"):
                await cursor.commit(strange)
        with pytest.raises(NotFound):
            await ranges.cursor().position()
        with pytest.raises(InvalidArgument):
            await ranges.cursor(name="p", prefix="b").commit({b"c": 3})

    run(test)


def test_an_operator_lists_sets_and_deletes_cursors(ranges: Ranges) -> None:
    async def test() -> None:
        reader = ranges.cursor(start="latest")
        await reader.open()
        assert set(map(reader_next, (await reader.position()).spans)) == {21}
        await ranges.cursor().set(5)
        assert set(map(reader_next, (await reader.position()).spans)) == {5}
        with pytest.raises(Fenced):
            await reader.commit({b"a": 9})
        await ranges.cursor(name="d").open()
        routes: Any = SimpleNamespace(name="log", hierarchy=b"/", log_id=1, partitions=None)
        cluster: Any = ranges
        found = await listed(cluster, routes, (b"", None), 5.0)
        assert [(info.name, info.next, info.keys) for info in found] == [("c", 5, 0), ("d", 1, 0)]
        assert type(found[0]) is CursorInfo
        await ranges.cursor().delete()
        with pytest.raises(NotFound, match="open the cursor"):
            await ranges.cursor().position()
        assert [info.name for info in await listed(cluster, routes, (b"", None), 5.0)] == ["d"]

    run(test)


def reader_next(span: tuple[bytes, bytes | None, int]) -> int:
    return span[2]


def test_below_their_level_there_are_no_cursors(tmp_path: Path) -> None:
    async def test() -> None:
        ranges = Ranges(tmp_path, level=CURSORS_FROM - 1)
        with pytest.raises(Unsupported, match="lognode cluster finalize"):
            await ranges.cursor().open()
        ranges.level = CURSORS_FROM  # the range follows soon: a client asks again
        with pytest.raises(Unavailable, match="try again"):
            await ranges.cursor().open()

    run(test)


def test_a_name_and_keys_are_checked_before_anything_is_sent(ranges: Ranges) -> None:
    for name in ("", "x" * 129, 5):
        with pytest.raises(InvalidArgument, match="the name of the cursor"):
            ranges.cursor(name=name)
    with pytest.raises(InvalidArgument, match="a kept cursor begins at"):
        ranges.cursor(start="soon")
    for keys in ([], [b"%d" % n for n in range(1_025)]):
        with pytest.raises(LimitExceeded, match="1 to 1,024 are allowed"):
            ranges.cursor(keys=keys)
    assert ranges.asked == []


def test_a_reader_opens_once_and_reads_before(ranges: Ranges) -> None:
    async def test() -> None:
        cursor = ranges.cursor()
        await cursor.open()
        await cursor.open()
        kinds = [operation for operation, _ in ranges.asked]
        assert kinds == [CURSOR_READ, CURSOR_READ, CURSOR_OPEN, CURSOR_OPEN]

    run(test)


def test_x2_20_a_piece_of_one_key_becomes_the_row_of_the_key() -> None:
    rows = of_position(Cursor(spans=((b"", b"k", 5), (b"k", b"k\0", 8), (b"k\0", None, 5))))
    assert (rows.spans, rows.keys) == ([(b"", None, 5)], [(b"k", 8)])
    rows = of_position(Cursor(spans=((b"", b"k", 5), (b"k", b"k\0", 3), (b"k\0", None, 4))))
    assert rows.spans == [(b"", b"k", 5), (b"k", b"k\0", 3), (b"k\0", None, 4)]


def test_a_cursor_of_patterns_has_the_spans_of_their_beginnings(ranges: Ranges) -> None:
    async def test() -> None:
        cursor = ranges.cursor(pattern=["us/*/orders", "eu/7/>", "eu/8/*", "!eu/7/x"])
        await cursor.open()
        spans = [(b"eu/7/", b"eu/70", 1), (b"eu/8/", b"eu/80", 1), (b"us/", b"us0", 1)]
        assert list((await cursor.position()).spans) == spans
        for key in (b"eu/6", b"eu/9", b"u", b"us0"):
            assert all(each.state.cursors.found["c"].position(key) == 0 for each in ranges.members)
        for span in ((b"eu/7/", b"eu/90", 5), (b"eu/", b"eu/70", 5), (b"", None, 5)):
            with pytest.raises(InvalidArgument, match=r"the keys, the prefix or the patterns"):
                await cursor.commit(Cursor(spans=(span,)))
        await cursor.commit(Cursor(spans=((b"eu/7/", b"eu/70", 5), (b"us/", b"us0", 7))))
        found = (await cursor.position()).spans
        assert [next_ for _, _, next_ in found] == [5, 1, 7]
        await cursor.set(3)
        assert {next_ for _, _, next_ in (await cursor.position()).spans} == {3}
        await cursor.delete()
        with pytest.raises(NotFound):
            await cursor.position()
        with pytest.raises(InvalidArgument, match=r"a `\*` within a level"):
            await ranges.cursor(pattern="a*b").open()

    run(test)


def test_neighbouring_spans_of_patterns_are_one_span_for_commits(ranges: Ranges) -> None:
    """A follow joins the spans of a range, so its positions have no bound between them."""

    async def test() -> None:
        cursor = ranges.cursor(pattern=["a*", "b*", "n*", "o*"])
        await cursor.open()
        found = [row[:2] for row in (await cursor.position()).spans]
        assert found == [(b"a", b"c"), (b"n", b"p")]
        await cursor.commit(Cursor(spans=((b"a", b"c", 4), (b"n", b"p", 9))))
        assert at(await cursor.position(), b"b") == 4

    run(test)


def test_only_what_the_caller_has_done_is_committed(ranges: Ranges) -> None:
    async def test() -> None:
        errors: asyncio.Queue[LognodeError] = asyncio.Queue()
        cursor = ranges.cursor()
        commits = CursorCommits(cursor, 10, errors.put)
        spans = await commits.begin(5.0)
        assert isinstance(spans, list)
        assert [(span.start, span.end, span.next) for span in spans] == [
            (b"", b"m", 1), (b"m", None, 1)
        ]  # fmt: skip
        commits.done(Cursor(spans=((b"", None, 4),)))
        await commits.end()
        assert at(await cursor.position(), b"a") == 4
        commits.done(Cursor(spans=((b"", None, 9),)))  # closed: nothing more is committed
        await commits.end()
        assert at(await cursor.position(), b"a") == 4
        assert errors.empty()

    run(test)


def test_a_follow_ends_when_another_reader_has_its_cursor(ranges: Ranges) -> None:
    async def test() -> None:
        errors: asyncio.Queue[LognodeError] = asyncio.Queue()
        commits = CursorCommits(ranges.cursor(), 10, errors.put)
        await commits.begin(5.0)
        await ranges.cursor().open()
        commits.done(Cursor(spans=((b"", None, 4),)))
        assert isinstance(await errors.get(), Fenced)
        await commits.end()
        assert CURSOR_COMMIT in [operation for operation, _ in ranges.asked]

    run(test)


def test_the_position_of_a_follow_also_passes_entries_that_do_not_match() -> None:
    """Otherwise the reader of a pattern that seldom matches would read everything again."""

    async def test() -> None:
        cluster: Any = SimpleNamespace(now=lambda: 0.0, partitions=None)
        feed = AsyncFeed(cluster, cluster, keys=None, prefix=None, pattern="a/*", start="latest",
                         timeout=5)  # fmt: skip
        done: list[Cursor] = []
        kept: Any = SimpleNamespace(done=done.append)
        span = FollowSpan(b"a/", b"a0")
        feed._kept, feed._opened, feed._spans = kept, True, [span]
        entry = Entry(b"a/1", 9, 0, {}, b"")
        for entries, next_ in (([], 5), ([], 5), ([entry], 10)):
            await feed._queue.put(Push(span, 0, entries, next_, False))
        assert len(await anext(feed)) == 1
        assert [position.spans[0][2] for position in done] == [1, 5]

    run(test)
