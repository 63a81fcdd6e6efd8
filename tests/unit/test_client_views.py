"""Appends that wait for views, in the SDK: changes of leaders and ranges, limits, unknown views."""

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
)
from lognode.client.protocol.types import Ack, ViewInfo
from lognode.client.view_waits import of_all


def run(test: Callable[[ViewLeaders], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with asyncio.timeout(30):
            await test(ViewLeaders())

    asyncio.run(whole())


async def chosen(view: ViewLeaders, *names: str, keys: tuple[bytes, ...] = ()) -> list[ViewInfo]:
    return await view.views.chosen(names, 1_000, keys, view.now() + 5)


def test_each_ack_says_which_views_have_acknowledged_its_entry() -> None:
    async def test(view: ViewLeaders) -> None:
        views = await chosen(view, "search", "cache", "search", keys=(b"a", b"ab"))
        acks = [Ack(5, 1), Ack(7, 1), Ack(6, 1), Ack(None, None, duplicate=True)]
        view.move(a=8, z=6)
        view.move(1, a=7)
        found = await view.views.seen(views, 50, [b"a", b"a", b"z", b"b"], acks)
        assert [ack.seen for ack in found] == [
            {"search": True, "cache": False}, {"search": True, "cache": False},
            {"search": False, "cache": False}, {"search": False, "cache": False},
        ]  # fmt: skip
        assert [ack[:3] for ack in found] == [ack[:3] for ack in acks]
        assert of_all(found[:2]) == {"search": True, "cache": False}
        assert of_all(found) == {"search": False, "cache": False}
        asked = sorted(each["keys"] for each in view.asked)
        assert asked == [[(b"a", 7)], [(b"z", 6)]] or asked == [[[b"a", 7]], [[b"z", 6]]]

    run(test)


def test_a_wait_ends_as_soon_as_the_views_have_acknowledged() -> None:
    async def test(view: ViewLeaders) -> None:
        views = await chosen(view, "search")
        wait = asyncio.create_task(
            view.views.seen(views, 30_000, [b"a", b"z"], [Ack(5, 1), Ack(6, 1)])
        )
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
        views = await chosen(view, "search")
        wait = asyncio.create_task(
            view.views.seen(views, 20_000, [b"a", b"b"], [Ack(5, 1), Ack(6, 1)])
        )
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
        views = await chosen(view, "search")
        view.move(a=9, z=9)
        view.faults.append(lambda body: error if body["range"] == 1 else None)
        found = await view.views.seen(views, 200, [b"a", b"z"], [Ack(5, 1), Ack(5, 1)])
        assert [ack.seen for ack in found] == [{"search": False}, {"search": True}]

    run(test)


def test_a_wait_at_its_limit_is_over_when_no_member_leads() -> None:
    async def test(view: ViewLeaders) -> None:
        views = await chosen(view, "search")
        view.faults.append(no_leader(1 << 30))
        began = view.now()
        found = await view.views.seen(views, 300, [b"a"], [Ack(5, 1)])
        assert found[0].seen == {"search": False}
        assert view.now() - began < 5

    run(test)


def test_more_waits_than_may_be_under_way_take_turns_in_their_own_time() -> None:
    async def test(view: ViewLeaders) -> None:
        views = await chosen(view, "search")
        waits = [
            asyncio.create_task(view.views.seen(views, 5_000, [b"a"], [Ack(5, 1)]))
            for _ in range(300)
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
            await chosen(view, "search", "missing")
        with pytest.raises(InvalidArgument, match=r"does not have the key b'b'"):
            await chosen(view, "cache", keys=(b"a", b"b"))
        with pytest.raises(InvalidArgument, match="give a list"):
            await view.views.chosen("search", 1, [], view.now() + 5)
        with pytest.raises(InvalidArgument, match="at most 16"):
            await view.views.chosen([str(n) for n in range(17)], 1, [], view.now() + 5)
        for wait_ms in (-1, 30_001, True, 0.5):
            with pytest.raises(InvalidArgument, match="wait_ms"):
                await view.views.chosen(["search"], wait_ms, [], view.now() + 5)  # type: ignore[arg-type]
        assert not view.asked

    run(test)
