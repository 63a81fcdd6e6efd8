"""Finds ranges led here that may be small enough to be merged with a neighbour.

They are sent with the heartbeat to the controller's leader, which knows the neighbours.
"""

import time
from collections import Counter
from collections.abc import Iterator

from ...partitions.shrinking import Small, is_small, may_shrink
from ..metadata.view import View
from ..replicas.host import Host
from ..replicas.range_replica import RangeReplica
from ..runtime.slices import in_slices


async def small_ranges(host: Host, view: View) -> list[Small]:
    """Return the small ranges of logs that have more ranges than they need."""
    counts = Counter(range_.log_id for range_ in view.metadata.ranges.values())
    return [small for small in await in_slices(_looks(host, view, counts)) if small is not None]


def _looks(host: Host, view: View, counts: "Counter[int]") -> Iterator[Small | None]:
    for replica in host.ranges():
        yield _look(replica, view, counts[replica.descriptor.log_id])


def _look(replica: RangeReplica, view: View, ranges: int) -> Small | None:
    policy = view.policy(replica.descriptor.log_id)
    if policy is None or not replica.leads or replica.is_sealed or not may_shrink(policy, ranges):
        return None
    size, rates = replica.state.segment_bytes, replica.load.rates(time.monotonic())
    if size is None or rates is None:
        return None
    small = Small(
        *replica.gid, size + replica.state.memtable_bytes, round(rates.records + rates.reads)
    )
    return small if is_small(policy, small.size, small.rate) else None
