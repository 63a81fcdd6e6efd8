"""`begun` runs the first step at once, and the rest as a task."""

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any

import pytest

from lognode.node.runtime.eager import begun


def run_sync(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(main)


def test_the_first_step_runs_before_begun_returns_and_the_rest_in_later_turns() -> None:
    async def main() -> None:
        steps: list[str] = []
        gate: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        async def work() -> int:
            steps.append("first")
            found = await gate
            steps.append("second")
            await asyncio.sleep(0)
            steps.append("third")
            return found + await after

        after: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        task = begun(work())
        assert steps == ["first"]
        gate.set_result(1)
        after.set_result(2)
        assert not task.done()
        assert await task == 3
        assert steps == ["first", "second", "third"]

    run_sync(main())


def test_work_of_one_step_is_done_at_once_with_its_result_or_its_error() -> None:
    async def main() -> None:
        async def answer() -> int:
            return 7

        async def refuse() -> int:
            raise ValueError("no")

        assert begun(answer()).result() == 7
        failed = begun(refuse())
        assert failed.done()
        with pytest.raises(ValueError, match="no"):
            await failed

    run_sync(main())


def test_the_work_handles_an_error_of_what_it_waits_for_and_waits_again() -> None:
    async def main() -> None:
        first: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        second: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        async def work() -> int:
            with contextlib.suppress(KeyError):
                await first
            return await second

        async def gives_up() -> int:
            try:
                return await first
            except KeyError:
                return -1

        task, other = begun(work()), begun(gives_up())
        first.set_exception(KeyError("lost"))
        await asyncio.sleep(0.01)
        assert await other == -1
        assert not task.done()
        second.set_result(5)
        assert await task == 5

    run_sync(main())


@pytest.mark.parametrize("turns", [0, 3])
def test_a_cancelled_task_ends_the_work_where_it_waits(turns: int) -> None:
    async def main() -> None:
        ended: list[str] = []

        async def work() -> None:
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                ended.append("work")

        task = begun(work())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended == ["work"]

    run_sync(main())
