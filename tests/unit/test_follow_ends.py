"""Follows that begin at `latest` together share a request for each range, sent after they began."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from lognode.client.cluster import Cluster, LogRoutes
from lognode.client.follow_ends import RangeEnds, under_way_max
from lognode.client.protocol.errors import LognodeError, Timeout, Unavailable
from lognode.client.routing import Range

RANGE = Range(7, 1, 1, b"", None, (1, 2, 3), 1)


class Answers:
    """A cluster whose range has an end, which requests see when they are sent."""

    def __init__(self) -> None:
        self.end = 1
        self.sent = 0
        self.under_way = 0
        self.gate = asyncio.Event()
        self.fails: list[LognodeError] = []

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    async def call(self, *_: Any, deadline: float) -> tuple[dict[str, int], Range]:
        self.sent += 1
        self.under_way += 1
        assert self.under_way <= under_way_max
        seen = self.end
        try:
            await self.gate.wait()
            if self.fails:
                raise self.fails.pop()
            return {"seq": seen}, RANGE
        finally:
            self.under_way -= 1


def ends_of(answers: Answers) -> RangeEnds:
    return RangeEnds(cast("Cluster", answers), cast("LogRoutes", SimpleNamespace(name="events")))


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_P4_thousands_of_follows_ask_twice() -> None:
    async def run() -> None:
        answers = Answers()
        ends = ends_of(answers)
        deadline = answers.now() + 60
        first = asyncio.create_task(ends.end_of(RANGE, deadline))
        await turns()
        others = [asyncio.create_task(ends.end_of(RANGE, deadline)) for _ in range(5_000)]
        await turns()
        answers.gate.set()
        assert set(await asyncio.gather(first, *others)) == {1}
        assert answers.sent == 2
        assert not ends._asking
        assert not ends._next

    asyncio.run(run())


def test_P4_few_requests_are_under_way_at_once() -> None:
    async def run() -> None:
        answers = Answers()
        ends = ends_of(answers)
        callers = []
        for _ in range(3 * under_way_max):
            callers.append(asyncio.create_task(ends.end_of(RANGE, answers.now() + 60)))
            await turns()
        assert answers.sent == under_way_max
        answers.end = 5
        answers.gate.set()
        found = await asyncio.gather(*callers)
        assert found == [1] * under_way_max + [5] * 2 * under_way_max
        assert answers.sent == under_way_max + 1

    asyncio.run(run())


def test_S7_a_follow_gets_the_answer_to_a_request_sent_after_the_follow_began() -> None:
    async def run() -> None:
        answers = Answers()
        ends = ends_of(answers)
        early = asyncio.create_task(ends.end_of(RANGE, answers.now() + 60))
        await turns()
        assert answers.sent == 1
        answers.end = 9  # entries are acknowledged while the request is under way
        late = asyncio.create_task(ends.end_of(RANGE, answers.now() + 60))
        await turns()
        answers.gate.set()
        assert (await early, await late) == (1, 9)

    asyncio.run(run())


def test_an_error_reaches_all_who_share_the_request_and_no_later_caller() -> None:
    async def run() -> None:
        answers = Answers()
        ends = ends_of(answers)
        answers.fails.append(Unavailable("nobody answers"))
        answers.gate.set()
        both = [ends.end_of(RANGE, answers.now() + 60) for _ in range(2)]
        found = await asyncio.gather(*both, return_exceptions=True)
        assert [type(each) for each in found] == [Unavailable, Unavailable]
        assert await ends.end_of(RANGE, answers.now() + 60) == 1

    asyncio.run(run())


def test_a_caller_with_less_time_ends_no_other_caller() -> None:
    async def run() -> None:
        answers = Answers()
        ends = ends_of(answers)
        answers.fails.append(Timeout("the first caller has no more time"))
        answers.gate.set()
        short = asyncio.create_task(ends.end_of(RANGE, answers.now()))
        long = asyncio.create_task(ends.end_of(RANGE, answers.now() + 60))
        with pytest.raises(Timeout):
            await short
        assert await long == 1

    asyncio.run(run())


def test_a_caller_that_leaves_takes_the_request_of_nobody() -> None:
    async def run() -> None:
        answers = Answers()
        ends = ends_of(answers)
        leaves = asyncio.create_task(ends.end_of(RANGE, answers.now() + 60))
        stays = asyncio.create_task(ends.end_of(RANGE, answers.now() + 60))
        await turns()
        leaves.cancel()
        await turns()
        answers.gate.set()
        assert await stays == 1

    asyncio.run(run())
