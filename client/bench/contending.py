"""Conditional appends: read, then append on the condition that nobody else has appended (S9).

A value holds a count, one more than the count of the entry before it. A lost update shows as a
count that comes twice, or as a missing acknowledged entry.
"""

import math
import random
import secrets
import time
from dataclasses import dataclass
from typing import Any, Final

from ..log import AsyncLog
from ..protocol.errors import CorruptData, SequenceMismatch
from ..protocol.types import ABSENT
from . import pace
from .report import Recorder
from .shape import Shape

_KEYS_MAX: Final = 500


@dataclass(frozen=True, slots=True)
class Contending:
    """`window` callers, or `rate` appends a second, over the shape's keys."""

    seconds: float
    rate: float = 0.0
    window: int = 256
    warmup_s: float = 0.0


class Contender:
    """Callers that share a view of the keys' last entries, like the callers in one program."""

    def __init__(self, log: AsyncLog, shape: Shape, load: Contending) -> None:
        self._log = log
        self._shape = shape
        self._load = load
        self._rng = random.Random(shape.seed)
        self._run = secrets.token_hex(4).encode()
        self._known: dict[bytes, tuple[int, int]] = {}
        """The seq of each key's last entry, and its count."""
        self._seqs: dict[bytes, list[int]] = {}
        """The acknowledged seqs of each key."""
        self._refused = 0
        self._until = math.inf

    async def run(self) -> dict[str, Any]:
        """Run, and return the report. Raises CorruptData when an update was lost."""
        load = self._load
        recorder = Recorder(warmup_s=load.warmup_s)
        seconds = load.warmup_s + load.seconds
        self._until = time.perf_counter() + seconds
        await pace.paced(load.rate, load.window, seconds, self._update, recorder)
        return recorder.report(
            "conditional append",
            {
                "keys": self._shape.keys,
                "value_bytes": self._shape.value_bytes,
                "zipf": self._shape.zipf,
                "rate": load.rate or None,
                "window": None if load.rate > 0 else load.window,
                "refused": self._refused,
                "verified": await self._verify(),
            },
        )

    async def _update(self, _: int, __: float) -> int:
        (key,) = self._shape.draw(1, self._rng)
        while True:
            seq, count = self._known.get(key, (0, 0))
            value = self._value(key, count + 1)
            try:
                ack = await self._log.append(key, value, expect=seq or ABSENT)
            except SequenceMismatch:
                self._refused += 1
                if self._known.get(key, (0, 0))[0] == seq:  # no caller has learned more since
                    await self._read(key)
                if time.perf_counter() > self._until:
                    return 0
                continue
            if ack.seq is not None:
                self._seqs.setdefault(key, []).append(ack.seq)
                self._learn(key, ack.seq, count + 1)
            return 1

    async def _read(self, key: bytes) -> None:
        entry = await self._log.latest(key)
        if entry is not None and entry.value is not None:
            self._learn(key, entry.seq, self._count(key, entry.value))

    def _learn(self, key: bytes, seq: int, count: int) -> None:
        if seq > self._known.get(key, (0, 0))[0]:
            self._known[key] = (seq, count)

    def _value(self, key: bytes, count: int) -> bytes:
        return (key + b"%s%016d" % (self._run, count)).ljust(self._shape.value_bytes, b".")

    def _count(self, key: bytes, value: bytes) -> int:
        at = self._shape.key_bytes
        count = value[at + 8 : at + 24]
        if value[:at] != key or not count.isdigit():
            raise CorruptData(f"key {key!r} holds {value!r:.80}, which no run has written")
        return int(count)

    async def _verify(self) -> int:
        """Check some keys: their counts are consecutive, and their entries of this run are
        exactly the acknowledged ones. Return the number of entries read."""
        at = self._shape.key_bytes
        read = 0
        for key in random.Random(1).sample(sorted(self._seqs), min(_KEYS_MAX, len(self._seqs))):
            seqs = sorted(self._seqs[key])
            entries = [entry async for entry in self._log.scan(key, start=seqs[0])]
            read += len(entries)
            counts = [self._count(key, entry.value or b"") for entry in entries]
            ours = [e.seq for e in entries if (e.value or b"")[at : at + 8] == self._run]
            if ours != seqs or counts != list(range(counts[0], counts[0] + len(counts))):
                raise CorruptData(f"an update of key {key!r} was lost or applied twice")
        return read
