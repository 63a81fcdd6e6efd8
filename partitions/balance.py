"""Replicas that move so that every zone, then every node, has its share: a pure function.

A range that could be in more zones, or more evenly in those that there are, is moved first. Then
replicas go from the node that has most to the one that has fewest, as long as they are apart by
more than `APART` and by more than a tenth of a share. No move crowds a zone: without one, a range
stays in as many as before.

Each move lowers the sum, over all ranges, of the squares of how many members are in each zone; or
leaves that as it is and lowers the sum of the squares of how many replicas each node has. So moves
come to an end, in a state from which none is planned until something else changes. How busy a range
is counts for nothing here: no heartbeat tells it.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from .facts import Leader
from .metadata import Metadata, group_size
from .model import Descriptor
from .placement import changing, load_of
from .planner import Damages, Planned

APART: Final = 2
"""A node may have so many replicas more than another one: to move one would be of little use."""
_PART: Final = 10
"""And such a part of its share more."""
UNDER_WAY_MAX: Final = 2
"""With so many operations of any kind under way none is begun for the balance, so that no more than
two replicas come to a node or leave it because of it."""
RESTS_S: Final = 60.0
"""So long a range stays where it is after any operation, by the clock of the controller's leader.
"""


class _Move(NamedTuple):
    """Of one replica. The larger the better."""

    spread: int
    """By how much less crowded the zone is to which it goes; 0: the range is spread as before."""
    apart: int
    """How many more replicas there are on the node that it leaves."""
    from_node: int
    to_node: int


def tolerance(load: Mapping[int, int]) -> float:
    """By how much nodes with such a load may be apart."""
    return max(APART, sum(load.values()) / len(load) / _PART) if load else APART


class _Shares:
    """How many replicas each node has, by zones; `short` nodes get none."""

    def __init__(
        self, zones: Mapping[int, str], load: Mapping[int, int], short: Collection[int]
    ) -> None:
        self.zones = zones
        self.load = {node: load.get(node, 0) for node in zones}
        self._homes: dict[str, list[int]] = {zone: [] for zone in sorted(set(zones.values()))}
        """Per zone who may get replicas, those with the fewest first."""
        for node in sorted(zones.keys() - set(short), key=self._fewest):
            self._homes[zones[node]].append(node)
        self._apart = tolerance(self.load)

    def _fewest(self, node: int) -> tuple[int, int]:
        return self.load[node], node

    def changed(self, move: _Move) -> None:
        """A replica goes."""
        self.load[move.from_node] -= 1
        self.load[move.to_node] += 1
        for homes in self._homes.values():
            homes.sort(key=self._fewest)

    def moves(self, members: Collection[int]) -> list[_Move]:
        """Those that are worth it, at most one from a member to a zone."""
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
        """Why a move is planned."""
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
    """What to begin now, when nothing else is due. `resting` ranges stay; nodes that are `short` of
    disk get nothing. Of replicas that are as good to move a follower's goes before a leader's,
    which would cost an election more."""
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
    """Whether all its members are there, and as many as its log wants: else it is to be repaired,
    or waits for nodes to grow."""
    wanted = metadata.logs[range_.log_id].policy.replicas
    return (
        not range_.operation
        and len(range_.members) >= group_size(wanted, wanted)
        and all(member in nodes for member in range_.members)
    )


def _best(
    ranges: Iterable[Descriptor], shares: _Shares, leader: Leader
) -> tuple[Descriptor, _Move] | None:
    """The range whose move does most, the lowest where all else is equal."""
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
