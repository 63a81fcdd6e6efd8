"""Members that are replaced, since their nodes are gone or to go: who comes in their place.

A range goes on from the state that most of its members hold at the seal, so that nobody is replaced
without a majority of sound ones, nor where there is no node for the replica to go to.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from .model import Descriptor, NodeRecord
from .placement import Homes


@dataclass(frozen=True, slots=True)
class Leave:
    """Why replicas leave a node, and the kind of the operation by which they do."""

    kind: str
    reason: str


def replacement(
    range_: Descriptor,
    nodes: Mapping[int, NodeRecord],
    sound: Collection[int],
    leave: Mapping[int, Leave],
    homes: Homes,
) -> tuple[Leave, tuple[int, ...]] | None:
    """Why members of the range are replaced, and its members after that; None when nobody leaves,
    or nobody can. `sound` are the members that are alive and not damaged; `leave` has the nodes
    that replicas are to leave; those that are gone before those that drain, should not all find
    a place.
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
    """Per node that is not ACTIVE, how many ranges have a replica there and no ACTIVE node that is
    no member, to which it could go."""
    active = {node.node_id for node in nodes.values() if node.state == "ACTIVE"}
    return Counter(
        member
        for range_ in ranges
        if active.issubset(range_.members)
        for member in range_.members
        if member not in active
    )
