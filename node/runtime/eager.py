"""Begin a coroutine at once, and give only what is left of it to a task.

asyncio runs the first step of a task in the next turn of its loop. Between two turns the loop asks
the kernel for events, and other callbacks run. Python 3.12 has eager tasks (`eager_task_factory`);
this is the same for one coroutine, with Python 3.11 too. In the first step
`asyncio.current_task()` is the task of the caller, or None in a callback: the first step must not
enter `asyncio.timeout`, which would end the caller's task.
"""

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any, TypeVar

T = TypeVar("T")


def begun(work: Coroutine[Any, Any, T]) -> "asyncio.Future[T]":
    """Run the first step of `work`. Return the future of its result or of its error: a task, unless
    the first step was the last."""
    loop = asyncio.get_running_loop()
    try:
        waits_for = work.send(None)
    except StopIteration as done:
        ended: asyncio.Future[T] = loop.create_future()
        ended.set_result(done.value)
        return ended
    except Exception as error:
        return _failed(error)
    if waits_for is not None:
        waits_for._asyncio_future_blocking = False  # as a task does when it takes the future
    return loop.create_task(_Rest(work, waits_for))


def _failed(error: Exception) -> "asyncio.Future[Any]":
    """Return the future of an error.

    The frames of the error's traceback refer to the frames of all callers. A caller that keeps the
    future in a local variable makes a cycle.
    """
    failed: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    failed.set_exception(error)
    return failed


class _Rest(Coroutine[Any, Any, T]):
    """What is left of `work`, which waits for the future or, without a future, for another turn."""

    __slots__ = ("_waits_for", "_work")

    def __init__(
        self, work: Coroutine[Any, Any, T], waits_for: "asyncio.Future[Any] | None"
    ) -> None:
        self._work = work
        self._waits_for = waits_for

    def send(self, value: Any) -> Any:
        future, self._waits_for = self._waits_for, None
        if future is not None and not future.done():
            return next(future.__await__())  # so that the task takes the future
        return self._work.send(value)

    def throw(self, *error: Any) -> Any:
        self._waits_for = None
        return self._work.throw(*error)

    def close(self) -> None:
        self._work.close()

    def __await__(self) -> Generator[Any, Any, T]:
        raise TypeError("only a task runs this coroutine")
