"""What the logs of each tenant hold, of ranges that are led here: for quotas of stored bytes.

A node knows the size of what it leads, so each range counts once, however many members it has. With
every heartbeat a node tells the controller's leader the sums of the tenants that have such a quota,
and hears those of the cluster. Both are late by a second or two: a tenant may get over its quota by
what it appends meanwhile. While a range changes its leader it counts for nobody, or twice, so the
most of the last ten to twenty seconds holds.
"""

import asyncio
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
_SHARE: Final = 20
"""Looking takes at most such a part of the time."""


class Stored:
    """Runs on every node. `quotas` is told what is found."""

    def __init__(self, host: Host, view: View, quotas: Callable[[], Quotas]) -> None:
        self._host = host
        self._view = view
        self._quotas = quotas

    async def run(self) -> None:
        """Never returns; cancel it."""
        while True:
            began = time.monotonic()
            await self.look()
            await asyncio.sleep(max(_EVERY_S, _SHARE * (time.monotonic() - began)))

    async def look(self) -> None:
        """Sum up what is led here."""
        sums: Counter[str] = Counter()
        for tenant, size in await in_slices(self._sizes(self._host.ranges())):
            sums[tenant] += size
        self._quotas().hold(sums)

    def told(self) -> Mapping[str, int]:
        """What goes with the heartbeat: the bytes of tenants with a quota of them."""
        return self._quotas().held_of_limited()

    def learn(self, totals: Mapping[str, int]) -> None:
        """The sums of the cluster."""
        self._quotas().learn_held(totals)

    def _sizes(self, replicas: Iterable[RangeReplica]) -> Iterator[tuple[str, int]]:
        metadata = self._view.metadata
        for replica in replicas:
            log = metadata.logs.get(replica.descriptor.log_id)
            if log is not None and replica.leads:
                state = replica.state
                yield tenant_of(log.name), state.memtable_bytes + (state.segment_bytes or 0)
