"""The parts of the node that run until the node stops, each in a task."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from .unexpected import is_bug

log = logging.getLogger("lognode.node")


class Parts:
    """The running parts. `on_failure` gets the error of a part that fails."""

    def __init__(self, on_failure: Callable[[BaseException], None]) -> None:
        self._on_failure = on_failure
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, part: Coroutine[Any, Any, None]) -> None:
        """Run a part in a task of its own."""
        task = asyncio.get_running_loop().create_task(part)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def cancel(self) -> None:
        """Cancel all parts."""
        for task in list(self._tasks):
            task.cancel()

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            if not is_bug(error):  # `on_failure` logs where a bug is
                log.error("a part of the node failed", exc_info=error)
            self._on_failure(error)
