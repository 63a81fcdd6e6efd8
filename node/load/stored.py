"""Stored bytes of each tenant in the ranges led here, for quotas of stored bytes.

A node measures only the ranges that it leads, so each range counts once, however many members it
has. With every heartbeat a node sends the controller's leader the sums of tenants with such a
quota, and receives the sums of the cluster. Both are late by a second or two: a tenant may exceed
its quota by what it appends meanwhile. While a range changes its leader it counts twice or not at
all, so the largest sum of the last ten to twenty seconds counts.
"""

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from ...partitions.quota import tenant_of
from ..metadata.view import View
from ..quota.quotas import Quotas
from ..replicas.host import Host
from ..replicas.range_replica import RangeReplica
from ..runtime.slices import in_slices

_EVERY_S: Final = 1.0
_UNLIMITED_EVERY_S: Final = 5.0
"""The interval while no quota limits stored bytes, and the sums are only shown."""
_SHARE: Final = 20
"""Summing takes at most one part in this many of the time."""


class Stored:
    """Runs on every node. `quotas` gets the sums."""

    def __init__(self, host: Host, view: View, quotas: Callable[[], Quotas]) -> None:
        self._host = host
        self._view = view
        self._quotas = quotas

    async def run(self) -> None:
        """Run until cancelled."""
        looked = -math.inf
        while True:
            began = time.monotonic()
            if self._quotas().limit_stored or began - looked >= _UNLIMITED_EVERY_S:
                looked = began
                await self.look()
            await asyncio.sleep(max(_EVERY_S, _SHARE * (time.monotonic() - began)))

    async def look(self) -> None:
        """Sum up the stored bytes of the ranges led here."""
        sums: Counter[str] = Counter()
        for tenant, size in await in_slices(self._sizes(self._host.ranges())):
            sums[tenant] += size
        self._quotas().hold(sums)

    def told(self) -> Mapping[str, int]:
        """Return the bytes of tenants that have a quota of stored bytes, for the heartbeat."""
        return self._quotas().held_of_limited()

    def learn(self, totals: Mapping[str, int]) -> None:
        """Take in the sums of the cluster."""
        self._quotas().learn_held(totals)

    def _sizes(self, replicas: Iterable[RangeReplica]) -> Iterator[tuple[str, int]]:
        metadata = self._view.metadata
        for replica in replicas:
            log = metadata.logs.get(replica.descriptor.log_id)
            if log is not None and replica.leads:
                state = replica.state
                yield tenant_of(log.name), state.memtable_bytes + (state.segment_bytes or 0)
