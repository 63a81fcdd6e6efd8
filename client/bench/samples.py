"""A sample of the acknowledged records, read back at the end."""

import random
import time
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ..log import AsyncLog
from ..protocol.cleanups import compacts
from ..protocol.errors import CorruptData
from ..protocol.types import Ack

_CLOCKS_APART_MS: Final = 1_000
"""The most by which the clock that stamped an entry may be behind the clock of its removal."""


class _Sample(NamedTuple):
    key: bytes
    value: bytes
    seq: int
    timestamp_ms: int


class Samples:
    """At most `count_max` acknowledged records, each kept with the same probability."""

    def __init__(self, count_max: int, seed: int) -> None:
        self._count_max = count_max
        self._rng = random.Random(seed)
        self._offered = 0
        self._kept: list[_Sample] = []

    def offer(self, key: bytes, value: bytes, ack: Ack) -> None:
        """Consider the record for the sample (reservoir sampling, Vitter's algorithm R)."""
        if ack.seq is None or ack.timestamp_ms is None:
            return  # a duplicate, whose seq is no longer known
        sample = _Sample(key, value, ack.seq, ack.timestamp_ms)
        self._offered += 1
        if len(self._kept) < self._count_max:
            self._kept.append(sample)
            return
        at = self._rng.randrange(self._offered)
        if at < self._count_max:
            self._kept[at] = sample

    async def verify(self, log: AsyncLog) -> dict[str, int]:
        """Return how many records were `verified`, and how many had `expired` by the policy of the
        log.

        Raises CorruptData when a value differs, or when an entry that the policy keeps is missing.
        """
        policy = (await log.describe())["policy"]
        expired = 0
        for key, value, seq, timestamp_ms in self._kept:
            found = [e.value async for e in log.scan(key, start=seq, end=seq + 1)]
            if found == [value]:
                continue
            if found or not may_be_gone(policy, time.time() * 1_000 - timestamp_ms):
                raise CorruptData(f"key {key!r} at seq {seq} does not hold the acknowledged value")
            expired += 1
        return {"verified": len(self._kept) - expired, "expired": expired}


def may_be_gone(policy: Mapping[str, Any], age_ms: float) -> bool:
    """Return whether a log of this policy may have removed an entry of this age."""
    if policy.get("retention_bytes") is not None or compacts(policy.get("cleanup")):
        return True
    limits = (policy.get("retention_ms"), policy.get("snapshot_delay_ms"))
    return any(limit is not None and age_ms > limit - _CLOCKS_APART_MS for limit in limits)
