"""Threads that wait for the object store of a run, each of which stops at each of its requests.

The product's calls to a store block. Here such a call runs in a real thread, and the loop and the
thread take turns: while the thread runs the loop waits, and the thread waits while its request is
on the way. So a run stays a function of its seed, and other processes act between two requests of a
call. The thread of a process that has ended never goes on; the end of the run ends the thread.
"""

import asyncio
import contextvars
import random
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, Final, Literal, TypeVar

from ...client.objects.store import Listed, ObjectStore
from ...client.protocol.errors import LognodeError
from ...node.runtime.futures import settle
from ...node.runtime.workers import Workers
from ...node.tier.local_file import LocalFile
from .far_store import PAGE, FarStore, Request
from .memory_store import MemoryStore
from .process import Ended, current
from .threads import after_s

T = TypeVar("T")
_HELD: Final[contextvars.ContextVar["_Held"]] = contextvars.ContextVar("held")
"""The call whose thread runs."""


class _Thread:
    """A real thread that does one piece of work after the other, for one call after the other."""

    def __init__(self) -> None:
        self.goes = threading.Lock()
        """Released by the loop to let the thread go on."""
        self.goes.acquire()
        self.work: Callable[[], None] = _nothing
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            self.goes.acquire()
            self.work()


def _nothing() -> None:
    return


_FREE: Final[list[_Thread]] = []
"""The threads without a call. A switch between threads takes the most time of a run with a tier, so
that none is begun for each call."""


class _Held:
    """A call in a thread that runs only while the loop waits."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.result: Any = None
        self.error: BaseException | None = None
        self.is_over = False
        self.request: Request | Turned | None = None
        self._call = call
        self._answer: tuple[Any, BaseException | None] = None, None
        self._loop_goes = threading.Lock()
        self._loop_goes.acquire()
        self._context = contextvars.copy_context()
        self._context.run(_HELD.set, self)
        self._thread: _Thread | None = None

    def go_on(self, result: Any = None, error: BaseException | None = None) -> None:
        """Let the thread run to its next request or to its end."""
        self._answer = result, error
        if self._thread is None:
            self._thread = _FREE.pop() if _FREE else _Thread()
            self._thread.work = self._work
        self._thread.goes.release()
        self._loop_goes.acquire()

    def end(self) -> None:
        """End the call: none of its code but its `finally` clauses runs again."""
        while self._thread is not None and not self.is_over:
            self.go_on(error=Ended())

    def ask(self, request: "Request | Turned") -> Any:
        """Send a request, or wait, in the thread; return the answer or raise the error."""
        assert self._thread is not None
        self.request = request
        self._loop_goes.release()
        self._thread.goes.acquire()
        result, error = self._answer
        if error is not None:
            raise error
        return result

    def _work(self) -> None:
        assert self._thread is not None
        try:
            self.result = self._context.run(self._call)
        except BaseException as found:  # passed on to the loop, of any kind
            self.error = found
        self.is_over = True
        self._thread.work = _nothing
        _FREE.append(self._thread)
        self._loop_goes.release()


class SimObjects(ObjectStore):
    """The store as the threads of one process see it."""

    def __init__(self, far: FarStore) -> None:
        self.place = far.place
        self._far = far

    def put(self, name: str, content: bytes, *, replace: bool = False) -> bool:
        return bool(self._ask("put", name, lambda at: at.put(name, content, replace=replace)))

    def get(self, name: str, bytes_max: int) -> bytes | None:
        found: bytes | None = self._ask("get", name, lambda at: at.get(name, bytes_max))
        return found

    def get_range(self, name: str, begin: int, end: int) -> bytes | None:
        found: bytes | None = self._ask("get", name, lambda at: at.get_range(name, begin, end))
        return found

    def objects(self, folder: str = "") -> Iterator[Listed]:
        page: list[Listed] = []
        while not page or len(page) == PAGE:
            after = page[-1].name if page else ""
            page = self._ask("list", folder, partial(self._page, folder, after))
            if not page:
                return
            yield from page

    def delete(self, name: str) -> None:
        self._ask("delete", name, lambda at: at.delete(name))

    def _page(self, folder: str, after: str, at: MemoryStore) -> list[Listed]:
        return self._far.page(at, folder, after)

    def _ask(
        self, kind: Literal["put", "get", "list", "delete"], name: str,
        act: Callable[[MemoryStore], Any],
    ) -> Any:  # fmt: skip
        return _HELD.get().ask(Request(kind, name, act))


class Turned:
    """A `concurrent.futures.Future` without a result, for which one call waits until another call
    is over: the waiting thread lets the loop go on."""

    def __init__(self) -> None:
        self.is_set = False
        self._wakes: list[Callable[[], None]] = []

    def set_result(self, result: None) -> None:
        """Let those go on that wait."""
        self.is_set = True
        for wake in self._wakes:
            wake()

    def result(self) -> None:
        """Wait, in a thread."""
        if not self.is_set:
            _HELD.get().ask(self)

    def when_set(self, wake: Callable[[], None]) -> None:
        """Call when the future is set."""
        self._wakes.append(wake)


class StoreThreads(Workers):
    """A few threads of one process, with one queue."""

    def __init__(self, count: int, far: FarStore, rng: random.Random) -> None:
        self._free = count
        self._far = far
        self._rng = rng
        self._process = current()
        self._waiting: deque[tuple[Callable[[], Any], asyncio.Future[Any]]] = deque()
        self._held: set[_Held] = set()
        self._left = False

    def run(self, call: Callable[[], T]) -> "asyncio.Future[T]":
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        if not self._left:
            self._waiting.append((call, future))
            self._next()
        return future

    def leave(self) -> None:
        self._left = True
        self._waiting.clear()

    def end(self) -> None:
        """End the threads that wait for an answer, after the run."""
        for held in self._held:
            held.end()
        self._held.clear()

    def _next(self) -> None:
        if self._free and self._waiting:
            self._free -= 1
            call, future = self._waiting.popleft()
            asyncio.get_running_loop().call_later(after_s(self._rng), self._begin, call, future)

    def _begin(self, call: Callable[[], Any], future: "asyncio.Future[Any]") -> None:
        if future.cancelled():
            self._free += 1
            self._next()
            return
        held = _Held(call)
        self._held.add(held)
        self._go_on(held, future, None, None)

    def _go_on(
        self, held: _Held, future: "asyncio.Future[Any]", result: Any, error: LognodeError | None
    ) -> None:
        loop = asyncio.get_running_loop()
        held.go_on(result, error)
        if held.is_over:
            self._held.discard(held)
            self._keep_open_file(held.result)
            self._free += 1
            self._next()
            loop.call_later(after_s(self._rng), settle, future, held.result, held.error)
            return
        assert held.request is not None
        context = contextvars.copy_context()  # the process: an answer to an ended one is lost

        def reply(result: Any, error: LognodeError | None) -> None:
            loop.call_soon(self._go_on, held, future, result, error, context=context)

        if isinstance(held.request, Turned):
            held.request.when_set(partial(reply, None, None))
        else:
            self._far.take(held.request, self._process.name, reply)

    def _keep_open_file(self, result: Any) -> None:
        """Close the file of an upload with the process, as the kernel does."""
        if isinstance(result, LocalFile):

            def close() -> None:
                with suppress(OSError):  # the upload has closed the file
                    result.close()

            self._process.on_end.append(close)
