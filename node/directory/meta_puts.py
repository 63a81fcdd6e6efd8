"""Stores rows of meta that many tasks put at the same time in one transaction, with one sync."""

import asyncio
from collections.abc import Mapping
from typing import Any

from ...statemachine.meta import MetaStore
from ..runtime.sync_thread import SyncThread


class MetaPuts:
    """Collects rows to store. All calls on the loop's thread."""

    def __init__(self, meta: MetaStore, sync: SyncThread) -> None:
        self._meta = meta
        self._sync = sync
        self._rows: dict[str, Any] = {}
        self._commit: asyncio.Task[None] | None = None

    async def put(self, rows: Mapping[str, Any]) -> None:
        """Return when the rows are durable. Raises DiskFailure."""
        self._rows.update(rows)
        if self._commit is None:
            self._commit = asyncio.get_running_loop().create_task(self._commit_soon())
        await asyncio.shield(self._commit)

    async def _commit_soon(self) -> None:
        await asyncio.sleep(0)  # rows put in the same turn of the loop are stored with these
        rows, self._rows = self._rows, {}
        self._commit = None
        await self._sync.run(lambda: self._meta.commit(rows))
