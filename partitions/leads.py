"""Choose which leads are handed over so that all nodes lead about as many ranges: a pure function.

After a split, both ranges are led where their parent was; a node that was down leads nothing when
it is back. The node with the most leads therefore hands one over to the member of the range with
the fewest leads, as long as the two differ by more than replicas may (`balance.py`). Each hand-over
makes two nodes more alike, so that the hand-overs come to an end.
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
"""After a hand-over, the new leader keeps the lead for this long, unless it loses it by itself."""
TRY_AGAIN_AFTER_S: Final = 60.0
"""The wait after a failed hand-over, for instance because the follower was behind."""


class Given(NamedTuple):
    """A lead to hand over."""

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
    """Return the hand-overs to begin now, at most one from each node and one to each node.

    `keepers` maps a range to the node that should keep leading it. Nodes that drain, or are `short`
    of disk, hand over their leads by themselves, and get no leads.
    """
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
    """Return the best range to hand over to one of the `others`: the member that leads fewest.

    The result is how many ranges that member leads, the member, the range and its generation.
    """
    choices = (
        (others[member], member, range_.range_id, range_.generation)
        for range_ in ranges
        for member in range_.members
        if member in others
    )
    return min(choices, default=None)
