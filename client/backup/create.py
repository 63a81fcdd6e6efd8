"""Make a backup: a snapshot of each log, whose entries go into objects, and then the manifest."""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from ..client import AsyncClient
from ..protocol.errors import LognodeError
from ..snapshot import AsyncSnapshot
from .manifest import LogBackup, Manifest, Object, Part
from .pace import Pace
from .pieces import Cutter, pack, sum_of
from .store import Store

_RENEW_EVERY_S: Final = 600.0
Told = Callable[[float, int], None]
"""Called with the part of the work that is done, 0 to 1, and the entries so far."""


@dataclass(slots=True)
class Created:
    """The result: entries and objects of the backup; the objects and bytes that were new."""

    backup: str = ""
    logs: int = 0
    entries: int = 0
    objects: int = 0
    new_objects: int = 0
    new_bytes: int = 0


async def create(
    client: AsyncClient, store: Store, logs: Sequence[str], pace: Pace, told: Told
) -> Created:
    """Back up the logs, all logs for an empty sequence.

    Objects that the store has are not stored again. An interrupted backup leaves its objects, and
    the next call uses them. Raises LogNotFound, Unavailable, Timeout, OSError.
    """
    result = Created()
    created_ms = time.time_ns() // 1_000_000
    names = list(logs) or [log["name"] for log in await client.logs()]
    found = []
    cluster = ""
    for at, name in enumerate(names):

        def part_told(part: float, at: int = at) -> None:
            told((at + part) / len(names), result.entries)

        log, cluster = await _back_up(client, store, name, pace, result, part_told)
        found.append(log)
    moment = datetime.fromtimestamp(created_ms / 1000, UTC)
    result.backup = moment.strftime("%Y%m%dT%H%M%S") + f"{created_ms % 1000:03}Z"
    result.logs = len(found)
    manifest = Manifest(result.backup, created_ms, cluster, found)
    await asyncio.to_thread(store.put_manifest, result.backup, manifest.to_bytes())
    return result


async def _back_up(
    client: AsyncClient, store: Store, name: str, pace: Pace, result: Created,
    told: Callable[[float], None],
) -> tuple[LogBackup, str]:  # fmt: skip
    log = client.log(name)
    described = await log.describe()
    hierarchy = described["hierarchy"]
    snapshot = await log.snapshot()
    try:
        parts = [Part(*part) for part in snapshot.vector.parts]
        backup = LogBackup(
            name, described["policy"], None if hierarchy is None else hierarchy.hex(), parts
        )
        reader = _Reader(snapshot, store, pace, result, backup)
        for at, part in enumerate(parts):
            await reader.read(part)
            told((at + 1) / len(parts))
        return backup, snapshot.vector.cluster
    finally:
        with suppress(LognodeError):
            await snapshot.release()


class _Reader:
    """Reads the parts of a snapshot into objects, and renews the lease."""

    def __init__(
        self, snapshot: AsyncSnapshot, store: Store, pace: Pace, result: Created, log: LogBackup
    ) -> None:
        self._snapshot = snapshot
        self._store = store
        self._pace = pace
        self._result = result
        self._log = log
        self._renewed = time.monotonic()

    async def read(self, part: Part) -> None:
        """Store the entries of a part, and note where its spans begin."""
        cutter, bounds = Cutter(), {part.start}
        async for start, columns in self._snapshot.read_in_order(part.start, part.end):
            if start not in bounds:
                bounds.add(start)
                if cutter.entries:  # the next span has the same objects in each backup
                    await self._put(part, cutter)
            for entry in columns.entries():
                if cutter.add(entry):
                    await self._put(part, cutter)
        if cutter.entries:
            await self._put(part, cutter)
        part.bounds = sorted(bounds - {part.start})

    async def _put(self, part: Part, cutter: Cutter) -> None:
        entries = cutter.taken()

        def stored() -> tuple[str, int, int]:
            return *self._store.put_object(pack(entries)), sum_of(entries, self._log.sum)

        name, written, self._log.sum = await asyncio.to_thread(stored)
        part.objects.append(Object(name, len(entries), entries[-1].seq))
        self._log.entries += len(entries)
        self._result.entries += len(entries)
        self._result.objects += 1
        self._result.new_objects += written > 0
        self._result.new_bytes += written
        await self._pace.passed(written)
        if time.monotonic() - self._renewed > _RENEW_EVERY_S:
            await self._snapshot.renew()
            self._renewed = time.monotonic()
