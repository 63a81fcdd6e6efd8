"""Ask the cluster several questions at once, a bounded number at a time."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeVar

asks_at_once: Final = 16
"""Questions that a call asks at the same time."""
Item = TypeVar("Item")
Found = TypeVar("Found")


async def each(
    items: Iterable[Item], ask: Callable[[Item], Awaitable[Found]], at_once: int = asks_at_once
) -> list[Found]:
    """Return the result of `ask` for each item, `at_once` at the same time. A failure cancels the
    other calls."""
    gate = asyncio.Semaphore(at_once)

    async def one(item: Item) -> Found:
        async with gate:
            return await ask(item)

    tasks = [asyncio.create_task(one(item)) for item in items]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        raise
