"""Put the logs of a backup into a cluster, with the seqs and timestamps of all entries.

A log is created with the ranges of the backup and without rules that split ranges or remove
entries. Its bound of bytes on local disks holds from the start: with a tier, a log that is larger
than the disks can be restored. A range takes its entries in the order of seq; some ranges are
filled at the same time. The log gets the rest of its policy at the end. An interrupted restore
continues when the call is made again: each range says how far it is.
"""

import asyncio
import struct
import time
from bisect import bisect_right
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any, Final

from ..admin import RestoredRow
from ..client import AsyncClient
from ..entry_columns import EntryColumns
from ..gathering import each
from ..protocol import limits, log_names
from ..protocol.cleanups import COMPACT_AND_DELETE
from ..protocol.errors import (
    BatchSpansRanges,
    Conflict,
    CorruptData,
    InvalidArgument,
    LogNotFound,
    Overloaded,
    Timeout,
    Unavailable,
    Unsupported,
)
from ..protocol.levels import COMPACT_AND_DELETE_FROM, LEVEL_MIN
from ..protocol.records import encode_batch
from ..protocol.types import Entry
from ..snapshot import AsyncSnapshot
from .ahead import ReadAhead
from .create import PATIENCE_S, Told
from .manifest import LogBackup, Manifest, Part
from .pace import Pace
from .pieces import added, sum_of
from .store import Store
from .verify import check_sum, checked

_REQUEST_BYTES: Final = 1 << 20
_REQUEST_ENTRIES: Final = 2_000
_ENTRY_BYTES: Final = 64
_PAUSE_S: Final = 0.1
_PARTS_AT_ONCE: Final = 4
"""How many parts of a log are filled together: a part alone waits most of the time for the disks of
its members."""
_AHEAD: Final = 2
"""How many objects of a part are read ahead."""
_POLICY: Final = (
    "retention_ms", "retention_bytes", "cleanup", "delete_retention_ms", "snapshot_delay_ms",
    "split_bytes", "split_rate", "local_retention_bytes",
)  # fmt: skip


@dataclass(slots=True)
class Restored:
    """The result. `left_out`: entries later than the requested time. `own_logs`: logs of the backup
    that a cluster writes by itself, and that were not restored."""

    backup: str
    logs: int = 0
    entries: int = 0
    left_out: int = 0
    own_logs: tuple[str, ...] = ()


def chosen(manifests: Sequence[Manifest], at_ms: int | None) -> Manifest | None:
    """Return the backup to restore: the newest, or for a time the first that was begun at this time
    or later, else the newest. Manifests are in the order of time."""
    if not manifests:
        return None
    later = (each for each in manifests if at_ms is not None and each.created_ms >= at_ms)
    return next(later, manifests[-1])


async def restore(
    client: AsyncClient, store: Store, manifest: Manifest, logs: Sequence[str], at_ms: int | None,
    pace: Pace, told: Told,
) -> Restored:  # fmt: skip
    """Restore the logs, and read them back. An empty sequence stands for all logs of the backup but
    those that a cluster writes by itself.

    With `at_ms`, entries with a later timestamp are left out. Raises CorruptData for a damaged
    object, whose name is in the text, and when the restored log has other entries than the backup;
    Conflict for a log that exists with entries or ranges of its own; LogNotFound for a log that the
    backup does not have; InvalidArgument for a log that only a cluster writes; the errors of
    creating a log.
    """
    by_name = {log.name: log for log in manifest.logs}
    for name in logs:
        if name not in by_name:
            raise LogNotFound(
                f"backup {manifest.backup} does not have log {name!r}; the backup has "
                f"{', '.join(by_name) or 'no log'}"
            )
        if name in log_names.OF_CLUSTER:
            raise InvalidArgument(
                f"log {name!r} is written by the cluster alone, and by no restore. Name other logs",
                what="log",
            )
    own = tuple(name for name in by_name if name in log_names.OF_CLUSTER)
    wanted = [by_name[name] for name in logs or by_name if name not in own]
    result = Restored(manifest.backup, len(wanted), own_logs=() if logs else own)
    whole = max(1, sum(log.entries for log in wanted))

    def entries_told(count: int) -> None:
        result.entries += count
        told(result.entries / whole, result.entries)

    for log in wanted:
        one = LogRestore(client, log, at_ms)
        await one.create()
        await each(log.parts, partial(_fill, one, store, pace, entries_told), _PARTS_AT_ONCE)
        check_sum(manifest, log, one.count, one.total)
        result.left_out += one.count - one.kept
        await one.finish()
    return result


async def _fill(
    one: "LogRestore", store: Store, pace: Pace, told: Callable[[int], None], part: Part
) -> None:
    names = (found.name for found in part.objects)
    async with ReadAhead(store, names, _AHEAD) as ahead:
        await one.fill(part, checked(store, ahead, part, pace), told)


class LogRestore:
    """Restores one log: `create`, then `fill` for each of its parts, then `finish`."""

    def __init__(self, client: AsyncClient, log: LogBackup, at_ms: int | None) -> None:
        """`at_ms`: leave out entries with a later timestamp."""
        self._client = client
        self._log = log
        self._at_ms = at_ms
        self.count = self.total = 0
        """The entries so far, and their sum."""
        self.kept = 0
        """The entries that the log gets."""
        self._sum = 0
        """The sum of the entries that the log gets."""

    async def fill(
        self, part: Part, entries_of_part: AsyncGenerator[list[Entry], None],
        told: Callable[[int], None],
    ) -> None:  # fmt: skip
        """Put the entries of a part into the log. `told` is called with how many were kept. Parts
        may be filled at the same time."""
        filler = await _Filler.begun(self._client, self._log.name, part)
        async with aclosing(entries_of_part) as found:
            async for entries in found:
                own = await asyncio.to_thread(sum_of, entries)
                self.total = added(self.total, own)
                self.count += len(entries)
                if self._at_ms is not None:
                    entries = [e for e in entries if e.timestamp_ms <= self._at_ms]
                    own = await asyncio.to_thread(sum_of, entries)
                self._sum = added(self._sum, own)
                self.kept += len(entries)
                await filler.put(entries)
                told(len(entries))
        await filler.end()

    async def finish(self) -> None:
        """Read the log back, and give the log its policy. Raises CorruptData."""
        await self._read_back(self.kept)
        policy = {name: self._log.policy[name] for name in _POLICY if name in self._log.policy}
        await self._client.alter_log(self._log.name, **policy)

    async def create(self) -> None:
        """Create the log with the ranges of its parts. Raises Conflict."""
        log, bounds = self._log, _bounds(self._log)
        hierarchy = None if log.hierarchy is None else bytes.fromhex(log.hierarchy)
        await self._check_cleanup()
        await self._client.create_log(
            log.name, split_at=bounds, replicas=log.policy["replicas"], hierarchy=hierarchy,
            split_bytes=None, split_rate=None, exist_ok=True,
            kafka_partitions=log.policy.get("kafka_partitions"),
            local_retention_bytes=log.policy.get("local_retention_bytes"),
        )  # fmt: skip
        described = await self._client.log(log.name).describe()
        starts = {range_["start"] for range_ in described["ranges"]}
        if not starts.issuperset(bounds):
            raise Conflict(
                f"log {log.name!r} exists, and a range has keys of several ranges of the backup. "
                "Delete the log, or restore into another cluster"
            )

    async def _check_cleanup(self) -> None:
        """Raise Unsupported if the cluster is below the level of the log's `cleanup`: the log gets
        its policy behind its last entry."""
        if self._log.policy.get("cleanup") != COMPACT_AND_DELETE:
            return
        level = (await self._client.status())["cluster"].get("feature_level", LEVEL_MIN)
        if level < COMPACT_AND_DELETE_FROM:
            raise Unsupported(
                f"log {self._log.name!r} has cleanup {COMPACT_AND_DELETE}, and the cluster is at "
                f"feature level {level}; this cleanup needs level {COMPACT_AND_DELETE_FROM}. Run "
                "`lognode cluster finalize`"
            )

    async def _read_back(self, kept: int) -> None:
        """Raise CorruptData unless the log has exactly the entries that it was given."""
        snapshot = await self._client.log(self._log.name).snapshot(timeout=PATIENCE_S)
        total = count = 0
        async for columns in _columns(snapshot, self._log.policy):
            entries = columns.entries()
            total = await asyncio.to_thread(sum_of, entries, total)
            count += len(entries)
        await snapshot.release()
        if (count, total) != (kept, self._sum):
            raise CorruptData(
                f"log {self._log.name!r} has {count} entries with sum {total:x} after the "
                f"restore; {kept} with sum {self._sum:x} were restored. Delete the log and "
                "restore again"
            )


async def _columns(
    snapshot: AsyncSnapshot, policy: Mapping[str, Any]
) -> AsyncGenerator[EntryColumns, None]:
    """Yield all entries of a snapshot, with their keys as the ranges store them."""
    if policy.get("kafka_partitions") is None:
        async for columns in snapshot.read_columns(timeout=PATIENCE_S):
            yield columns
        return
    async for _, columns in snapshot.read_in_order(timeout=PATIENCE_S):
        yield columns


class _Filler:
    """Fills the ranges of a part, each in the order of seq. A split may add ranges meanwhile."""

    def __init__(self, client: AsyncClient, log: str, part: Part) -> None:
        self._client = client
        self._log = log
        self._part = part
        self._starts: list[bytes] = []
        """Where the ranges of the part begin, in order."""
        self._next_seqs: list[int] = []

    @classmethod
    async def begun(cls, client: AsyncClient, log: str, part: Part) -> "_Filler":
        """Ask each range how far it is. Raises Conflict for a range with entries of its own."""
        found = cls(client, log, part)
        await found._look()
        return found

    async def _look(self) -> None:
        """Learn the ranges of the part, and the next seq of each."""
        found = [each async for each in self._each_range(1)]
        self._starts = [start for start, _ in found]
        self._next_seqs = [next_seq for _, next_seq in found]
        if not set(self._part.bounds).issubset(self._starts):
            raise Conflict(
                f"ranges of log {self._log!r} were merged during the restore. Delete the log, and "
                "restore again"
            )

    async def _each_range(self, next_seq: int) -> AsyncGenerator[tuple[bytes, int], None]:
        """Let each range of the part go on to this next seq, if the range is below. Yield where
        the range begins, and its next seq. A later range begins where the range of the answer
        ends, so no range is left out, whatever is split meanwhile."""
        start: bytes | None = self._part.start
        until = self._part.end
        while start is not None and (until is None or start < until):
            found, end = await self._send(start, next_seq, [])
            yield start, found
            start = end

    async def put(self, entries: list[Entry]) -> None:
        """Put entries into their ranges, unless they are there."""
        while True:
            try:
                await self._put(entries)
                return
            except BatchSpansRanges:  # a range was split
                await self._look()

    async def _put(self, entries: list[Entry]) -> None:
        owned: list[list[Entry]] = [[] for _ in self._starts]
        for entry in entries:
            at = bisect_right(self._starts, entry.key) - 1
            if entry.seq >= self._next_seqs[at]:
                owned[at].append(entry)
        for start, own in zip(self._starts, owned, strict=True):
            for some in portions(own):
                await self._send(start, some[-1].seq + 1, await asyncio.to_thread(_rows, some))

    async def end(self) -> None:
        """Let the ranges go on behind the snapshot: no seq is given twice."""
        async for _ in self._each_range(self._part.through_seq + 1):
            pass

    async def _send(
        self, start: bytes, next_seq: int, rows: list[RestoredRow]
    ) -> tuple[int, bytes | None]:
        restore = self._client.admin.restore_entries
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                return await restore(self._log, start, next_seq, rows)
            except (Overloaded, Unavailable, Timeout):  # a new range follows the feature level
                if time.monotonic() > until:
                    raise
                await asyncio.sleep(_PAUSE_S)


def _bounds(log: LogBackup) -> list[bytes]:
    found = [part.start for part in log.parts] + [b for part in log.parts for b in part.bounds]
    return sorted({*found} - {b""})


def portions(entries: list[Entry]) -> list[list[Entry]]:
    """Return the entries in requests of bounded size."""
    found: list[list[Entry]] = []
    size, rows, last_ms = _REQUEST_BYTES, 0, -1
    for entry in entries:
        own = len(entry.key) + len(entry.value or b"") + _ENTRY_BYTES
        own += sum(map(len, (*entry.headers, *entry.headers.values()))) if entry.headers else 0
        size, rows = size + own, rows + (entry.timestamp_ms != last_ms)
        last_ms = entry.timestamp_ms
        full = size > _REQUEST_BYTES or rows > limits.restored_rows_max
        if full or len(found[-1]) >= _REQUEST_ENTRIES:
            found.append([])
            size, rows = own, 1
        found[-1].append(entry)
    return found


def _rows(entries: list[Entry]) -> list[RestoredRow]:
    """Return the entries as batches of one timestamp each."""
    rows: list[RestoredRow] = []
    for timestamp_ms, group in groupby(entries, key=attrgetter("timestamp_ms")):
        some = list(group)
        headers = [entry.headers for entry in some]
        batch = encode_batch(
            [entry.key for entry in some], [entry.value for entry in some],
            producer=0, epoch=0, low=1, numbers=1,
            headers=headers if any(headers) else None,
            snapshots=[at for at, entry in enumerate(some) if entry.snapshot] or None,
        )  # fmt: skip
        rows.append((timestamp_ms, struct.pack(f"<{len(some)}q", *(e.seq for e in some)), batch))
    return rows
