"""Restores of backups into new logs, while faults happen and the logs are split.

The seed draws the entries of each backup: seqs with gaps, several entries of one timestamp, spans
with unrelated seqs. The store is in memory; now and then it is away. A client restores with the
code of `lognode backup restore`, breaks off, and begins again; some of its requests come again
later, as late attempts do. At the end each log must have exactly the entries of its backup, each
once, and must go on behind the backup's last seq.
"""

import asyncio
import contextlib
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ...client.admin import AsyncAdmin, RestoredRow
from ...client.backup.manifest import LogBackup, Manifest, Object, Part
from ...client.backup.pace import Pace
from ...client.backup.pieces import pack, sum_of
from ...client.backup.restore import restore
from ...client.backup.sealing import Sealing
from ...client.backup.store import Store
from ...client.client import AsyncClient
from ...client.cluster import Cluster
from ...client.protocol.errors import Conflict, CorruptData, LognodeError, Unavailable
from ...client.protocol.types import Entry
from ..verdict import Anomaly
from .clock import EPOCH_MS
from .memory_store import MemoryStore
from .nodes import Machines

_LOGS: Final = ("restored-1", "restored-2", "restored-3")
_Span = tuple[bytes, bytes | None]
_SPANS: Final[tuple[_Span, ...]] = ((b"", b"g"), (b"g", b"n"), (b"n", None))
"""The second span is a part of its own, or belongs to the part of the first span."""
_OBJECTS: Final = (4, 10)
"""Objects of each span."""
_ENTRIES: Final = (5, 40)
"""Entries of an object."""
_VALUE_BYTES: Final = (10, 1_500)
_GAP: Final = (1, 1, 1, 2, 9, 70_000)
_AWAY: Final = 0.03
"""The share of reads from the store that fail."""
_REPEATED: Final = 0.15
_BREAKS_OFF_S: Final = (0.3, 4.0)
_ANSWER_S: Final = 2.0
_SPLIT_EVERY_S: Final = (0.5, 2.0)
_READ_S: Final = 30.0
_RETENTION_MS: Final = 10**12
"""The policy comes last; entries of a backup are old, and none of them is removed."""


@dataclass(frozen=True, slots=True)
class _Backup:
    """A backup of one log, and what the log must have after a restore."""

    manifest: Manifest
    entries: list[Entry]

    @property
    def log(self) -> str:
        """The name of the log."""
        return self.manifest.logs[0].name


class _Repeating(AsyncClient):
    """A client some of whose requests come again after their answers, as late attempts do."""

    def __init__(self, servers: str, rng: random.Random) -> None:
        super().__init__(servers, timeout=_ANSWER_S)
        self._repeating = _RepeatingAdmin(self._cluster, rng)

    @property
    def admin(self) -> AsyncAdmin:
        """The operations, which repeat themselves."""
        return self._repeating


class _RepeatingAdmin(AsyncAdmin):
    def __init__(self, cluster: Cluster, rng: random.Random) -> None:
        super().__init__(cluster, timeout=_ANSWER_S)
        self._rng = rng
        self._earlier: list[tuple[str, bytes, int, Sequence[RestoredRow]]] = []

    async def restore_entries(
        self, log: str, key: bytes, next_seq: int, rows: Sequence[RestoredRow], *,
        timeout: float | None = None,
    ) -> tuple[int, bytes | None]:  # fmt: skip
        answer = await super().restore_entries(log, key, next_seq, rows, timeout=timeout)
        self._earlier = [*self._earlier[-2:], (log, key, next_seq, rows)]
        if self._rng.random() < _REPEATED:
            with contextlib.suppress(LognodeError):  # the range may be split since then
                await super().restore_entries(*self._rng.choice(self._earlier))
        return answer


class Restores:
    """Implements `sides.Side`."""

    def __init__(self, machines: Machines, rng: random.Random) -> None:
        self.anomalies: list[Anomaly] = []
        self._machines = machines
        self._rng = rng
        self._objects = _Objects(rng)
        self._store = Store(self._objects, Sealing())
        self._backups = [self._drawn(log) for log in _LOGS]
        self._begun: list[_Backup] = []
        self._complete: set[str] = set()

    async def prepare(self, admin: AsyncClient) -> None:
        """Nothing: a restore makes its log."""

    async def run(self) -> None:
        """Restore one log after the other until cancelled."""
        client = _Repeating(self._machines.servers, self._rng)
        splitting = asyncio.create_task(self._split())
        try:
            for backup in self._backups:
                self._begun.append(backup)
                while backup.log not in self._complete:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(self._rng.uniform(*_BREAKS_OFF_S)):
                            await self._restore(client, backup)
        finally:
            splitting.cancel()
            await client.close(timeout=0.0)

    async def finish(self, admin: AsyncClient) -> None:
        """Complete what was begun, without faults, and judge each log."""
        self._objects.is_steady = True
        for backup in self._begun:
            try:
                await self._complete_one(admin, backup)
            except LognodeError as error:
                told = f"a restore without faults failed: {error.code} {error.message}"
                self._wrong("L2", backup, told)
                continue
            await self._judge(admin, backup)

    async def _complete_one(self, admin: AsyncClient, backup: _Backup) -> None:
        if backup.log not in self._complete:
            await restore(
                admin, self._store, backup.manifest, [], None, Pace(None), lambda *_: None
            )

    async def _restore(self, client: AsyncClient, backup: _Backup) -> None:
        """Try once to restore; damage and conflicts are violations, other errors are faults."""
        try:
            await restore(
                client, self._store, backup.manifest, [], None, Pace(None), lambda *_: None
            )
            self._complete.add(backup.log)
        except (Conflict, CorruptData) as error:
            self._wrong("S6", backup, f"the restore says {error.code}: {error.message}")
            await asyncio.sleep(_READ_S)
        except LognodeError:
            await asyncio.sleep(self._rng.uniform(0.0, 0.3))

    async def _split(self) -> None:
        """Split the log that is restored, now and then."""
        client = AsyncClient(self._machines.servers, timeout=_ANSWER_S)
        try:
            while True:
                await asyncio.sleep(self._rng.uniform(*_SPLIT_EVERY_S))
                key = bytes([self._rng.randrange(97, 123)]) + b"%d" % self._rng.randrange(10)
                if self._begun:
                    with contextlib.suppress(LognodeError):
                        await client.admin.split(self._begun[-1].log, at=key, wait=False)
        finally:
            await client.close(timeout=0.0)

    async def _judge(self, admin: AsyncClient, backup: _Backup) -> None:
        log = admin.log(backup.log)
        found = sorted([entry async for entry in (await log.snapshot()).read(timeout=_READ_S)])
        if found != backup.entries:
            had, has = set(map(_seen, backup.entries)), set(map(_seen, found))
            twice = len(found) - len(has)
            told = f"{len(had - has)} entries are missing, {len(has - had)} are new, {twice} twice"
            self._wrong("S6", backup, told)
        for part in backup.manifest.logs[0].parts:
            for key in (part.start or b"a", *part.bounds):
                seq = (await log.append(key, b"after", timeout=_READ_S)).seq
                if seq is not None and seq <= part.through_seq:
                    self._wrong("S3", backup, f"seq {seq} of {key!r} is given again")

    def _wrong(self, promise: str, backup: _Backup, told: str) -> None:
        self.anomalies.append(Anomaly("restored", f"log {backup.log}: {told}", promise=promise))

    # The backups.

    def _drawn(self, log: str) -> _Backup:
        first, second, third = _SPANS
        spans = [[first], [second], [third]]
        if self._rng.random() < 0.5:  # the second span was merged with the first
            spans = [[first, second], [third]]
        parts: list[Part] = []
        entries: list[Entry] = []
        total = 0
        for each in spans:
            part = Part(each[0][0], each[-1][1], 0, [start for start, _ in each[1:]])
            for span in each:
                for some in self._objects_of(span):
                    name, _ = self._store.put_object(pack(some))
                    part.objects.append(Object(name, len(some), some[-1].seq))
                    part.through_seq = max(part.through_seq, some[-1].seq)
                    total = sum_of(some, total)
                    entries += some
            part.through_seq += self._rng.randrange(5)
            parts.append(part)
        policy = {"replicas": 3, "retention_ms": _RETENTION_MS}
        told = LogBackup(log, policy, None, parts, len(entries), total)
        manifest = Manifest("20250101T000000000Z", EPOCH_MS, "drawn", [told])
        return _Backup(manifest, sorted(entries))

    def _objects_of(self, span: _Span) -> Iterator[list[Entry]]:
        """Yield the entries of a span, object by object, in the order of seq."""
        rng, seq, ms = self._rng, _before_first(self._rng), EPOCH_MS - 1_000_000
        low, high = span[0] or b"a", span[1] or b"{"
        for _ in range(rng.randint(*_OBJECTS)):
            some = []
            for _ in range(rng.randint(*_ENTRIES)):
                seq += rng.choice(_GAP)
                ms += rng.choice((0, 0, 1, 50))
                key = bytes([rng.randrange(low[0], high[0])]) + b"%d" % rng.randrange(10)
                headers = {b"h": rng.randbytes(4)} if rng.random() < 0.2 else None
                value = None if rng.random() < 0.05 else rng.randbytes(rng.randint(*_VALUE_BYTES))
                some.append(Entry(key, seq, ms, headers, value, rng.random() < 0.02))
            yield some


def _before_first(rng: random.Random) -> int:
    """Draw the seq before the first seq of a span."""
    return rng.choice((0, 0, 17, 5_000_000_000))


def _seen(entry: Entry) -> tuple[bytes, int, int, bytes | None]:
    return entry.key, entry.seq, entry.timestamp_ms, entry.value


class _Objects(MemoryStore):
    """A store in memory that is away now and then."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self.is_steady = False
        self._rng = rng

    def get(self, name: str, bytes_max: int) -> bytes | None:
        if not self.is_steady and self._rng.random() < _AWAY:
            raise self.failed(Unavailable, "the store is away. Try again")
        return super().get(name, bytes_max)
