"""Turns of clients that update the same key: order, bounds, clients that die."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from lognode.node.replicas import key_turns
from lognode.node.replicas.key_turns import KeyTurns

Test = Callable[[KeyTurns], Awaitable[None]]


def run(test: Test) -> None:
    broken: list[BaseException] = []

    async def main() -> None:
        async with asyncio.timeout(20):
            await test(KeyTurns(broken.append))

    asyncio.run(main())
    assert not broken


class Clients:
    """Clients that ask for turns of the key `k`; `served` has the numbers of those whose read was
    answered."""

    def __init__(self, turns: KeyTurns, count: int, wait_s: float = 60.0) -> None:
        self.served: list[int] = []
        self.tasks = [
            asyncio.create_task(self._take(turns, number, wait_s)) for number in range(count)
        ]

    async def _take(self, turns: KeyTurns, number: int, wait_s: float) -> None:
        await turns.take(b"k", wait_s)
        self.served.append(number)

    async def until(self, count: int) -> None:
        while len(self.served) < count:  # noqa: ASYNC110 - real timers run meanwhile
            await asyncio.sleep(0.001)


async def turns_of_the_loop() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_clients_are_served_one_after_another_in_order() -> None:
    """An entry of the key ends the turn, an entry of another key does not."""

    async def test(turns: KeyTurns) -> None:
        clients = Clients(turns, 5)
        for number in range(5):
            await turns_of_the_loop()
            assert clients.served == list(range(number + 1))
            turns.applied([b"other"])
            await turns_of_the_loop()
            assert clients.served == list(range(number + 1))
            turns.applied([b"a", b"k", b"k", b"k"])
        await turns_of_the_loop()
        assert len(turns) == turns.waiting == 0

    run(test)


def test_keys_have_turns_of_their_own() -> None:
    async def test(turns: KeyTurns) -> None:
        for number in range(100):
            await asyncio.wait_for(turns.take(b"%d" % number, 60), 0.1)
        assert len(turns) == 100
        turns.applied([b"%d" % number for number in range(200)])
        assert len(turns) == 0

    run(test)


def test_a_client_that_appends_nothing_holds_the_others_up_for_a_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(key_turns, "TURN_S", 0.02)

    async def test(turns: KeyTurns) -> None:
        clients = Clients(turns, 4)
        await clients.until(4)
        assert clients.served == [0, 1, 2, 3]
        await asyncio.sleep(0.03)
        await turns.take(b"another", 60)  # forgets what has ended
        assert len(turns) == 1

    run(test)


def test_a_client_that_has_left_gets_no_turn() -> None:
    async def test(turns: KeyTurns) -> None:
        clients = Clients(turns, 5)
        await turns_of_the_loop()
        clients.tasks[1].cancel()
        clients.tasks[2].cancel()
        turns.applied([b"k"])  # in the same turn of the loop
        await turns_of_the_loop()
        assert clients.served == [0, 3]
        turns.applied([b"k"])
        clients.tasks[4].cancel()  # its turn has just begun
        await turns_of_the_loop()
        assert len(turns) == turns.waiting == 0

    run(test)


def test_a_wait_ends_without_a_turn() -> None:
    async def test(turns: KeyTurns) -> None:
        clients = Clients(turns, 3, wait_s=0.01)
        await clients.until(3)
        assert turns.waiting == 0
        turns.applied([b"k"])
        assert len(turns) == 0

    run(test)


def test_waits_and_keys_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bounds clients compete, as without turns."""
    monkeypatch.setattr(key_turns, "WAITING_MAX", 3)
    monkeypatch.setattr(key_turns, "_TURNS_MAX", 5)

    async def test(turns: KeyTurns) -> None:
        clients = Clients(turns, 10)
        await turns_of_the_loop()
        assert sorted(clients.served) == [0, 4, 5, 6, 7, 8, 9]
        assert turns.waiting == 3
        for number in range(10):
            await asyncio.wait_for(turns.take(b"%d" % number, 60), 0.1)
        assert len(turns) == 5
        turns.end_all()

    run(test)


def test_a_member_that_stops_to_lead_lets_everybody_go_in_slices() -> None:
    async def test(turns: KeyTurns) -> None:
        clients = Clients(turns, 200)
        await turns_of_the_loop()
        turns.end_all()
        turns.end_all()
        await asyncio.sleep(0)
        assert len(clients.served) <= 3 * key_turns._WAKES_A_TURN
        await clients.until(200)
        assert len(turns) == turns.waiting == 0

    run(test)
