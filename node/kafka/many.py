"""Requests and answers with many elements: a thread decodes and encodes them.

A request that names ten thousand partitions takes tens of milliseconds. Nearly all requests name a
few, which take less time than the way to a thread.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final, TypeVar

from .api import head_of
from .wire import Reader, TooMany

T = TypeVar("T")
_AT_ONCE: Final = 1_000
"""Elements that are decoded or encoded on the loop's thread, in one or two milliseconds."""


async def decoded(data: bytes, decode: Callable[[Reader, int], T]) -> T:
    """Return the request behind the head. Raises Malformed."""
    try:
        return _decoded(Reader(data, _AT_ONCE), decode)
    except TooMany:
        return await asyncio.to_thread(_decoded, Reader(data), decode)


def _decoded(reader: Reader, decode: Callable[[Reader, int], T]) -> T:
    return decode(reader, head_of(reader).version)


async def encoded(elements: int, encode: Callable[..., bytes], *of: Any) -> bytes:
    """Return the answer with so many elements; `of` does not change meanwhile."""
    return encode(*of) if elements <= _AT_ONCE else await asyncio.to_thread(encode, *of)
