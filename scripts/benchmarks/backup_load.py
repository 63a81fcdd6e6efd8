"""What `scripts/bench backup` writes and reads: random entries, a writer at a rate, and a digest.

python -m benchmarks.backup_load SERVERS LOG RECORDS_PER_SECOND VALUE_BYTES

runs the writer. The writer goes on until its standard input ends. Each line of the input ends a
phase: the writer prints the latencies of the phase, and goes on with the next phase.
"""

import asyncio
import contextlib
import hashlib
import json
import os
import random
import sys
from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

import lognode
from lognode.client.backup.manifest import Part
from lognode.client.bench.pace import at_rate
from lognode.client.bench.report import Recorder

LOG = "backup"
KEYS = 100_000
_BATCH_BYTES = 1 << 20
_IN_FLIGHT = 8
_WRITER_CALLS_S = 50
"""Calls of the writer a second; a call has the records of a fiftieth of a second."""
_FOR_EVER_S = 86_400.0
_DIGEST_BYTES = 32
_MODULUS = 1 << 8 * _DIGEST_BYTES


def key(number: int) -> bytes:
    """Return the key with a number."""
    return b"%06d" % number


async def fill(servers: str, ranges: int, records: int, value_bytes: int, seed: int) -> None:
    """Create the log with ranges of equal key counts, and append values that do not compress."""
    rng = random.Random(seed)
    batch = max(1, _BATCH_BYTES // value_bytes)
    left = records
    async with lognode.AsyncClient(servers, timeout=120) as client:
        log = await client.create_log(
            LOG, split_at=[key(KEYS * n // ranges) for n in range(1, ranges)],
            split_bytes=None, split_rate=None,
        )  # fmt: skip

        async def append() -> None:
            nonlocal left
            while left > 0:
                count = min(batch, left)
                left -= count
                await log.append_many(drawn(rng, count, value_bytes))

        await asyncio.gather(*(append() for _ in range(_IN_FLIGHT)))


def drawn(rng: random.Random, count: int, value_bytes: int) -> list[tuple[bytes, bytes]]:
    """Return records of random keys and values."""
    return [(key(rng.randrange(KEYS)), rng.randbytes(value_bytes)) for _ in range(count)]


class Digest(NamedTuple):
    """The number of entries, and the sum of their hashes, which no order of the entries changes."""

    entries: int
    sum: int


async def digest(servers: str, parts: Sequence[Part]) -> Digest:
    """Read the log, and return the digest of the entries that the parts of a backup cover.

    Raises CorruptData for a key whose entries are not in the order of seq.
    """
    starts = [part.start for part in parts]
    ends = [part.through_seq for part in parts]
    count = total = 0
    last: dict[bytes, int] = {}
    async with lognode.AsyncClient(servers, timeout=120) as client:
        snapshot = await client.log(LOG).snapshot()
        async for columns in snapshot.read_columns():
            for entry in columns.entries():
                if entry.seq <= last.get(entry.key, 0):
                    raise lognode.CorruptData(f"{entry!r:.200} follows a later entry")
                last[entry.key] = entry.seq
                if entry.seq <= ends[bisect_right(starts, entry.key) - 1]:
                    count += 1
                    total += _hash(entry)
        await snapshot.release()
    return Digest(count, total % _MODULUS)


def _hash(entry: lognode.Entry) -> int:
    value = entry.value or b""
    told = b"%d %d %d %d %d:" % (
        entry.seq, entry.timestamp_ms, entry.value is None, entry.snapshot, len(entry.key),
    )  # fmt: skip
    told += entry.key + repr(sorted(entry.headers.items()) if entry.headers else "").encode()
    hashed = hashlib.blake2b(told, digest_size=_DIGEST_BYTES)
    hashed.update(value)
    return int.from_bytes(hashed.digest())


async def write(servers: str, log_name: str, rate: float, value_bytes: int) -> None:
    """Append at a rate until the input ends, and print a report at each line and at the end."""
    rng = random.Random(os.urandom(8))
    batch = max(1, round(rate / _WRITER_CALLS_S))
    async with lognode.AsyncClient(servers, timeout=120) as client:
        log = client.log(log_name)

        async def call(number: int, due: float) -> int:
            await log.append_many(drawn(rng, batch, value_bytes))
            return batch

        await call(0, 0.0)  # connected
        goes_on = True
        while goes_on:
            recorder = Recorder()
            load = asyncio.create_task(at_rate(rate / batch, _FOR_EVER_S, call, recorder))
            line = asyncio.create_task(asyncio.to_thread(sys.stdin.readline))
            await asyncio.wait({load, line}, return_when=asyncio.FIRST_COMPLETED)
            if load.done():
                await load  # raises the error of an append
            load.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await load
            recorder.end()
            goes_on = bool(await line)
            print(json.dumps(recorder.report("writer", {})), flush=True)


if __name__ == "__main__":
    asyncio.run(write(sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4])))
