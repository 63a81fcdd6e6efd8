"""Which neighbours are merged since both have become small: a pure function, as the planner's.

Two neighbours are merged when they have less than a quarter of what splits a range, together, in
bytes and in load, and the log has more ranges than it was created with; neither may have been in
an operation for a while. Where their members differ replicas of the right one, which is small,
move first to where the left one is.
"""

from collections.abc import Collection, Iterator, Mapping
from itertools import pairwise
from typing import Final, NamedTuple

from .metadata import Metadata
from .model import Descriptor
from .planner import Planned
from .policy import Policy

GATHER: Final = "gather"
"""The kind of a move after which a range can be merged."""
NEVER: Final = 0.0
"""As the time after which ranges are merged: they stay as they are."""
_SHARE: Final = 4
"""Neighbours are small when together they have less than this part of what splits a range."""


class Small(NamedTuple):
    """What the leader of a range says of it when it may be small enough to be merged."""

    range_id: int
    generation: int
    size: int
    """Bytes."""
    rate: int
    """How often a second it is asked for something."""


def may_shrink(policy: Policy, ranges: int) -> bool:
    """Whether ranges of a log that has so many are merged by themselves."""
    return policy.split_bytes is not None and ranges > policy.ranges_min


def is_small(policy: Policy, size: int, rate: int) -> bool:
    """Whether bytes and load are so few that a range, or two together, may be merged."""
    bytes_max, rate_max = policy.split_bytes, policy.split_rate
    few = bytes_max is not None and _SHARE * size < bytes_max
    return few and (rate_max is None or _SHARE * rate < rate_max)


def merges(
    metadata: Metadata, alive: Collection[int], resting: Collection[int], small: Collection[Small]
) -> list[Planned]:
    """Merges of neighbours of which leaders say that they are small, and moves towards them."""
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
    """Neighbours that are small together, no range twice."""
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
    """The next step towards one range of both, once all who take part are there."""
    here, there = set(right.members), set(left.members)
    if not here | there <= set(alive):
        return None
    if here == there:
        gid = (left.range_id, left.generation)
        reason = f"it and range {right.range_id} are small together"
        return Planned("merge", *gid, left.members, reason, right.span.start)
    comes, goes = sorted(there - here), sorted(here - there)
    active = {node.node_id for node in metadata.active_nodes()}
    if not comes or not goes or comes[0] not in active:
        return None
    members = tuple(sorted({*right.members, comes[0]} - {goes[0]}))
    reason = f"it is small, and is to be merged with range {left.range_id}"
    return Planned(GATHER, right.range_id, right.generation, members, reason)
