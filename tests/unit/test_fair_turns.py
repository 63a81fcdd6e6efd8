"""Turns of the event loop, with a clock that the test turns."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from lognode.client.fair_turns import FairTurns, Share, clients_s, light_s, next_turn, slice_s


class Work:
    """A connection with so many messages, each of which takes `cost_s`."""

    def __init__(self, turns: Share, time: list[float], messages: int, cost_s: float) -> None:
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
        began = self.turns.clock()
        while self.left and self.turns.clock() < until:
            self.time[0] += self.cost_s
            self.left -= 1
            self.served_at.append(self.turn)
        self.turns.spent(self.turns.clock() - began)
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
        share = turns.share("10.0.0.1")
        floods = [Work(share, time, 1000, slice_s / 4) for _ in range(3)]
        late = Work(share, time, 1, 0.0)
        for work in (*floods, late):
            work.begin()
        assert [len(flood.served_at) for flood in floods] == [8, 0, 0]  # 1 ms
        assert late.left == 1  # both come after those who stand in line
        return [*floods, late]

    *floods, late = run(test, 3)
    assert late.left == 0
    assert all(0 < flood.left < 1000 for flood in floods)


def test_heavy_principals_are_served_in_turn() -> None:
    def test(turns: FairTurns, time: list[float]) -> list[Work]:
        share = turns.share("10.0.0.1")
        works = [Work(share, time, 10_000, slice_s / 10) for _ in range(40)]
        for work in works:
            share.later(work.step)
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
            work = Work(turns.share("10.0.0.1"), time, 2, slice_s)
            work.begin()
            assert work.left == 0
            time[0] += 2 * clients_s
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    asyncio.run(main())


def test_a_principal_of_one_connection_has_as_much_time_as_one_of_forty() -> None:
    def test(turns: FairTurns, time: list[float]) -> list[Work]:
        many = [Work(turns.share("many"), time, 10_000, slice_s / 10) for _ in range(40)]
        one = Work(turns.share("one"), time, 10_000, slice_s / 10)
        for work in (*many, one):
            work.turns.later(work.step)
        return [*many, one]

    *many, one = run(test, 50)
    theirs = sum(len(work.served_at) for work in many)
    assert 0.8 < len(one.served_at) / theirs < 1.25


def test_a_principal_that_uses_little_waits_for_nobody() -> None:
    def test(turns: FairTurns, time: list[float]) -> list[Work]:
        flood = [Work(turns.share("flood"), time, 1_000, slice_s / 4) for _ in range(40)]
        for work in flood:
            work.begin()
        time[0] = clients_s + light_s / 4  # the time of this turn is used up
        light = Work(turns.share("light"), time, 1, light_s / 2)
        light.begin()
        assert light.left == 0
        greedy = Work(turns.share("light"), time, 1, light_s / 2)
        greedy.begin()
        assert greedy.left == 1
        return [*flood, light, greedy]

    *_, greedy = run(test, 3)
    assert greedy.left == 0


def test_a_principal_over_its_quota_leaves_the_time_to_others_and_is_served_still() -> None:
    async def main() -> None:
        turns = FairTurns()
        over = turns.share("over")
        over.hold_back(60.0)
        served = 0

        def step(_: float) -> None:
            nonlocal served
            began = over.clock()
            while over.clock() - began < 0.0002:
                pass
            over.spent(over.clock() - began)
            served += 1
            over.later(step)

        over.later(step)
        assert over.begin(step) is None
        until = over.clock() + 0.5
        while over.clock() < until:
            assert turns.has_time(turns.share("other"), over.clock())
            await asyncio.sleep(0.001)
        assert 10 < served < 400  # of the 2,500 for which there was time

    asyncio.run(main())


def test_requests_of_many_turns_share_the_time_by_principal() -> None:
    async def main() -> None:
        time = [0.0]
        turns = FairTurns(lambda: time[0])
        served = {"many": 0, "one": 0}
        ended = False

        async def read(name: str) -> None:
            while not ended:
                time[0] += clients_s / 2
                served[name] += 1
                await asyncio.sleep(0)

        shares = {name: turns.share(name) for name in served}
        tasks = [
            asyncio.create_task(_run(shares[name], read, name))
            for name in ["many"] * 100 + ["one"] * 8  # each takes one turn in a turn of the loop
        ]
        took = []
        for _ in range(200):
            began = time[0]
            await asyncio.sleep(0)
            took.append(time[0] - began)
        ended = True
        await asyncio.gather(*tasks)
        assert 0.7 < served["one"] / served["many"] < 1.4
        assert max(took) < 8 * clients_s  # until it is known what a turn takes
        assert max(took[20:]) < 2 * clients_s

    asyncio.run(main())


async def _run(share: Share, read: Callable[[str], Coroutine[Any, None, None]], name: str) -> None:
    await share.run(lambda: read(name), lambda _: None)


def test_a_request_is_charged_for_its_turns_and_not_for_its_waits() -> None:
    async def main() -> None:
        time, charged = [0.0], 0.0
        turns = FairTurns(lambda: time[0])
        waiter: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def spent(seconds: float) -> None:
            nonlocal charged
            charged += seconds

        async def read() -> str:
            time[0] += 0.25
            found = await waiter
            time[0] += 0.5
            return found

        async def served() -> str:
            return await turns.share("a").run(read, spent)

        task = asyncio.create_task(served())
        await asyncio.sleep(0)
        time[0] += 100.0
        waiter.set_result("found")
        assert await task == "found"
        assert charged == 0.75

    asyncio.run(main())


def test_a_request_makes_its_answer_in_a_turn_and_goes_at_once_where_nobody_waits() -> None:
    async def main() -> None:
        time, order = [0.0], list[str]()
        turns = FairTurns(lambda: time[0])
        news: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def read(name: str) -> None:
            await news
            await next_turn()
            time[0] += clients_s / 2  # the answer
            order.append(name)

        async def begun(name: str) -> None:
            await _run(turns.share(name), read, name)

        tasks = [asyncio.create_task(begun("greedy")) for _ in range(20)]
        await asyncio.sleep(0)
        tasks.append(asyncio.create_task(begun("light")))
        await asyncio.sleep(0)
        news.set_result(None)
        await asyncio.gather(*tasks)
        assert order.count("greedy") == 20
        assert order.index("light") < 8, "it waited for no more than the turns under way"

        steps = 0

        async def alone() -> None:
            nonlocal steps
            await next_turn()
            steps += 1

        task = turns.share("alone").run(alone, lambda _: None)
        time[0] += 1.0
        await asyncio.sleep(0)
        with pytest.raises(StopIteration):
            next(task)
        assert steps == 1

    asyncio.run(main())


def test_a_request_that_is_cancelled_in_any_turn_sees_that_and_ends() -> None:
    async def main(turns_before: int) -> None:
        turns = FairTurns()
        ended: list[str] = []

        async def read() -> None:
            try:
                for _ in range(3):
                    await asyncio.sleep(0)
                await asyncio.sleep(60)
            finally:
                ended.append("read")

        async def served() -> None:
            await turns.share("a").run(read, lambda _: None)

        task = asyncio.create_task(served())
        for _ in range(turns_before):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(ended) == 1

    for turns_before in range(1, 12):
        asyncio.run(main(turns_before))


def test_an_error_of_a_request_reaches_its_caller() -> None:
    async def main() -> None:
        async def read() -> None:
            await asyncio.sleep(0)
            raise ValueError("no")

        with pytest.raises(ValueError, match="no"):
            await FairTurns().share("a").run(read, lambda _: None)

    asyncio.run(main())
