"""Turns of the event loop, with a clock that the test turns."""

import asyncio
from collections.abc import Callable

from lognode.client.fair_turns import FairTurns, slice_s, turn_s


class Work:
    """A connection with so many messages, each of which takes `cost_s`."""

    def __init__(self, turns: FairTurns, time: list[float], messages: int, cost_s: float) -> None:
        self.turns = turns
        self.time = time
        self.left = messages
        self.cost_s = cost_s
        self.served_at: list[int] = []
        """The turn of each message."""
        self.turn = 0

    def one(self) -> None:
        self.time[0] += self.cost_s
        self.left -= 1
        self.served_at.append(self.turn)

    def step(self, until: float) -> None:
        while self.left and self.turns.clock() < until:
            self.one()
        if self.left:
            self.turns.later(self.step)


def run(test: Callable[[FairTurns, list[float]], list[Work]], turns_count: int) -> list[Work]:
    """What `test` makes, after so many turns of the loop."""

    async def main() -> list[Work]:
        time = [0.0]
        works = test(FairTurns(lambda: time[0]), time)
        for turn in range(turns_count):
            for work in works:
                work.turn = turn
            await asyncio.sleep(0)
        return works

    return asyncio.run(main())


def test_a_turn_has_time_for_some_and_the_others_stand_in_line() -> None:
    def test(turns: FairTurns, time: list[float]) -> list[Work]:
        flood = Work(turns, time, 1000, turn_s / 4)
        while flood.left and not turns.is_over:
            flood.one()
        assert len(flood.served_at) == 4
        turns.later(flood.step)
        late = Work(turns, time, 1, 0.0)
        assert turns.is_over  # it comes after those who stand in line
        turns.later(late.step)
        return [flood, late]

    flood, late = run(test, 3)
    assert late.left == 0
    assert 0 < flood.left < 1000


def test_those_who_have_much_are_served_in_turn() -> None:
    def test(turns: FairTurns, time: list[float]) -> list[Work]:
        works = [Work(turns, time, 10_000, slice_s / 10) for _ in range(40)]
        for work in works:
            turns.later(work.step)
        return works

    works = run(test, 51)
    served = [len(work.served_at) for work in works]
    assert min(served) > 0
    assert max(served) - min(served) <= 22  # two slices
    for turn in range(50):
        took = sum(work.served_at.count(turn) * work.cost_s for work in works)
        assert took <= turn_s + slice_s


def test_a_turn_in_which_nothing_waits_begins_anew() -> None:
    async def main() -> None:
        time = [0.0]
        turns = FairTurns(lambda: time[0])
        for _ in range(5):
            assert not turns.is_over
            time[0] += 2 * turn_s
            assert turns.is_over
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    asyncio.run(main())
