"""Choose which small neighbours are merged: a pure function, like the planner's.

Two neighbours are merged when together they have less than a quarter of the bytes and of the load
that split a range, and the log has more ranges than it was created with. Neither may have been in
an operation for a while. Where their members differ, replicas of the right neighbour, which is
small, first move to the members of the left one.
"""

from collections.abc import Collection, Iterator, Mapping
from itertools import pairwise
from typing import Final, NamedTuple

from .metadata import Metadata
from .model import Descriptor
from .planner import Planned
from .policy import Policy

GATHER: Final = "gather"
"""The kind of a move that prepares a range for a merge."""
NEVER: Final = 0.0
"""The value of `merge_after_s` with which ranges are never merged."""
_SHARE: Final = 4
"""Neighbours are small when together they have less than this fraction of what splits a range."""


class Small(NamedTuple):
    """The report of a range's leader that the range may be small enough to be merged."""

    range_id: int
    generation: int
    size: int
    """The bytes of the range."""
    rate: int
    """Requests per second."""


def may_shrink(policy: Policy, ranges: int) -> bool:
    """Whether ranges of a log with `ranges` ranges are merged automatically."""
    return policy.split_bytes is not None and ranges > policy.ranges_min


def is_small(policy: Policy, size: int, rate: int) -> bool:
    """Whether a range, or two together, with these bytes and this load may be merged."""
    bytes_max, rate_max = policy.split_bytes, policy.split_rate
    few = bytes_max is not None and _SHARE * size < bytes_max
    return few and (rate_max is None or _SHARE * rate < rate_max)


def merges(
    metadata: Metadata, alive: Collection[int], resting: Collection[int], small: Collection[Small]
) -> list[Planned]:
    """Return merges of neighbours whose leaders report them small, and moves before merges."""
    told = {
        each.range_id: each
        for each in small
        if (range_ := metadata.ranges.get(each.range_id)) is not None
        and range_.generation == each.generation
        and not range_.operation
        and each.range_id not in resting
    }
    planned: list[Planned] = []
    for log_id in sorted({metadata.ranges[range_id].log_id for range_id in told}):
        ranges, policy = metadata.ranges_of(log_id), metadata.logs[log_id].policy
        count = len(ranges)
        for left, right in _pairs(ranges, told, policy):
            found = _merge(metadata, left, right, alive)
            if found is not None and may_shrink(policy, count):
                planned.append(found)
                count -= 1
    return planned


def _pairs(
    ranges: Collection[Descriptor], told: Mapping[int, Small], policy: Policy
) -> Iterator[tuple[Descriptor, Descriptor]]:
    """Yield pairs of neighbours that are small together, each range at most once."""
    taken = None
    for left, right in pairwise(ranges):
        one, other = told.get(left.range_id), told.get(right.range_id)
        if one is None or other is None or left.range_id == taken:
            continue
        if is_small(policy, one.size + other.size, one.rate + other.rate):
            taken = right.range_id
            yield left, right


def _merge(
    metadata: Metadata, left: Descriptor, right: Descriptor, alive: Collection[int]
) -> Planned | None:
    """Return the next step towards one range, once all members of both are alive."""
    here, there = set(right.members), set(left.members)
    if not here | there <= set(alive):
        return None
    if here == there:
        gid = (left.range_id, left.generation)
        reason = f"the range and range {right.range_id} are small together"
        return Planned("merge", *gid, left.members, reason, right.span.start)
    comes, goes = sorted(there - here), sorted(here - there)
    active = {node.node_id for node in metadata.active_nodes()}
    if not comes or not goes or comes[0] not in active:
        return None
    members = tuple(sorted({*right.members, comes[0]} - {goes[0]}))
    reason = f"the range is small and will be merged with range {left.range_id}"
    return Planned(GATHER, right.range_id, right.generation, members, reason)
