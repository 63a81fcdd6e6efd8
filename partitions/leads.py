"""Which leads are handed over so that all nodes lead about as many ranges: a pure function.

A range that was split is led where its parent was, and a node that was down leads nothing when it
is back. So whoever leads most hands one over to the member of the range that leads fewest, as long
as the two are apart by more than replicas may be (`balance.py`). Each hand-over makes two nodes
more alike, so that they come to an end.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from ..client.protocol import limits
from .balance import tolerance
from .facts import Leader
from .metadata import Metadata
from .model import Descriptor

LEAD_RESTS_S: Final = limits.lead_rests_s
"""So long a range is led by whom its lead was handed over to, if by nobody else meanwhile."""
TRY_AGAIN_AFTER_S: Final = 60.0
"""After a hand-over that failed, the follower having been behind for one."""


class Given(NamedTuple):
    """A lead to be handed over."""

    range_id: int
    generation: int
    from_node: int
    to_node: int
    reason: str


def handovers(
    metadata: Metadata,
    alive: Collection[int],
    keepers: Mapping[int, int],
    short: Collection[int],
    leader: Leader,
) -> list[Given]:
    """Those to begin now, at most one from each node and one to each. `keepers`: per range the
    node that is to go on leading it, if it does. Nodes that drain or are `short` of disk hand over
    what they lead by themselves, and get none."""
    able = {n.node_id for n in metadata.active_nodes() if n.node_id in alive} - set(short)
    led: dict[int, list[Descriptor]] = {node: [] for node in able}
    for range_ in metadata.ranges.values():
        node = leader(range_.range_id, range_.generation)
        if node in led:
            led[node].append(range_)
    leads = Counter({node: len(ranges) for node, ranges in led.items()})
    apart = tolerance(leads)
    found: list[Given] = []
    free = set(able)
    for node, count in leads.most_common():
        if count - min(leads.values()) <= apart:
            break
        others = {n: leads[n] for n in free if n != node and count - leads[n] > apart}
        to_free = (r for r in led[node] if not r.operation and keepers.get(r.range_id) != node)
        choice = _choice(to_free, others)
        if choice is not None:
            fewest, to_node, range_id, generation = choice
            reason = f"node {node} leads {count} ranges, node {to_node} leads {fewest}"
            found.append(Given(range_id, generation, node, to_node, reason))
            free.discard(to_node)
    return found


def _choice(
    ranges: Iterable[Descriptor], others: Mapping[int, int]
) -> tuple[int, int, int, int] | None:
    """Of the ranges one of which that of the others is a member that leads fewest: how many that
    leads, the member, the range and its generation."""
    choices = (
        (others[member], member, range_.range_id, range_.generation)
        for range_ in ranges
        for member in range_.members
        if member in others
    )
    return min(choices, default=None)
