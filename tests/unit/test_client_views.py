"""Appends that wait for views, in the SDK: changes of leaders and ranges, limits, choices of views,
and the names that the client remembers."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from view_leaders import ViewLeaders, no_leader

from lognode.client.protocol.errors import (
    InvalidArgument,
    LognodeError,
    NotFound,
    Overloaded,
    RemoteProtocolError,
    Timeout,
)
from lognode.client.protocol.types import Ack
from lognode.client.view_choice import AllOf, AnyOf, WaitFor, checked_choice
from lognode.client.view_names import remembered_s
from lognode.client.view_waits import Waited


def run(test: Callable[[ViewLeaders], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with asyncio.timeout(30):
            await test(ViewLeaders())

    asyncio.run(whole())


async def waited(
    view: ViewLeaders, *names: str, keys: tuple[bytes, ...] = (), wait_ms: int = 1_000
) -> Waited:
    return await view.views.waited(names, wait_ms, keys, view.now() + 5)


def test_each_ack_says_which_views_have_acknowledged_its_entry() -> None:
    async def test(view: ViewLeaders) -> None:
        views = await waited(view, "search", "cache", "search", keys=(b"a", b"ab"), wait_ms=50)
        acks = [Ack(5, 1), Ack(7, 1), Ack(6, 1), Ack(None, None, duplicate=True)]
        view.move(a=8, z=6)
        view.move(1, a=7)
        found = await view.views.seen(views, [b"a", b"a", b"z", b"b"], acks)
        assert [ack.seen for ack in found] == [
            {"search": True, "cache": False}, {"search": True, "cache": False},
            {"search": False, "cache": False}, {"search": False, "cache": False},
        ]  # fmt: skip
        assert [ack[:3] for ack in found] == [ack[:3] for ack in acks]
        asked = sorted(each["keys"] for each in view.asked)
        assert asked == [[(b"a", 7)], [(b"z", 6)]] or asked == [[[b"a", 7]], [[b"z", 6]]]

    run(test)


def test_a_wait_ends_as_soon_as_the_views_have_acknowledged() -> None:
    async def test(view: ViewLeaders) -> None:
        views = await waited(view, "search", wait_ms=30_000)
        wait = asyncio.create_task(view.views.seen(views, [b"a", b"z"], [Ack(5, 1), Ack(6, 1)]))
        await asyncio.sleep(0.02)
        view.move(a=6)
        await asyncio.sleep(0.02)
        assert not wait.done()
        view.move(z=7)
        assert [ack.seen for ack in await wait] == [{"search": True}] * 2
        assert len(view.asked) == 2

    run(test)


@pytest.mark.parametrize("change", ["leader", "split", "overloaded"])
def test_a_wait_goes_on_at_the_new_place_with_the_rest_of_its_time(change: str) -> None:
    async def test(view: ViewLeaders) -> None:
        views = await waited(view, "search", wait_ms=20_000)
        wait = asyncio.create_task(view.views.seen(views, [b"a", b"b"], [Ack(5, 1), Ack(6, 1)]))
        await asyncio.sleep(0.05)
        if change == "split":
            view.split(b"b")
        elif change == "leader":
            view.faults.append(no_leader(2))
        else:
            busy = [Overloaded("too many waits", retry_after=0.05)]
            view.faults.append(lambda _: busy.pop() if busy else None)
        view.move()
        await asyncio.sleep(0.05)
        assert not wait.done()
        view.move(a=6, b=7)
        assert [ack.seen for ack in await wait] == [{"search": True}] * 2
        assert view.asked[-1]["wait_ms"] < view.asked[0]["wait_ms"] <= 20_000

    run(test)


@pytest.mark.parametrize(
    "error",
    [
        NotFound("the view was deleted"), RemoteProtocolError("broken"),
        Overloaded("too many waits", retry_after=60),
    ],
    ids=str,
)  # fmt: skip
def test_an_entry_of_which_no_leader_can_tell_is_not_seen(error: LognodeError) -> None:
    async def test(view: ViewLeaders) -> None:
        views = await waited(view, "search", wait_ms=200)
        view.move(a=9, z=9)
        view.faults.append(lambda body: error if body["range"] == 1 else None)
        found = await view.views.seen(views, [b"a", b"z"], [Ack(5, 1), Ack(5, 1)])
        assert [ack.seen for ack in found] == [{"search": False}, {"search": True}]

    run(test)


def test_a_wait_at_its_limit_is_over_when_no_member_leads() -> None:
    async def test(view: ViewLeaders) -> None:
        views = await waited(view, "search", wait_ms=300)
        view.faults.append(no_leader(1 << 30))
        began = view.now()
        found = await view.views.seen(views, [b"a"], [Ack(5, 1)])
        assert found[0].seen == {"search": False}
        assert view.now() - began < 5

    run(test)


def test_more_waits_than_may_be_under_way_take_turns_in_their_own_time() -> None:
    async def test(view: ViewLeaders) -> None:
        views = await waited(view, "search", wait_ms=5_000)
        waits = [
            asyncio.create_task(view.views.seen(views, [b"a"], [Ack(5, 1)])) for _ in range(300)
        ]
        await asyncio.sleep(0.2)
        assert len(view.asked) == 128
        view.move(a=6)
        for wait in waits:
            assert (await wait)[0].seen == {"search": True}

    run(test)


def test_nothing_is_asked_of_a_range_before_the_views_are_known() -> None:
    async def test(view: ViewLeaders) -> None:
        with pytest.raises(NotFound, match=r"'missing'.*nothing was appended"):
            await waited(view, "search", "missing")
        with pytest.raises(InvalidArgument, match=r"does not have the key b'b'"):
            await waited(view, "cache", keys=(b"a", b"b"))
        with pytest.raises(InvalidArgument, match="give a list"):
            await view.views.waited("search", 1, [], view.now() + 5)
        with pytest.raises(InvalidArgument, match="at most 16"):
            await view.views.waited([str(n) for n in range(17)], 1, [], view.now() + 5)
        for wait_ms in (-1, 30_001, True, 0.5):
            with pytest.raises(InvalidArgument, match="wait_ms"):
                await view.views.waited(["search"], wait_ms, [], view.now() + 5)  # type: ignore[arg-type]
        assert not view.asked

    run(test)


@pytest.mark.parametrize(
    ("choice", "told"),
    [
        (["search", "cache", "search"], (("search", "cache"), 2, False)),
        (AllOf("search", live=True), (("search",), 1, True)),
        (AnyOf(1, "search", "cache", "cache"), (("search", "cache"), 1, False)),
        (AnyOf(2, "search", "cache", live=True), (("search", "cache"), 2, True)),
    ],
    ids=repr,
)
def test_a_choice_has_the_names_once_and_how_many_of_them_count(
    choice: WaitFor, told: tuple[tuple[str, ...], int, bool]
) -> None:
    assert checked_choice(choice) == told


@pytest.mark.parametrize(
    "choice",
    [
        "search", b"search", AllOf(), [], [1], AnyOf(1), AnyOf(0, "a"), AnyOf(2, "a", "a"),
        AnyOf(True, "a"), AnyOf("search", "cache"), {"search": 1},
    ],
    ids=repr,
)  # fmt: skip
def test_a_choice_that_makes_no_sense_is_refused(choice: WaitFor) -> None:
    with pytest.raises(InvalidArgument, match="wait_for is"):
        checked_choice(choice)


def test_any_of_the_views_ends_a_wait() -> None:
    async def test(view: ViewLeaders) -> None:
        any_view = await view.views.waited(
            AnyOf(1, "search", "cache"), 30_000, [b"a", b"ab"], view.now() + 5
        )
        wait = asyncio.create_task(view.views.seen(any_view, [b"a", b"ab"], [Ack(5, 1), Ack(6, 1)]))
        await asyncio.sleep(0.02)
        view.move(0, a=6)
        await asyncio.sleep(0.02)
        assert not wait.done(), "no view has acknowledged the other entry"
        view.move(1, ab=7)
        assert [ack.seen for ack in await wait] == [
            {"search": True, "cache": False}, {"search": False, "cache": True}
        ]  # fmt: skip
        assert not view.asked[0]["live"]

    run(test)


def test_a_batch_waits_until_one_view_has_acknowledged_all_its_entries() -> None:
    async def test(view: ViewLeaders) -> None:
        any_view = await view.views.waited(
            AnyOf(1, "search", "cache", live=True), 30_000, [b"a", b"ab"], view.now() + 5
        )
        wait = asyncio.create_task(
            view.views.seen_together(any_view, [b"a", b"ab"], [Ack(5, 1), Ack(6, 1)])
        )
        await asyncio.sleep(0.02)
        view.move(0, a=6)
        view.move(1, ab=7)
        await asyncio.sleep(0.05)
        assert not wait.done()
        view.move(1, a=6)
        assert await wait == {"search": False, "cache": True}
        assert view.asked[0]["live"]
        assert len(view.asked) == 1

    run(test)


def test_a_batch_whose_requests_end_by_different_views_asks_again() -> None:
    async def test(view: ViewLeaders) -> None:
        view.register(2, "cache")
        any_view = await view.views.waited(
            AnyOf(1, "search", "cache"), 30_000, [b"a", b"z"], view.now() + 5
        )
        view.move(0, a=6)
        view.move(1, z=6)
        wait = asyncio.create_task(
            view.views.seen_together(any_view, [b"a", b"z"], [Ack(5, 1), Ack(5, 1)])
        )
        await asyncio.sleep(0.05)
        assert not wait.done()
        view.move(0, z=6)
        view.move(1, a=6)
        assert (await wait)["search"]

    run(test)


def test_a_batch_without_known_seqs_is_not_seen() -> None:
    async def test(view: ViewLeaders) -> None:
        views = await waited(view, "search")
        acks = [Ack(None, None, duplicate=True)]
        assert await view.views.seen_together(views, [b"a"], acks) == {"search": False}
        assert not view.asked

    run(test)


def test_appends_share_one_list_of_the_views_for_some_seconds() -> None:
    async def test(view: ViewLeaders) -> None:
        found = await asyncio.gather(*(waited(view, "search", keys=(b"a",)) for _ in range(50)))
        assert {each.ids[0] for each in found} == {1}
        assert view.lists == 1
        view.views._asked_at -= remembered_s  # time passes
        await waited(view, "search")
        assert view.lists == 2
        await view.views.delete("search", view.now() + 5)
        with pytest.raises(NotFound, match="'search'"):
            await waited(view, "search")
        assert view.lists == 3

    run(test)


def test_a_view_that_is_new_to_the_client_is_found() -> None:
    async def test(view: ViewLeaders) -> None:
        await waited(view, "search")
        with pytest.raises(InvalidArgument, match="does not have the key b'z'"):
            await waited(view, "cache", keys=(b"z",))
        view.register(3, "table")
        view.register(4, "cache")
        assert (await waited(view, "table")).ids == [3]
        assert (await waited(view, "cache", keys=(b"z",))).ids == [4]

    run(test)


def test_a_view_that_was_deleted_while_the_client_remembers_it_is_not_seen() -> None:
    async def test(view: ViewLeaders) -> None:
        await waited(view, "search")
        view.move(0, a=9)
        view.move(1, a=6)
        del view.rows[0]
        views = await waited(view, "search", "cache", keys=(b"a",), wait_ms=20_000)
        assert views.ids == [1, 2]
        (ack,) = await view.views.seen(views, [b"a"], [Ack(5, 1)])
        assert ack.seen == {"search": False, "cache": True}
        with pytest.raises(NotFound, match="nothing was appended"):
            await waited(view, "search")

    run(test)


def test_a_view_that_was_registered_again_tells_of_itself() -> None:
    """The position of the earlier view of the name says nothing."""

    async def test(view: ViewLeaders) -> None:
        await waited(view, "search")
        view.move(0, a=9)
        view.register(7, "search")
        views = await waited(view, "search", keys=(b"a",), wait_ms=20_000)
        wait = asyncio.create_task(view.views.seen(views, [b"a"], [Ack(5, 1)]))
        await asyncio.sleep(0.05)
        assert not wait.done()
        view.positions[7][b"a"] = 6
        view.wake()
        assert [ack.seen for ack in await wait] == [{"search": True}]
        assert [each["views"] for each in view.asked] == [[1], [7]]

    run(test)


def test_a_list_that_takes_too_long_ends_each_call_at_its_own_time() -> None:
    async def test(view: ViewLeaders) -> None:
        lock = view.views._lock = asyncio.Lock()
        async with lock:
            with pytest.raises(Timeout, match="nothing was appended") as failed:
                await view.views.waited(["search"], 1, [], view.now() + 0.05)
        assert failed.value.outcome == "not_applied"
        assert (await waited(view, "search")).ids == [1]

    run(test)
