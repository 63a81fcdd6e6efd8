"""Work over all ranges for who asks, in slices: the event loop goes on in between."""

import asyncio
import time
from collections.abc import Iterable
from typing import Final, TypeVar

T = TypeVar("T")
SLICE_S: Final = 0.002


async def in_slices(items: Iterable[T]) -> list[T]:
    """All that the iterator yields. What it goes over may change between two of them."""
    found: list[T] = []
    until = time.perf_counter() + SLICE_S
    for item in items:
        found.append(item)
        if time.perf_counter() > until:
            await asyncio.sleep(0)
            until = time.perf_counter() + SLICE_S
    return found
