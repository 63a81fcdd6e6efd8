"""Questions that many ask at a time."""

import asyncio

import pytest

from lognode.node.runtime.together import Together


def test_simultaneous_callers_share_a_question_that_begins_after_their_calls() -> None:
    async def main() -> None:
        asked: list[int] = []
        answers: list[asyncio.Future[str]] = []

        async def ask(node: int) -> str:
            asked.append(node)
            answers.append(asyncio.get_running_loop().create_future())
            return await answers[-1]

        together = Together(ask)
        first = [together.begin(1), together.begin(1), together.begin(2)]
        await asyncio.sleep(0)
        assert asked == [1, 2]
        later = [together.begin(1) for _ in range(100)]
        for _ in range(5):
            await asyncio.sleep(0)
        assert asked == [1, 2], "the answer that is awaited may tell of a time before the question"
        answers[0].set_result("old")
        answers[1].set_result("other")
        assert await asyncio.gather(*first) == ["old", "old", "other"]
        for _ in range(5):
            await asyncio.sleep(0)
        assert asked == [1, 2, 1]
        answers[2].set_result("new")
        assert await asyncio.gather(*later) == ["new"] * 100

    asyncio.run(main())


def test_an_error_is_told_to_all_and_the_next_question_is_asked() -> None:
    async def main() -> None:
        count = 0

        async def ask(_: int) -> int:
            nonlocal count
            count += 1
            await asyncio.sleep(0)
            if count == 1:
                raise ValueError("no")
            return count

        together = Together(ask)
        first, same = together.begin(1), together.begin(1)
        assert first is same
        await asyncio.sleep(0)
        second = together.begin(1)
        with pytest.raises(ValueError, match="no"):
            await first
        assert await second == 2
        assert await together.begin(1) == 3

    asyncio.run(main())


def test_a_caller_that_leaves_takes_the_answer_from_no_other_caller() -> None:
    async def main() -> None:
        async def ask(_: int) -> str:
            await asyncio.sleep(0.01)
            return "answer"

        together = Together(ask)

        async def wait() -> str:
            return await asyncio.shield(together.begin(1))

        leaves, stays = asyncio.create_task(wait()), asyncio.create_task(wait())
        await asyncio.sleep(0)
        leaves.cancel()
        assert await stays == "answer"

    asyncio.run(main())
