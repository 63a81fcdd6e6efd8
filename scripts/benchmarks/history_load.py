"""What `scripts/bench history` writes and reads: entries of many ages, polls of an age, a digest.

A key belongs to one age, and gets all of its entries while its age lasts. Each age has keys in all
ranges. Values compress to about half.
"""

import asyncio
import hashlib
import random
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import lognode
from lognode.client.bench.pace import at_rate
from lognode.client.bench.report import Recorder

LOG: Final = "history"
AGES: Final = 20
A_KEY: Final = 100
"""Entries of a key, more or less."""
PAGE: Final = 32
_BATCH_BYTES: Final = 1 << 20
_IN_FLIGHT: Final = 8
_TEXT: Final = b'{"customer": "eu/1107", "state": "paid", "amount": '
_MODULUS: Final = 1 << 128


def key(number: int) -> bytes:
    """Return the key with a number; its age is the number modulo AGES."""
    return b"%08d" % number


def keys_of_an_age(records: int) -> int:
    """Return how many keys each age of a history of so many records has."""
    return max(1, records // A_KEY // AGES)


def splits(ranges: int, records: int) -> list[bytes]:
    """Return the bounds of ranges of equal numbers of keys."""
    keys = AGES * keys_of_an_age(records)
    return [key(keys * n // ranges) for n in range(1, ranges)]


async def fill(servers: str, records: int, value_bytes: int, seed: int) -> None:
    """Append the records of one age after the other."""
    rng = random.Random(seed)
    keys = keys_of_an_age(records)
    batch = max(1, _BATCH_BYTES // value_bytes)
    async with lognode.AsyncClient(servers, timeout=300) as client:
        log = client.log(LOG)
        for age in range(AGES):
            left = records * (age + 1) // AGES - records * age // AGES

            async def append(age: int = age) -> None:
                nonlocal left
                while left > 0:
                    count = min(batch, left)
                    left -= count
                    await log.append_many(_drawn(rng, keys, age, count, value_bytes))

            await asyncio.gather(*(append() for _ in range(_IN_FLIGHT)))


def _drawn(
    rng: random.Random, keys: int, age: int, count: int, size: int
) -> list[tuple[bytes, bytes]]:
    text = (_TEXT * (size // len(_TEXT) + 1))[: size - size // 2]
    return [
        (key(rng.randrange(keys) * AGES + age), text + rng.randbytes(size // 2))
        for _ in range(count)
    ]


async def poll(
    servers: str, keys: int, ages: Sequence[int], rate: float, seconds: float
) -> dict[str, Any]:
    """Poll keys of these ages at random, from their first entries; return the report.

    `keys`: of an age. Raises CorruptData for a page of another key, or an empty page.
    """
    rng = random.Random(f"{ages}")
    async with lognode.AsyncClient(servers, timeout=60) as client:
        log = client.log(LOG)

        async def one(_: int, __: float) -> int:
            wanted = key(rng.randrange(keys) * AGES + rng.choice(ages))
            page = [entry async for entry in log.scan(wanted, limit=PAGE)]
            seqs = [entry.seq for entry in page]
            if not page or any(entry.key != wanted for entry in page) or seqs != sorted(seqs):
                raise lognode.CorruptData(f"a poll of {wanted!r} gave {page!r:.200}")
            return len(page)

        recorder = Recorder()
        await at_rate(rate, seconds, one, recorder)
    return recorder.report("poll", {})


class Digest(NamedTuple):
    """The number of entries, and the sum of their hashes, which no order of the entries changes."""

    entries: int
    sum: int


async def digest(
    servers: str, starts: Sequence[bytes], ends: Sequence[int] | None
) -> tuple[Digest, list[int]]:
    """Read the log; return its digest, and the last seq of each range. `ends`: the last seq of each
    range that counts. Raises CorruptData for a key whose entries are out of order."""
    count = total = 0
    last: dict[bytes, int] = {}
    async with lognode.AsyncClient(servers, timeout=300) as client:
        snapshot = await client.log(LOG).snapshot()
        async for columns in snapshot.read_columns():
            for entry in columns.entries():
                if entry.seq <= last.get(entry.key, 0):
                    raise lognode.CorruptData(f"{entry!r:.200} follows a later entry")
                if ends is not None and entry.seq > ends[bisect_right(starts, entry.key)]:
                    continue
                last[entry.key] = entry.seq
                count += 1
                told = b"%d %d %b:" % (entry.seq, entry.timestamp_ms, entry.key)
                hashed = hashlib.blake2b(told + (entry.value or b""), digest_size=16)
                total += int.from_bytes(hashed.digest())
        await snapshot.release()
    seqs = [0] * (len(starts) + 1)
    for each, seq in last.items():
        at = bisect_right(starts, each)
        seqs[at] = max(seqs[at], seq)
    return Digest(count, total % _MODULUS), seqs
