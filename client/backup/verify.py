"""Check a backup: read every object, and compare hashes, counts, seqs and sums."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from ..protocol.errors import CorruptData
from ..protocol.types import Entry
from .ahead import ReadAhead
from .create import Told
from .manifest import LogBackup, Manifest, Part
from .pace import Pace
from .pieces import sum_of, unpack
from .sealing import damaged
from .store import Store


async def manifest_of(store: Store, backup: str) -> Manifest:
    """Return the manifest of a backup. Raises NotFound, CorruptData."""
    content = await asyncio.to_thread(store.manifest, backup)
    return Manifest.of(backup, content)


async def verify(store: Store, manifest: Manifest, pace: Pace, told: Told) -> int:
    """Read all of a backup and return the number of its entries.

    Raises CorruptData, which names the first object that is damaged.
    """
    whole = max(1, sum(log.entries for log in manifest.logs))
    done = 0
    async with ahead_of(store, *manifest.logs) as ahead:
        for log in manifest.logs:
            total = count = 0
            for part in log.parts:
                async with aclosing(checked(store, ahead, part, pace)) as found:
                    async for entries in found:
                        total = await asyncio.to_thread(sum_of, entries, total)
                        count += len(entries)
                        told((done + count) / whole, done + count)
            check_sum(manifest, log, count, total)
            done += count
    return done


def ahead_of(store: Store, *logs: LogBackup) -> ReadAhead:
    """Return what reads the objects of the logs in their order."""
    parts = (part for log in logs for part in log.parts)
    return ReadAhead(store, (each.name for part in parts for each in part.objects))


async def checked(
    store: Store, ahead: ReadAhead, part: Part, pace: Pace
) -> AsyncGenerator[list[Entry], None]:
    """Yield the entries of a part, whose objects are the next of `ahead`. Raises CorruptData, which
    names the object whose entries are not those that the manifest promises."""

    def opened(name: str, stored: bytes) -> list[Entry]:
        return unpack(name, store.opened_object(name, stored))

    for name, count, last_seq in part.objects:
        stored = await ahead.next()
        entries = await asyncio.to_thread(opened, name, stored)
        await pace.passed(len(stored))
        if len(entries) != count or not entries or entries[-1].seq != last_seq:
            raise damaged(f"object {name}", "the entries are not those of the manifest")
        if last_seq > part.through_seq:
            raise damaged(f"object {name}", "a seq lies behind the snapshot")
        yield entries


def check_sum(manifest: Manifest, log: LogBackup, count: int, total: int) -> None:
    """Raise CorruptData if these are not the entries of the log."""
    if (count, total) != (log.entries, log.sum):
        raise CorruptData(
            f"log {log.name!r} of backup {manifest.backup} has {count} entries with sum {total:x}; "
            f"the manifest says {log.entries} with sum {log.sum:x}. Use another backup"
        )
