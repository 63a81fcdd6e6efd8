"""A log that nodes write for the cluster: records wait here until the log has them.

The log is an ordinary log, replicated and with its own retention; its name begins with `_`.
While the log cannot be written, at most `WAITING_MAX` records wait. Then each new record drops the
oldest record, and the dropped records are counted: the next written record has in `lost` how many
records are missing before it.
"""

import asyncio
import json
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from ...client.protocol import limits
from ...client.protocol.errors import LognodeError

WAITING_MAX: Final = 10_000
_BATCH: Final = 500
_RETRY_S: Final = 2.0
_LINGER_S: Final = 0.1

Record = dict[str, Any]
Append = Callable[[Sequence[tuple[bytes, bytes]]], Awaitable[None]]
log = logging.getLogger("lognode.system_log")


class SystemLog:
    """Queues records for one log. `append` takes some records, and is called again after a
    LognodeError. Every call is on the loop's thread."""

    def __init__(self, name: str, append: Append) -> None:
        self._name = name
        self._append = append
        self._waiting: deque[tuple[bytes, Record]] = deque()
        self._wake = asyncio.Event()
        self._lost = 0
        self._told = ""

    @property
    def waiting(self) -> int:
        """The number of records that the log does not have yet."""
        return len(self._waiting)

    @property
    def lost(self) -> int:
        """The number of records dropped since the last record that the log got."""
        return self._lost

    def put(self, key: bytes, record: Record) -> None:
        """Queue a record for the log, as JSON, behind the earlier records of the same key."""
        if len(self._waiting) >= WAITING_MAX:
            self._waiting.popleft()
            self._lost += 1
        self._waiting.append((key[: limits.key_bytes_max], record))
        self._wake.set()

    async def written(self) -> None:
        """Return when no record waits; records that are put meanwhile are waited for too."""
        while self._waiting:  # noqa: ASYNC110  only a stopping node waits
            await asyncio.sleep(_LINGER_S / 4)

    async def run(self) -> None:
        """Write for ever; retry a failed write after two seconds."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            await asyncio.sleep(_LINGER_S)
            try:
                while self._waiting:
                    await self._write()
                self._told = ""
            except LognodeError as error:
                self._tell(error)
                await asyncio.sleep(_RETRY_S)
                self._wake.set()

    async def _write(self) -> None:
        some = [self._waiting[at] for at in range(min(_BATCH, len(self._waiting)))]
        lost = self._lost
        key, first = some[0]
        told = [(key, {**first, "lost": lost}), *some[1:]] if lost else some
        await self._append([(key, json.dumps(record).encode()) for key, record in told])
        dropped = self._lost - lost  # during the append; the oldest first, so of these records
        for _ in range(len(some) - dropped):
            self._waiting.popleft()
        self._lost = max(0, dropped - len(some))

    def _tell(self, error: LognodeError) -> None:
        if str(error) != self._told:
            self._told = str(error)
            log.warning(
                "the node could not write a log of the cluster",
                extra={"fields": {"log": self._name, "error": str(error), "waiting": self.waiting}},
            )
