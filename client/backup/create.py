"""Make a backup: a snapshot of each log, whose entries go into objects, and then the manifest."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Self

from ..client import AsyncClient
from ..gathering import each
from ..protocol.errors import LognodeError
from ..protocol.types import Entry
from ..snapshot import AsyncSnapshot
from .claims import Claim
from .manifest import LogBackup, Manifest, Object, Part
from .pace import Pace
from .pieces import Cutter, pack, sum_of
from .store import Store

_RENEW_EVERY_S: Final = 600.0
_CLAIM_EVERY_S: Final = 60.0
_PARTS_AT_ONCE: Final = 4
"""How many parts of a log are read together: a single page waits for a quorum most of the time."""
PATIENCE_S: Final = 60.0
"""How long a range may be unavailable or overloaded: an election on a busy machine takes longer
than users wait for a single read."""
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
    the next call uses them. Raises LogNotFound, Unavailable, Timeout, OSError; Conflict if a
    removal of backups gave up this call, because its claim was not renewed.
    """
    claim = await asyncio.to_thread(Claim.taken, store)
    over = asyncio.Event()
    renewing = asyncio.create_task(_renew(claim, over))
    try:
        return await _create(client, store, claim, logs, pace, told)
    finally:
        over.set()
        await renewing
        await asyncio.to_thread(claim.release)


async def _renew(claim: Claim, over: asyncio.Event) -> None:
    while True:
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLAIM_EVERY_S):
                await over.wait()
                return
        await asyncio.to_thread(claim.renew)


async def _create(
    client: AsyncClient, store: Store, claim: Claim, logs: Sequence[str], pace: Pace, told: Told
) -> Created:
    result = Created(claim.backup)
    names = list(logs) or [log["name"] for log in await client.logs()]
    found = []
    cluster = ""
    for at, name in enumerate(names):

        def part_told(part: float, at: int = at) -> None:
            told((at + part) / len(names), result.entries)

        log, cluster = await _back_up(client, store, name, pace, result, part_told)
        found.append(log)
    result.logs = len(found)
    manifest = Manifest(claim.backup, claim.created_ms, cluster, found)
    await asyncio.to_thread(claim.finish, manifest.to_bytes())
    return result


async def _back_up(
    client: AsyncClient, store: Store, name: str, pace: Pace, result: Created,
    told: Callable[[float], None],
) -> tuple[LogBackup, str]:  # fmt: skip
    log = client.log(name)
    described = await log.describe()
    hierarchy = described["hierarchy"]
    snapshot = await log.snapshot(timeout=PATIENCE_S)
    try:
        parts = [Part(*part) for part in snapshot.vector.parts]
        backup = LogBackup(
            name, described["policy"], None if hierarchy is None else hierarchy.hex(), parts
        )
        reader = _Reader(snapshot, store, pace, result, backup, told)
        await each(parts, reader.read, _PARTS_AT_ONCE)
        return backup, snapshot.vector.cluster
    finally:
        with suppress(LognodeError):
            await snapshot.release()


class _Next:
    """Stores an object while its caller reads the entries of the next object; an asynchronous
    context."""

    def __init__(self) -> None:
        self._storing: asyncio.Task[None] | None = None

    async def begin(
        self, store: Callable[[Part, list[Entry]], Coroutine[Any, Any, None]], part: Part,
        entries: list[Entry],
    ) -> None:  # fmt: skip
        """Begin to store the entries, once the object before is stored."""
        await self.end()
        self._storing = asyncio.create_task(store(part, entries))

    async def end(self) -> None:
        """Wait until the object is stored. Raises the error of its storing."""
        storing, self._storing = self._storing, None
        if storing is not None:
            await storing

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._storing is not None:
            self._storing.cancel()
            await asyncio.gather(self._storing, return_exceptions=True)


class _Reader:
    """Reads the parts of a snapshot into objects, some parts together, and renews the lease.

    Objects are stored one after the other.
    """

    def __init__(
        self, snapshot: AsyncSnapshot, store: Store, pace: Pace, result: Created, log: LogBackup,
        told: Callable[[float], None],
    ) -> None:  # fmt: skip
        self._snapshot = snapshot
        self._store = store
        self._pace = pace
        self._result = result
        self._log = log
        self._told = told
        self._read = [0.0] * len(log.parts)
        """How much of each part is stored, 0 to 1."""
        self._renewed = time.monotonic()
        self._one = asyncio.Lock()

    async def read(self, part: Part) -> None:
        """Store the entries of a part, and note where its spans begin."""
        cutter, bounds = Cutter(), {part.start}
        pages = self._snapshot.read_in_order(part.start, part.end, timeout=PATIENCE_S)
        async with _Next() as storing:
            async for start, columns in pages:
                if start not in bounds:
                    bounds.add(start)
                    if cutter.entries:  # the next span has the same objects in each backup
                        await storing.begin(self._store_object, part, cutter.taken())
                for entry in columns.entries():
                    if cutter.add(entry):
                        await storing.begin(self._store_object, part, cutter.taken())
            if cutter.entries:
                await storing.begin(self._store_object, part, cutter.taken())
            await storing.end()
        part.bounds = sorted(bounds - {part.start})
        self._tell(part, part.through_seq)

    def _tell(self, part: Part, seq: int) -> None:
        """Tell how far the snapshot is stored, by the seqs of its parts."""
        at = self._log.parts.index(part)
        done = seq / max(seq, part.through_seq, 1)
        self._read[at] = max(self._read[at], done)  # seqs fall from one span to the next
        self._told(sum(self._read) / len(self._read))

    async def _store_object(self, part: Part, entries: list[Entry]) -> None:
        async with self._one:
            await self._store_one(part, entries)

    async def _store_one(self, part: Part, entries: list[Entry]) -> None:
        def stored() -> tuple[str, int, int]:
            return *self._store.put_object(pack(entries)), sum_of(entries, self._log.sum)

        name, written, self._log.sum = await asyncio.to_thread(stored)
        part.objects.append(Object(name, len(entries), entries[-1].seq))
        self._log.entries += len(entries)
        self._result.entries += len(entries)
        self._result.objects += 1
        self._result.new_objects += written > 0
        self._result.new_bytes += written
        self._tell(part, entries[-1].seq)
        await self._pace.passed(written)
        if time.monotonic() - self._renewed > _RENEW_EVERY_S:
            await self._snapshot.renew(timeout=PATIENCE_S)
            self._renewed = time.monotonic()
