"""Questions that many ask at a time, asked once for all of them.

Who asks while an answer is awaited may not have that answer: it may tell of a time before the
question. So the question is asked again when the answer has come, once for all who asked meanwhile.
However many ask, one question per key is under way, and one waits for it (compare the batched read
rounds of `raft/read_rounds.py`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Together(Generic[K, V]):
    """`ask` gets a key. What it raises, all who asked get."""

    def __init__(self, ask: Callable[[K], Awaitable[V]]) -> None:
        self._ask = ask
        self._under_way: dict[K, asyncio.Task[V]] = {}
        self._waiting: dict[K, asyncio.Task[V]] = {}

    def begin(self, key: K) -> "asyncio.Task[V]":
        """Return the task of a question that is asked after this call. Shield it: it is others'
        too."""
        task = self._waiting.get(key)
        if task is None:
            task = asyncio.get_running_loop().create_task(
                self._asked(key, self._under_way.get(key))
            )
            self._waiting[key] = task
        return task

    async def _asked(self, key: K, before: "asyncio.Task[V] | None") -> V:
        if before is not None:
            await asyncio.wait([before])
        mine = self._under_way[key] = self._waiting.pop(key)
        try:
            return await self._ask(key)
        finally:
            if self._under_way[key] is mine:
                del self._under_way[key]
