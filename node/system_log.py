"""A log that a node writes for the cluster: records wait here until the log has them.

The log is an ordinary log, replicated and with a retention of its own; its name begins with `_`.
Records are appended by an idempotent producer of the node's own client. While the log cannot be
written, at most `_WAITING_MAX` records wait; the oldest make room for newer ones, and are counted:
the next record that is written says in `lost` how many are missing before it.
"""

import asyncio
import json
import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from ..client import limits
from ..client.client import AsyncClient
from ..client.errors import LognodeError

_WAITING_MAX: Final = 10_000
_BATCH: Final = 500
_RETRY_S: Final = 2.0
_LINGER_S: Final = 0.1
_TIMEOUT_S: Final = 20.0

Record = dict[str, Any]
log = logging.getLogger("lognode.system_log")


class SystemLog:
    """Records on their way to one log. All calls on the loop's thread."""

    def __init__(self, name: str, *, retention_ms: int, connect: Callable[[], AsyncClient]) -> None:
        self._name = name
        self._retention_ms = retention_ms
        self._connect = connect
        self._waiting: deque[tuple[bytes, Record]] = deque()
        self._wake = asyncio.Event()
        self._lost = 0
        self._told = ""

    @property
    def waiting(self) -> int:
        """Records that the log does not have yet."""
        return len(self._waiting)

    @property
    def lost(self) -> int:
        """Records that were dropped since the last one that was written."""
        return self._lost

    def put(self, key: bytes, record: Record) -> None:
        """Have the log get the record, as JSON, behind those of the same key."""
        if len(self._waiting) >= _WAITING_MAX:
            self._waiting.popleft()
            self._lost += 1
        self._waiting.append((key[: limits.key_bytes_max], record))
        self._wake.set()

    async def run(self) -> None:
        """Write for ever; a log that cannot be written is tried again every two seconds."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            await asyncio.sleep(_LINGER_S)
            try:
                async with self._connect() as client:
                    await self._write_all(client)
                self._told = ""
            except LognodeError as error:
                self._tell(error)
                await asyncio.sleep(_RETRY_S)
                self._wake.set()

    async def _write_all(self, client: AsyncClient) -> None:
        target = await client.create_log(
            self._name, ranges=1, retention_ms=self._retention_ms, exist_ok=True
        )
        async with target.producer(timeout=_TIMEOUT_S) as producer:
            while self._waiting:
                some = list(self._waiting)[:_BATCH]
                lost, dropped = self._lost, self._lost
                tickets = []
                for key, record in some:
                    body = {**record, "lost": lost} if lost else record
                    lost = 0
                    tickets.append(await producer.submit(key, json.dumps(body).encode()))
                for ticket in tickets:
                    await ticket.result()
                self._written(some, dropped)

    def _written(self, some: list[tuple[bytes, Record]], told_lost: int) -> None:
        """These records are in the log; some of them may have been dropped meanwhile."""
        dropped_meanwhile = self._lost - told_lost
        for _ in range(max(0, len(some) - dropped_meanwhile)):
            self._waiting.popleft()
        self._lost = max(0, dropped_meanwhile - len(some))

    def _tell(self, error: LognodeError) -> None:
        if str(error) != self._told:
            self._told = str(error)
            log.warning(
                "a log of the cluster cannot be written",
                extra={"fields": {"log": self._name, "error": str(error), "waiting": self.waiting}},
            )
