"""Appends: at a rate, or as many as fit a window; a sample of them is read back."""

import random
from dataclasses import dataclass
from typing import Any, Final

from ..log import AsyncLog
from . import pace
from .garbage import few_collections
from .report import Recorder
from .samples import Samples
from .shape import Shape

_SAMPLES_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class Appending:
    """Options of the appends. `rate` is in records a second; 0: as many as possible with `window`
    calls of `batch` records in flight.

    `records`: the most records. `in_order`: key after key instead of at random.
    """

    seconds: float
    rate: float = 0.0
    batch: int = 1_000
    window: int = 64
    records: int | None = None
    in_order: bool = False
    warmup_s: float = 0.0
    every_s: float | None = None


class Appender:
    """Makes the calls; remembers a sample of the acknowledged records."""

    def __init__(self, log: AsyncLog, shape: Shape, load: Appending) -> None:
        self._log = log
        self._shape = shape
        self._load = load
        self._rng = random.Random(shape.seed)
        self._number = 0
        self.acknowledged = 0
        """The records that the log has, also of a run that is interrupted."""
        self._samples = Samples(_SAMPLES_MAX, shape.seed + 1)
        self._sampling = random.Random(shape.seed + 2)

    async def run(self) -> dict[str, Any]:
        """Run, and return the report. Raises CorruptData when an acknowledged record is missing
        or wrong."""
        load = self._load
        recorder = Recorder(warmup_s=load.warmup_s, every_s=load.every_s)
        seconds = load.warmup_s + load.seconds
        calls_max = None if load.records is None else -(-load.records // load.batch)
        rate = load.rate / load.batch
        with few_collections():
            await pace.paced(rate, load.window, seconds, self.call, recorder, calls_max=calls_max)
        return recorder.report(
            "append",
            {
                "keys": self._shape.keys,
                "value_bytes": self._shape.value_bytes,
                "zipf": self._shape.zipf,
                "batch": load.batch,
                "rate": load.rate or None,
                "window": None if load.rate > 0 else load.window,
                **await self.verify(),
            },
        )

    def next_records(self, count: int) -> list[tuple[bytes, bytes]]:
        """Return records that were not given out before."""
        first, self._number = self._number, self._number + count
        shape = self._shape
        if self._load.in_order:
            keys = shape.in_order(first, count)
        else:
            keys = shape.draw(count, self._rng)
        return list(zip(keys, shape.values(keys, first), strict=True))

    async def call(self, number: int, _: float) -> int:
        """Append one batch."""
        count = self._load.batch
        if self._load.records is not None:
            count = min(count, self._load.records - number * count)
        records = self.next_records(count)
        if count == 1:
            acks = [await self._log.append(*records[0])]
        else:
            acks = await self._log.append_many(records)
        self.acknowledged += count
        at = self._sampling.randrange(count)
        self._samples.offer(*records[at], acks[at])
        return count

    async def verify(self) -> dict[str, int]:
        """Read the sample back by seq, see `Samples.verify`."""
        return await self._samples.verify(self._log)
