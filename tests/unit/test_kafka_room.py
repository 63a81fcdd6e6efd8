"""The memory that requests of Kafka clients share: bounded, in order, and given back."""

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any

import pytest

from lognode.node.kafka.room import Room
from lognode.node.kafka.session import Session


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def begun(work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
    return asyncio.create_task(work)


def test_requests_get_their_bytes_in_the_order_of_asking() -> None:
    async def run() -> None:
        room = Room(100)
        await room.take(60)
        large, small = begun(room.take(70)), begun(room.take(10))
        await settled()
        assert not large.done()
        assert not small.done(), "a small request does not overtake a large one"
        room.free(60)
        await settled()
        assert large.done()
        assert small.done()

    asyncio.run(run())


def test_a_request_of_more_than_all_gets_its_bytes_alone() -> None:
    async def run() -> None:
        room = Room(100)
        await room.take(500)
        other = begun(room.take(1))
        await settled()
        assert not other.done()
        room.free(500)
        await settled()
        assert other.done()

    asyncio.run(run())


@pytest.mark.parametrize("granted", [False, True])
def test_a_request_that_leaves_gives_its_bytes_back(granted: bool) -> None:
    async def run() -> None:
        room = Room(100)
        await room.take(100)
        leaves, stays = begun(room.take(100)), begun(room.take(100))
        await settled()
        if granted:
            room.free(100)  # its bytes are taken, and it has not run since
        leaves.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await leaves
        if not granted:
            room.free(100)
        await settled()
        assert stays.done()

    asyncio.run(run())


def test_a_host_that_holds_its_share_does_not_stop_others() -> None:
    async def run() -> None:
        room = Room(100, 50)
        await room.take(50, "slow")
        waits, other = begun(room.take(50, "slow")), begun(room.take(50, "other"))
        await settled()
        assert not waits.done()
        assert other.done(), "another host passes a host that has its share"
        third = begun(room.take(10, "third"))
        room.free(50, "slow")
        await settled()
        assert waits.done(), "the oldest request comes first"
        assert not third.done()
        room.free(50, "other")
        await settled()
        assert third.done()

    asyncio.run(run())


def test_a_host_waits_for_one_turn_of_each_other_host() -> None:
    """Two hosts that announce requests without end have all memory, half each."""

    async def run() -> None:
        room, done = Room(100, 50), list[str]()

        async def ask(owner: str) -> None:
            await room.take(50, owner)
            done.append(owner)

        tasks = [begun(ask(owner)) for owner in ["a", "b"] * 500]
        await settled()
        tasks.append(begun(ask("other")))
        await settled()
        assert done == ["a", "b"]
        for _ in range(2):
            room.free(50, done[-2])
            await settled()
        assert "other" in done[2:4]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert room.waiting == 0, "requests that leave are forgotten"

    asyncio.run(run())


def test_thousands_of_requests_that_wait_cost_a_turn_nothing() -> None:
    async def run() -> None:
        room = Room(100, 50)
        await room.take(50, "a")
        tasks = [begun(room.take(50, "a")) for _ in range(5_000)]
        loop = asyncio.get_running_loop()
        began = loop.time()
        await settled()
        for _ in range(5_000):
            await room.take(10, "b")
            room.free(10, "b")
        assert loop.time() - began < 5.0
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(run())


def test_bytes_that_come_free_pass_requests_that_are_just_leaving() -> None:
    async def run() -> None:
        room = Room(100)
        await room.take(100)
        leave, stays = [begun(room.take(100)) for _ in range(2)], begun(room.take(100))
        await settled()
        for task in leave:
            task.cancel()
        room.free(100)  # before the tasks have run
        await settled()
        assert stays.done()
        assert all(task.cancelled() for task in leave)
        assert room.waiting == 0

    asyncio.run(run())


def test_a_large_request_that_leaves_makes_way_for_those_behind() -> None:
    async def run() -> None:
        room = Room(100)
        await room.take(60)
        leaves, small = begun(room.take(70)), begun(room.take(10))
        await settled()
        leaves.cancel()
        await settled()
        assert small.done()

    asyncio.run(run())


def test_a_session_gives_its_room_back_once() -> None:
    async def run() -> None:
        room = Room(10)
        session = Session(
            None, None, host="h", address="h:1", certificate=None,  # type: ignore[arg-type]
            is_private=True, on_refused=lambda *_: None, opened=lambda _: None,
        )  # fmt: skip
        first, second = await session.hold(room, 4), await session.hold(room, 6)
        waiting = asyncio.create_task(room.take(5, "other"))
        await asyncio.sleep(0)
        session.let_go(first)
        session.let_go(first)
        await asyncio.sleep(0)
        assert not waiting.done()
        session.close()
        async with asyncio.timeout(5.0):
            await waiting
        second.free()
        assert room._taken == 5

    asyncio.run(run())
