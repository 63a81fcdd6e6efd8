"""Reading ahead: the node works on the next page while the caller works on the last one."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Final, TypeVar

_SENDS_AFTER: Final = 2
"""Turns of the loop until a request has left: its task runs in the first and writes in the next.
A caller that never waits between two items would otherwise keep the request back."""
T = TypeVar("T")


async def ahead(source: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
    """Yield the items of the source, none of which is None, and fetch one item ahead.

    Closing this generator closes the source. An error of the source comes after all earlier items.
    """
    coming = asyncio.ensure_future(_next(source))
    try:
        while (item := await coming) is not None:
            coming = asyncio.ensure_future(_next(source))
            for _ in range(_SENDS_AFTER):
                await asyncio.sleep(0)
            yield item
    finally:
        coming.cancel()
        await asyncio.gather(coming, return_exceptions=True)
        await source.aclose()


async def _next(source: AsyncGenerator[T, None]) -> T | None:
    return await anext(source, None)
