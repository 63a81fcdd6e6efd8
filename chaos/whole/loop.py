"""An asyncio event loop with virtual time. The seed decides the order of its processes.

A turn runs the callbacks that are due in one process, as a turn of asyncio's loop does in a process
of its own. Which process has the next turn is drawn. A turn takes a little drawn time; when nothing
is due, the clock jumps to the next timer.
"""

# The types of asyncio's methods have an overload for each kind of socket; here there is one kind.
# mypy: disable-error-code="override"

import asyncio
import contextvars
import heapq
import random
import socket
import struct
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from ...node.runtime.futures import settle
from .network import Network
from .process import OWNER, Process, current
from .sealed import sealed
from .sockets import Accepted, Listening
from .threads import after_s
from .trace import Trace

START_S: Final = 1000.0
_TURN_S: Final = (5e-6, 60e-6)
_TURN: Final = struct.Struct(">dHH")

T = TypeVar("T")


class Stuck(Exception):
    """No callback and no timer is left: the run would wait for ever."""


class _Task(asyncio.Task[Any]):
    """A task whose place in a set is the same in every run."""

    number = 0

    def __init__(self, coro: Any, loop: "SimLoop", **more: Any) -> None:
        self.number = loop.next_number()
        self.owner = current()
        super().__init__(coro, loop=loop, **more)

    def __hash__(self) -> int:
        return self.number


class _Future(asyncio.Future[Any]):
    """A future whose place in a set is the same in every run."""

    number = 0

    def __hash__(self) -> int:
        return self.number


class SimLoop(asyncio.BaseEventLoop):
    """The loop of a run. Everything that is not in the seed has to come through it."""

    def __init__(self, rng: random.Random, trace: Trace) -> None:
        super().__init__()
        self.rng = rng
        self.trace = trace
        self.trace.now_s = lambda: self._now - START_S
        self.world = Process("world", "world")
        self.network = Network(self, rng, trace)
        self._now = START_S
        self._numbers = 0
        self._runnable: list[Process] = []
        self._ended: list[Process] = []
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._dead_timers = 0
        self._running: Process = self.world
        self.turns = 0
        """Turns so far, of all processes."""
        self.set_debug(False)
        self.set_task_factory(lambda loop, coro, **more: _Task(coro, self, **more))

    # Time and order.

    def time(self) -> float:
        return self._now

    def next_number(self) -> int:
        """Return 1, 2, 3, ..."""
        self._numbers += 1
        return self._numbers

    def draw_s(self, low: float, high: float) -> float:
        """Draw a time of `low` to `high` seconds."""
        return low + (high - low) * self.rng.random()

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run the coroutine as the process `world`, to its end."""
        return self.world.context.copy().run(self.run_until_complete, main)

    def spawn(self, process: Process, main: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Begin the coroutine as the main task of the process."""
        return process.context.copy().run(self.create_task, main)

    def post(self, process: Process, callback: Callable[..., object], *args: Any) -> None:
        """Call back in the process, after what is due there already."""
        self._put(process, asyncio.Handle(callback, args, self, process.context))

    def end(self, process: Process) -> None:
        """End the process at once. None of its code runs again."""
        if not process.alive:
            return
        self.trace(process.name, "ends")
        process.alive = False
        self._ended.append(process)
        process.remains += [
            task for task in asyncio.all_tasks(self) if getattr(task, "owner", None) is process
        ]
        process.remains += process.queue
        process.remains += [timer for *_, timer in self._timers if _owner(timer) is process]
        self._forget(process)
        for act in process.on_end:
            act()
        self.network.ended(process)

    def bury(self) -> None:
        """Let go of what the ended processes have left, once the loop is closed."""
        for process in (self.world, *self._ended):
            process.forget()
        self._timers.clear()

    def pause(self, process: Process) -> None:
        """Stop the process for a while, as SIGSTOP does."""
        process.paused = True
        self._forget(process)

    def resume(self, process: Process) -> None:
        """Let a paused process go on."""
        process.paused = False
        self._list(process)

    def signal(self, process: Process, number: int) -> None:
        """Send a signal that the process handles."""
        handle = process.signals.get(number)
        if handle is not None:
            self._put(process, handle)

    def _put(self, process: Process, handle: asyncio.Handle) -> None:
        if process.alive:
            process.queue.append(handle)
            self._list(process)

    def _list(self, process: Process) -> None:
        if not process.is_runnable and process.queue and process.alive and not process.paused:
            process.is_runnable = True
            self._runnable.append(process)

    def _forget(self, process: Process) -> None:
        if process.is_runnable:
            process.is_runnable = False
            self._runnable.remove(process)

    # What asyncio's own code calls.

    def _run_once(self) -> None:
        self._fire()
        if not self._runnable:
            self._jump()
            return
        runnable = self._runnable
        at = int(self.rng.random() * len(runnable))
        process = runnable[at]
        runnable[at] = runnable[-1]
        runnable.pop()
        process.is_runnable = False
        self._turn(process)
        self._list(process)

    def _turn(self, process: Process) -> None:
        self.turns += 1
        queue = process.queue
        count = len(queue)
        name = process.label
        self.trace.bytes(_TURN.pack(self._now, count & 0xFFFF, len(name)) + name)
        self._running = process
        for _ in range(count):
            handle = queue.popleft()
            if not handle.cancelled():
                handle._run()
                if not process.alive or process.paused:
                    break
        self._running = self.world
        self._now += self.draw_s(*_TURN_S)

    def _fire(self) -> None:
        timers = self._timers
        while timers and timers[0][0] <= self._now:
            handle = heapq.heappop(timers)[2]
            if not handle.cancelled():
                self._put(_owner(handle), handle)

    def _jump(self) -> None:
        timers = self._timers
        while timers and (timers[0][2].cancelled() or not _owner(timers[0][2]).alive):
            heapq.heappop(timers)
        if not timers:
            raise Stuck("nothing is due in any process, and no timer is set")
        self._now = max(self._now, timers[0][0])

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:
        if context is None:
            context = contextvars.copy_context()
        handle = asyncio.Handle(callback, args, self, context)
        self._put(context.get(OWNER, self.world), handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_at(
        self, when: float, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        if context is None:
            context = contextvars.copy_context()
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, self.next_number(), handle))
        return handle

    def call_later(
        self, delay: float, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        self._dead_timers += 1
        if self._dead_timers > 1000 and 2 * self._dead_timers > len(self._timers):
            self._timers = [each for each in self._timers if not each[2].cancelled()]
            heapq.heapify(self._timers)
            self._dead_timers = 0

    def create_future(self) -> "asyncio.Future[Any]":
        future = _Future(loop=self)
        future.number = self.next_number()
        return future

    def set_exception_handler(self, handler: Any) -> None:
        current().on_error = handler

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        process = self._running
        if not process.alive:
            return
        if process.on_error is not None:
            process.on_error(self, context)
        else:
            self.default_exception_handler(context)

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.trace.note(self._running.name, f"error {context.get('message')}"
                        f" {context.get('exception')!r}")  # fmt: skip

    def _asyncgen_finalizer_hook(self, agen: Any) -> None:
        if self._running.alive and not self.is_closed():
            self.call_soon(self.create_task, agen.aclose())

    # Threads, names and sockets.

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> "asyncio.Future[Any]":
        future = self.create_future()
        self.call_later(after_s(self.rng), self._work, future, func, args)
        return future

    def _work(self, future: "asyncio.Future[Any]", func: Any, args: tuple[Any, ...]) -> None:
        result, failed = None, None
        try:
            result = func(*args)
        except Exception as error:
            failed = error
        self.call_later(after_s(self.rng), settle, future, result, failed)

    async def getaddrinfo(self, host: Any, port: Any, **_options: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port))]

    async def create_connection(
        self, factory: Any, host: Any = None, port: Any = None, *, ssl: Any = None,
        ssl_handshake_timeout: float | None = None, **_options: Any,
    ) -> Any:  # fmt: skip
        if ssl is None:
            return await self.network.connect(factory, str(host), int(port))

        async def attach(outer: asyncio.BaseProtocol) -> None:
            await self.network.connect(lambda: outer, str(host), int(port))

        return await sealed(self, ssl, factory(), attach, host=str(host),
                            handshake_s=ssl_handshake_timeout)  # fmt: skip

    async def connect_accepted_socket(
        self, factory: Any, sock: Any, *, ssl: Any = None,
        ssl_handshake_timeout: float | None = None, **_options: Any,
    ) -> Any:  # fmt: skip
        if not isinstance(sock, Accepted):
            raise TypeError(f"{sock!r} is a socket of the machine, not of the simulation")
        if ssl is None:
            return await sock.attach(factory())
        return await sealed(self, ssl, factory(), sock.attach, host=None,
                            handshake_s=ssl_handshake_timeout)  # fmt: skip

    def add_reader(self, fd: Any, callback: Any, *args: Any) -> None:
        self._listening(fd).watch(callback, args)

    def remove_reader(self, fd: Any) -> bool:
        return self._listening(fd).unwatch()

    def _listening(self, fd: Any) -> Listening:
        return self.network.descriptors[fd]

    def add_signal_handler(self, sig: int, callback: Any, *args: Any) -> None:
        process = current()
        process.signals[sig] = asyncio.Handle(callback, args, self, process.context)

    def _process_events(self, event_list: list[Any]) -> None:
        raise NotImplementedError

    def _write_to_self(self) -> None:
        return


def _owner(handle: asyncio.Handle) -> Process:
    found: Process | None = handle._context.get(OWNER)  # type: ignore[attr-defined]
    if found is None:
        raise LookupError(f"{handle!r} belongs to no process")
    return found
