"""Choose which replicas move so that every zone, then every node, has its share: a pure function.

A range that could be in more zones, or more evenly in the existing zones, is moved first. Then
replicas go from the node with the most to the node with the fewest, as long as the two differ by
more than `APART` and by more than a tenth of a share. No move makes a zone more crowded: a range
without such a move stays in as many zones as before.

Each move lowers the sum, over all ranges, of the squares of the number of members in each zone; or
leaves this sum as it is and lowers the sum of the squares of the number of replicas on each node.
Moves therefore come to an end, in a state in which none is planned until something else changes.
The load of a range counts for nothing here: no heartbeat reports it.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from .facts import Leader
from .metadata import Metadata
from .model import Descriptor
from .placement import changing, group_size, load_of
from .planner import Damages, Planned

APART: Final = 2
"""Nodes whose replicas differ by no more than this are balanced."""
_PART: Final = 10
"""Nodes are balanced too if they differ by no more than an average share divided by this."""
UNDER_WAY_MAX: Final = 2
"""With this many operations of any kind under way, no balancing move begins, so that at most two
replicas come to a node or leave it because of balancing."""
RESTS_S: Final = 60.0
"""A range rests this long after any operation, by the clock of the controller's leader."""


class _Move(NamedTuple):
    """A move of one replica. The larger value is the better move."""

    spread: int
    """How much less crowded the target zone is; 0: the range is spread as before."""
    apart: int
    """How many more replicas the source node has than the target node."""
    from_node: int
    to_node: int


def tolerance(load: Mapping[int, int]) -> float:
    """Return the difference in replicas that is tolerated between nodes with this load."""
    return max(APART, sum(load.values()) / len(load) / _PART) if load else APART


class _Shares:
    """The number of replicas on each node, by zones; `short` nodes get none."""

    def __init__(
        self, zones: Mapping[int, str], load: Mapping[int, int], short: Collection[int]
    ) -> None:
        self.zones = zones
        self.load = {node: load.get(node, 0) for node in zones}
        self._homes: dict[str, list[int]] = {zone: [] for zone in sorted(set(zones.values()))}
        """For each zone, the nodes that may get replicas, those with the fewest first."""
        for node in sorted(zones.keys() - set(short), key=self._fewest):
            self._homes[zones[node]].append(node)
        self._apart = tolerance(self.load)

    def _fewest(self, node: int) -> tuple[int, int]:
        return self.load[node], node

    def changed(self, move: _Move) -> None:
        """Count a move."""
        self.load[move.from_node] -= 1
        self.load[move.to_node] += 1
        for homes in self._homes.values():
            homes.sort(key=self._fewest)

    def moves(self, members: Collection[int]) -> list[_Move]:
        """Return the worthwhile moves, at most one from each member to each zone."""
        used = Counter(self.zones[member] for member in members)
        least = min(self.load.values())
        found = []
        for leaves in members:
            crowd, load = used[self.zones[leaves]], self.load[leaves]
            if crowd == 1 and load - least <= self._apart:
                continue
            for zone, homes in self._homes.items():
                spread = 0 if zone == self.zones[leaves] else crowd - used[zone] - 1
                comes = next((node for node in homes if node not in members), None)
                if spread < 0 or comes is None:
                    continue
                apart = load - self.load[comes]
                if spread > 0 or apart > self._apart:
                    found.append(_Move(spread, apart, leaves, comes))
        return found

    def reason(self, move: _Move, members: Collection[int]) -> str:
        """Return why a move is planned."""
        leaves, comes = move.from_node, move.to_node
        if move.spread:
            used = Counter(self.zones[member] for member in members)
            crowded, other = self.zones[leaves], self.zones[comes]
            return f"{used[crowded]} members in zone {crowded!r}, {used[other]} in zone {other!r}"
        return (
            f"node {leaves} has {self.load[leaves]} replicas, node {comes} has {self.load[comes]}"
        )


def moves(
    metadata: Metadata,
    alive: Collection[int],
    damaged: Damages,
    resting: Collection[int],
    short: Collection[int],
    leader: Leader,
) -> list[Planned]:
    """Return the moves to begin now, when nothing else is due.

    `resting` ranges stay; nodes that are `short` of disk get nothing. Between equal moves, a
    follower's replica moves before a leader's, whose move would cost an election.
    """
    zones = {n.node_id: n.zone for n in metadata.active_nodes() if n.node_id in alive}
    operations = metadata.operations.values()
    load = load_of(metadata.ranges, operations)
    load.subtract({n: c for (way, n), c in changing(metadata.ranges, operations).items()
                   if way == "from"})  # fmt: skip
    shares = _Shares(zones, load, short)
    movable = [
        range_
        for _, range_ in sorted(metadata.ranges.items())
        if range_.range_id not in resting and _is_movable(range_, metadata, zones)
    ]
    broken = {(told[0], told[1]) for each in damaged.values() for told in each}
    movable = [r for r in movable if (r.range_id, r.generation) not in broken]
    planned: list[Planned] = []
    while len(operations) + len(planned) < UNDER_WAY_MAX:
        found = _best(movable, shares, leader)
        if found is None:
            break
        range_, move = found
        members = tuple(sorted({*range_.members, move.to_node} - {move.from_node}))
        reason = shares.reason(move, range_.members)
        planned.append(Planned("move", range_.range_id, range_.generation, members, reason))
        movable.remove(range_)
        shares.changed(move)
    return planned


def _is_movable(range_: Descriptor, metadata: Metadata, nodes: Collection[int]) -> bool:
    """Whether all members of the range are alive, and as many as its log wants.

    Otherwise the range is to be repaired, or waits for more nodes.
    """
    wanted = metadata.logs[range_.log_id].policy.replicas
    return (
        not range_.operation
        and len(range_.members) >= group_size(wanted, wanted)
        and all(member in nodes for member in range_.members)
    )


def _best(
    ranges: Iterable[Descriptor], shares: _Shares, leader: Leader
) -> tuple[Descriptor, _Move] | None:
    """Return the range whose move is the best, the lowest id between equals."""
    known: dict[tuple[int, ...], list[_Move]] = {}
    best: tuple[int, int, bool] | None = None
    found = None
    for range_ in ranges:
        options = known.get(range_.members)
        if options is None:
            options = known[range_.members] = shares.moves(range_.members)
        for move in options:
            leads = move.from_node == leader(range_.range_id, range_.generation)
            rank = (move.spread, move.apart, not leads)
            if best is None or rank > best:
                best, found = rank, (range_, move)
    return found
