"""Why and when the node stops: asked to, in order; after a failure; or at once after a bug."""

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from ...client.protocol.invariants import DiskFailure, InvariantError
from .surroundings import Surroundings
from .unexpected import advice, is_bug

log = logging.getLogger("lognode.node")


class Shutdown:
    """The request to stop, and the failure that caused it. `data` is the node's directory."""

    def __init__(self, data: Path, around: Surroundings) -> None:
        self._data = data
        self._around = around
        self._asked = asyncio.Event()
        self._failure: BaseException | None = None

    @property
    def is_asked(self) -> bool:
        """Whether the node is to stop."""
        return self._asked.is_set()

    @property
    def failure(self) -> BaseException | None:
        """The first error that made the node stop; None: the node was asked to stop."""
        return self._failure

    async def asked(self) -> None:
        """Return when the node is to stop."""
        await self._asked.wait()

    def ask(self) -> None:
        """Stop the node in order; a second call ends the process at once."""
        if self._asked.is_set():
            log.warning("a second signal arrived: the node stops now")
            self._around.end(1)
        self._asked.set()

    def fail(self, error: BaseException) -> None:
        """Stop the node because of an error; a bug or a failed disk ends the process at once."""
        if self._failure is None:
            self._failure = error
        if isinstance(error, DiskFailure) or is_bug(error):
            # Nothing may be written or sent any more: an orderly stop is not possible.
            log.critical(
                "node stops at once: %s: %s; %s", type(error).__name__, error,
                advice(error, self._data),
                exc_info=None if isinstance(error, DiskFailure) else error,
            )  # fmt: skip
            self._around.end(1)
        self._asked.set()

    def unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Handle an error of a callback or of a task without a waiting caller. A broken invariant
        always ends the node. Any other error concerns one connection and is logged."""
        loop.default_exception_handler(context)
        error = context.get("exception")
        if isinstance(error, InvariantError):
            self.fail(error)

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """End the process unless the block ends in time, also when a disk hangs (L4).

        Unwritten data are then lost as after a kill.
        """
        last_resort = self._around.alarm(seconds, partial(self._around.end, 1))
        with contextlib.ExitStack() as parts:
            parts.callback(last_resort.cancel)
            yield
