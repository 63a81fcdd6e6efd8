"""Replacement of members whose nodes are gone or have to go: which nodes take their place.

A range goes on from the state that most of its members hold at the seal. A member is therefore
replaced only with a majority of sound members, and only if another node can take the replica.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from .model import Descriptor, NodeRecord
from .placement import Homes


@dataclass(frozen=True, slots=True)
class Leave:
    """Why replicas leave a node, and the kind of operation that moves them."""

    kind: str
    reason: str


def replacement(
    range_: Descriptor,
    nodes: Mapping[int, NodeRecord],
    sound: Collection[int],
    leave: Mapping[int, Leave],
    homes: Homes,
) -> tuple[Leave, tuple[int, ...]] | None:
    """Return why members of the range are replaced, and the new members.

    Returns None if nothing is replaced. `sound` are the members that are alive and not damaged;
    `leave` has the nodes that replicas have to leave. If there is not room for all, nodes that are
    gone come before nodes that drain.
    """
    leavers = sorted(
        leave.keys() & set(range_.members), key=lambda node: (leave[node].kind != "repair", node)
    )
    if not leavers or 2 * len(sound) <= len(range_.members):
        return None
    zones = [nodes[member].zone for member in range_.members if member not in leave]
    come = homes.take(len(leavers), range_.members, zones)
    if not come:
        return None
    left = leavers[: len(come)]
    reasons = "; ".join(leave[node].reason for node in left)
    members = tuple(sorted((set(range_.members) - set(left)) | set(come)))
    return Leave(leave[left[0]].kind, reasons), members


def stranded(ranges: Iterable[Descriptor], nodes: Mapping[int, NodeRecord]) -> "Counter[int]":
    """Count, per node that is not ACTIVE, the ranges whose replica there has nowhere to go.

    Every ACTIVE node is already a member of such a range.
    """
    active = {node.node_id for node in nodes.values() if node.state == "ACTIVE"}
    return Counter(
        member
        for range_ in ranges
        if active.issubset(range_.members)
        for member in range_.members
        if member not in active
    )
