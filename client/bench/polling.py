"""Polls: a page of one key, at a rate or with a fixed number of readers.

A reader acts like a consumer that reads a key from its beginning: after a full page the next poll
takes the next page, and after a page that is not full another key.
"""

import random
from dataclasses import dataclass
from typing import Any

from ..log import AsyncLog
from ..protocol.errors import CorruptData
from ..protocol.types import Consistency
from . import pace
from .report import Recorder
from .shape import Shape


@dataclass(frozen=True, slots=True)
class Polling:
    """Options of the polls: `rate` polls a second, or 0 for as many as `window` readers make;
    pages of `limit`."""

    seconds: float
    rate: float = 0.0
    window: int = 1
    limit: int = 32
    consistency: Consistency = "linearizable"
    warmup_s: float = 0.0
    every_s: float | None = None


class Poller:
    """Reads keys at random, each to its end, and checks every entry."""

    def __init__(self, log: AsyncLog, shape: Shape, load: Polling) -> None:
        self._log = log
        self._shape = shape
        self._load = load
        self._rng = random.Random(shape.seed + 2)
        self._begun: list[tuple[bytes, int]] = []
        """Keys not read to their end, with the next position; a poll takes one out while it
        reads."""
        self._entries = 0
        self._empty = 0

    async def run(self) -> dict[str, Any]:
        """Run, and return the report, which counts polls. Raises CorruptData when a page is
        wrong."""
        load = self._load
        recorder = Recorder(warmup_s=load.warmup_s, every_s=load.every_s)
        seconds = load.warmup_s + load.seconds
        await pace.paced(load.rate, load.window, seconds, self._poll, recorder)
        return recorder.report(
            "poll",
            {
                "keys": self._shape.keys,
                "zipf": self._shape.zipf,
                "limit": load.limit,
                "consistency": load.consistency,
                "rate": load.rate or None,
                "window": None if load.rate > 0 else load.window,
                "entries": self._entries,
                "empty": self._empty,
                "verified": self._entries,
            },
        )

    async def _poll(self, _: int, __: float) -> int:
        load = self._load
        if self._begun:
            key, start = self._begun.pop()
        else:
            (key,), start = self._shape.draw(1, self._rng), 1
        found = self._log.scan(key, start=start, limit=load.limit, consistency=load.consistency)
        page = [entry async for entry in found]
        seq = start - 1
        for entry in page:
            if entry.key != key or entry.seq <= seq:
                raise CorruptData(f"a poll of {key!r} returned {entry!r:.200} after seq {seq}")
            self._shape.check(key, entry.value)
            seq = entry.seq
        if len(page) == load.limit:
            self._begun.append((key, seq + 1))
        self._entries += len(page)
        self._empty += not page
        return 1
