"""A simulated process: the callbacks, tasks and sockets that end together.

Every callback of asyncio has a context, and a context that a process's code made names the process
(`contextvars`). So the loop knows whose each callback is, and drops those of an ended process: none
of its code runs again, as after SIGKILL. The remains of an ended process stay referenced until the
run is over. Otherwise the interpreter would close its coroutines, and their `finally` clauses would
run on files that the next process has.
"""

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable
from typing import Any, Final

OWNER: Final[contextvars.ContextVar["Process"]] = contextvars.ContextVar("owner")
"""The process whose code runs."""


class Ended(BaseException):
    """The running process has ended itself: its code must not go on."""


class Process:
    """A process on the machine `place`. A machine may have one process after another."""

    def __init__(self, name: str, place: str) -> None:
        self.name = name
        self.label = name.encode()
        """The name, as the hash of the trace takes it in."""
        self.place = place
        self.alive = True
        self.paused = False
        self.queue: deque[asyncio.Handle] = deque()
        """Callbacks that are due, in the order in which asyncio would call them."""
        self.is_runnable = False
        """Whether the loop has the process in its list."""
        self.on_error: Callable[[Any, dict[str, Any]], object] | None = None
        """The process's exception handler."""
        self.signals: dict[int, asyncio.Handle] = {}
        self.on_end: list[Callable[[], None]] = []
        """What the kernel does when the process ends, in this order."""
        self.remains: list[Any] = []
        self.context = contextvars.Context()
        self.context.run(OWNER.set, self)

    def forget(self) -> None:
        """Let go of the objects that an ended process has left."""
        self.remains.clear()
        self.queue.clear()
        self.signals.clear()
        self.on_end.clear()
        self.on_error = None

    def __repr__(self) -> str:
        return f"<process {self.name}>"


def current() -> Process:
    """Return the process whose code runs. Raises LookupError outside of a run."""
    return OWNER.get()
