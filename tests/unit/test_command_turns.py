"""Requests that change the metadata: a few of each principal are under way at a time."""

import asyncio
from collections import Counter

import pytest

from lognode.client.protocol import limits
from lognode.node.serving.command_turns import CommandTurns


class Commands:
    """Requests that end when they are told to."""

    def __init__(self, each_max: int = 2, all_max: int = 3) -> None:
        self.turns = CommandTurns(each_max, all_max)
        self.under_way: list[tuple[str, asyncio.Event]] = []
        self.done: list[str] = []

    def ask(self, principal: str) -> "asyncio.Task[str]":
        return asyncio.create_task(self.turns.run(principal, self._work(principal)))

    async def _work(self, principal: str) -> str:
        end = asyncio.Event()
        self.under_way.append((principal, end))
        try:
            await end.wait()
        finally:
            self.under_way.remove((principal, end))
        self.done.append(principal)
        return principal

    async def settle(self) -> "Counter[str]":
        """Who has how many requests under way, once nothing moves."""
        for _ in range(5):
            await asyncio.sleep(0)
        return Counter(principal for principal, _ in self.under_way)

    async def end_one(self) -> "Counter[str]":
        self.under_way[0][1].set()
        return await self.settle()


def test_a_principal_has_a_few_and_others_come_in_turn() -> None:
    async def main() -> None:
        commands = Commands()
        asked = [commands.ask("ann") for _ in range(6)]
        assert await commands.settle() == {"ann": 2}
        asked += [commands.ask(who) for who in ("bob", "cid", "cid")]
        assert await commands.settle() == {"ann": 2, "bob": 1}
        assert await commands.end_one() == {"ann": 1, "bob": 1, "cid": 1}
        while commands.under_way:
            found = await commands.end_one()
            assert found.total() <= 3
            assert max(found.values(), default=0) <= 2
        assert await asyncio.gather(*asked) == [*["ann"] * 6, "bob", "cid", "cid"]
        assert (commands.turns._waiting, commands.turns._under_way.total()) == ({}, 0)

    asyncio.run(main())


def test_a_client_that_leaves_takes_no_turn_and_keeps_none() -> None:
    async def main() -> None:
        commands = Commands(1, 9)
        first, second, third = (commands.ask("ann") for _ in range(3))
        await commands.settle()
        second.cancel()
        await commands.settle()
        commands.under_way[0][1].set()
        await commands.settle()
        assert (first.done(), second.cancelled(), len(commands.under_way)) == (True, True, 1)
        third.cancel()
        fourth = commands.ask("ann")
        await commands.settle()
        assert len(commands.under_way) == 1
        await commands.end_one()
        assert await fourth == "ann"
        fifth, sixth = commands.ask("ann"), commands.ask("ann")
        await commands.settle()
        commands.under_way[0][1].set()
        await asyncio.sleep(0)
        sixth.cancel()  # in the moment in which its turn comes
        await commands.settle()
        await fifth
        seventh = commands.ask("ann")
        await commands.settle()
        await commands.end_one()
        assert await seventh == "ann"
        assert (commands.turns._waiting, commands.turns._under_way.total()) == ({}, 0)

    asyncio.run(main())


def test_a_failed_command_returns_its_turn() -> None:
    async def fail() -> None:
        raise ValueError("no")

    async def main() -> None:
        turns = CommandTurns(1, 1)
        for _ in range(3):
            with pytest.raises(ValueError, match="no"):
                await turns.run("ann", fail())

    asyncio.run(main())


def test_heartbeats_find_room_beside_all_commands() -> None:
    assert limits.commands_under_way_max < limits.requests_in_flight_max // 4
