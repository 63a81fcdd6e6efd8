"""Waits for views on a replica: what counts as seen, and bounds of the work in a turn."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lognode.client.protocol import limits
from lognode.client.protocol.errors import NotLeader, Overloaded
from lognode.node.replicas import view_waits
from lognode.node.replicas.view_waits import ViewWaits, Wait
from lognode.node.serving.view_service import Bounds


class Positions:
    """Two views, whose positions a test moves."""

    def __init__(self) -> None:
        self.of: list[dict[bytes, int]] = [{}, {}]
        self.looks = 0

    def seen(self, view: int) -> Callable[[bytes, int], bool]:
        def look(key: bytes, seq: int) -> bool:
            self.looks += 1
            return self.of[view].get(key, 0) > seq

        return look


def broke(error: BaseException) -> None:
    raise AssertionError from error


def run(test: Callable[[ViewWaits, Positions], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with asyncio.timeout(20):
            await test(ViewWaits(broke), Positions())

    asyncio.run(whole())


def test_a_wait_ends_when_all_views_have_acknowledged_all_entries() -> None:
    async def test(waits: ViewWaits, positions: Positions) -> None:
        wait = Wait([(b"a", 5), (b"b", 6)], [positions.seen(0), positions.seen(1)])
        task = asyncio.create_task(waits.wait(wait, 10))
        for view, key, position in ((0, b"a", 6), (1, b"a", 6), (0, b"b", 7), (1, b"b", 6)):
            positions.of[view][key] = position
            waits.tell()
            await asyncio.sleep(0.02)
            assert not task.done()
        assert wait.masks == [3, 1]
        positions.of[1][b"b"] = 7
        waits.tell()
        await task
        assert wait.masks == [3, 3]
        assert not waits

    run(test)


def test_a_wait_ends_at_its_limit_and_says_what_was_seen() -> None:
    async def test(waits: ViewWaits, positions: Positions) -> None:
        positions.of[1][b"a"] = 9
        wait = Wait([(b"a", 5)], [positions.seen(0), positions.seen(1)])
        await waits.wait(wait, 0.05)
        assert wait.masks == [2]
        await waits.wait(Wait([(b"a", 5)], [positions.seen(0)]), 0)
        assert not waits

    run(test)


def test_an_entry_that_was_seen_stays_seen_when_positions_go_back() -> None:
    async def test(waits: ViewWaits, positions: Positions) -> None:
        wait = Wait([(b"a", 5), (b"b", 5)], [positions.seen(0)])
        task = asyncio.create_task(waits.wait(wait, 10))
        positions.of[0][b"a"] = 6
        waits.tell()
        await asyncio.sleep(0.02)
        positions.of[0] = {b"b": 6}  # a reset
        waits.tell()
        await task
        assert wait.masks == [1, 1]

    run(test)


def test_nobody_waits_for_a_view_without_a_look() -> None:
    async def test(waits: ViewWaits, positions: Positions) -> None:
        positions.of[0][b"a"] = 6
        wait = Wait([(b"a", 5)], [positions.seen(0), None])
        await waits.wait(wait, 10)
        assert wait.masks == [1]

    run(test)


def test_a_wait_for_one_of_the_views_ends_when_each_entry_has_one() -> None:
    async def test(waits: ViewWaits, positions: Positions) -> None:
        wait = Wait([(b"a", 5), (b"b", 6)], [positions.seen(0), positions.seen(1)], enough=1)
        task = asyncio.create_task(waits.wait(wait, 60))
        for view, key in ((0, b"a"), (1, b"a")):
            positions.of[view][key] = 9
            waits.tell()
            await asyncio.sleep(0.02)
            assert not task.done()
        positions.of[1][b"b"] = 9
        waits.tell()
        await task
        assert wait.masks == [3, 2]

    run(test)


def test_a_wait_for_one_view_together_ends_when_it_has_all_entries() -> None:
    async def test(waits: ViewWaits, positions: Positions) -> None:
        looks = [positions.seen(0), positions.seen(1)]
        wait = Wait([(b"a", 5), (b"b", 6)], looks, enough=1, together=True)
        task = asyncio.create_task(waits.wait(wait, 60))
        for view, key in ((0, b"a"), (1, b"b")):
            positions.of[view][key] = 9
            waits.tell()
            await asyncio.sleep(0.02)
            assert not task.done(), "each entry is seen, but not by one view"
        positions.of[1][b"a"] = 9
        waits.tell()
        await task
        assert wait.masks == [3, 2]

    run(test)


@pytest.mark.parametrize("together", [False, True])
def test_a_wait_for_more_views_than_are_looked_at_ends_with_these(together: bool) -> None:
    async def test(waits: ViewWaits, positions: Positions) -> None:
        views = [positions.seen(0), None, None]
        wait = Wait([(b"a", 5)], views, enough=2, together=together)
        task = asyncio.create_task(waits.wait(wait, 60))
        await asyncio.sleep(0.02)
        assert not task.done()
        positions.of[0][b"a"] = 6
        waits.tell()
        await task
        assert wait.masks == [1]
        await waits.wait(Wait([(b"a", 5)], [None], enough=1, together=together), 60)

    run(test)


def test_a_replica_that_cannot_tell_any_more_ends_all_waits() -> None:
    async def test(waits: ViewWaits, positions: Positions) -> None:
        tasks = [
            asyncio.create_task(waits.wait(Wait([(b"a", 5)], [positions.seen(0)]), 10))
            for _ in range(3)
        ]
        await asyncio.sleep(0)
        assert waits
        waits.end_all(NotLeader("another node leads", hint=2))
        for task in tasks:
            with pytest.raises(NotLeader):
                await task
        assert not waits

    run(test)


def test_a_request_that_is_gone_leaves_nothing_behind() -> None:
    async def test(waits: ViewWaits, positions: Positions) -> None:
        task = asyncio.create_task(waits.wait(Wait([(b"a", 5)], [positions.seen(0)]), 10))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert not waits
        waits.tell()

    run(test)


def test_a_sweep_gives_other_work_a_turn_and_many_changes_make_few_sweeps() -> None:
    async def test(waits: ViewWaits, positions: Positions) -> None:
        count = 2 * view_waits._TURN_LOOKS
        entries = [(b"%d" % n, 5) for n in range(count)]
        tasks = [
            asyncio.create_task(waits.wait(Wait(entries, [positions.seen(0)]), 10))
            for _ in range(2)
        ]
        await asyncio.sleep(0.1)
        positions.looks = highest = 0
        for n in range(count):
            positions.of[0][b"%d" % n] = 6
            waits.tell()
            before = positions.looks
            await asyncio.sleep(0)
            highest = max(highest, positions.looks - before)
        await asyncio.gather(*tasks)
        assert highest <= view_waits._TURN_LOOKS
        assert positions.looks < count * count // 4, "not every change looks at every entry"

    run(test)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 1), st.sampled_from([b"a", b"b", b"c"]), st.integers(0, 9))),
    st.lists(st.tuples(st.sampled_from([b"a", b"b", b"c"]), st.integers(1, 8)), min_size=1),
)
def test_a_bit_is_set_exactly_when_the_position_was_above_the_seq(
    moves: list[tuple[int, bytes, int]], entries: list[tuple[bytes, int]]
) -> None:
    async def test(waits: ViewWaits, positions: Positions) -> None:
        wait = Wait(entries, [positions.seen(0), positions.seen(1)])
        for view, key, position in moves:
            before = positions.of[view].get(key, 0)
            positions.of[view][key] = max(before, position)
            wait.begin()
            wait.look(1_000)
        wait.begin()
        while wait.look(2) == 2:
            pass
        expected = [
            sum((positions.of[view].get(key, 0) > seq) << view for view in range(2))
            for key, seq in entries
        ]
        assert wait.masks == expected
        assert wait.done.done() == all(mask == 3 for mask in expected)

    run(test)


def test_waits_of_a_connection_and_of_a_node_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "view_waits_per_connection_max", 1)
    monkeypatch.setattr(limits, "view_waits_max", 2)
    monkeypatch.setattr(limits, "view_waited_keys_max", 10)
    bounds, one, two, three = Bounds(), object(), object(), object()
    with bounds.one_more(one, 4):
        with pytest.raises(Overloaded, match="2 waits of the connection"), bounds.one_more(one, 1):
            pass
        with pytest.raises(Overloaded, match="11 keys"), bounds.one_more(two, 7):
            pass
        with (
            bounds.one_more(two, 6),
            pytest.raises(Overloaded, match="3 waits for"),
            bounds.one_more(three, 0),
        ):
            pass
    with bounds.one_more(one, 10):
        pass
    assert not bounds._of_connection
