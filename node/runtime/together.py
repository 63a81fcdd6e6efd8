"""Asks a question once for many callers that ask at the same time.

A caller that comes while an answer is awaited may not use that answer, which may be about a time
before the call. So the question is asked again after the answer, once for all callers that came
meanwhile. For each key, one question is under way and one waits for it, however many callers there
are (compare the batched read rounds of `raft/read_rounds.py`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Together(Generic[K, V]):
    """One question for many callers. `ask` gets a key; all callers get its result or exception."""

    def __init__(self, ask: Callable[[K], Awaitable[V]]) -> None:
        self._ask = ask
        self._under_way: dict[K, asyncio.Task[V]] = {}
        self._waiting: dict[K, asyncio.Task[V]] = {}

    def begin(self, key: K) -> "asyncio.Task[V]":
        """Return the task of a question that is asked after this call.

        Other callers share the task: shield it.
        """
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
