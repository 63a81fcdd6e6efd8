"""Turns of the event loop, with a clock that the test turns."""

import asyncio
from collections.abc import Callable

from lognode.client.fair_turns import FairTurns, clients_s, slice_s


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

    def begin(self) -> None:
        until = self.turns.begin(self.step)
        if until is not None:
            self.step(until)

    def step(self, until: float) -> None:
        while self.left and self.turns.clock() < until:
            self.time[0] += self.cost_s
            self.left -= 1
            self.served_at.append(self.turn)
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
        floods = [Work(turns, time, 1000, slice_s / 4) for _ in range(3)]
        late = Work(turns, time, 1, 0.0)
        for work in (*floods, late):
            work.begin()
        assert [len(flood.served_at) for flood in floods] == [16, 0, 0]  # 2 ms
        assert late.left == 1  # both come after those who stand in line
        return [*floods, late]

    *floods, late = run(test, 3)
    assert late.left == 0
    assert all(0 < flood.left < 1000 for flood in floods)


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
        assert took <= clients_s + slice_s


def test_a_turn_in_which_nothing_waits_begins_anew() -> None:
    async def main() -> None:
        time = [0.0]
        turns = FairTurns(lambda: time[0])
        for _ in range(5):
            work = Work(turns, time, 4, slice_s)
            work.begin()
            assert work.left == 0
            time[0] += 2 * clients_s
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    asyncio.run(main())
