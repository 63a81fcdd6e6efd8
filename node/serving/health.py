"""Find out whether the cluster is healthy, from the metadata and the known leaders.

The work is done in steps: a cluster has up to 12,288 ranges."""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from typing import Final, NamedTuple

from ...client.protocol import limits
from ...partitions.metadata import Metadata
from ...partitions.model import CONTROLLER_RANGE, Descriptor
from ...partitions.placement import group_size
from ...partitions.planner import CONTROLLER_MEMBERS, Damages
from ...partitions.replacing import stranded
from .next_step import Troubles, next_step

_NAMED_MAX: Final = 20
"""The most ranges that one line names. The line counts the rest; `status` shows all of them."""
_STEP_RANGES: Final = 64
"""The most ranges that one step looks at."""


class Found(NamedTuple):
    """Why a cluster is not healthy, a line for each reason, and what to do next; both are empty
    when the cluster is healthy."""

    reasons: list[str]
    next: str


Steps = Generator[None, None, Found]


def reasons(
    metadata: Metadata,
    leader: Callable[[int, int], int | None],
    nodes_wanted: int,
    damaged: Damages,
    short: Mapping[int, int],
    unreachable: Collection[int],
    halted: Damages | None = None,
) -> Steps:
    """Return why the cluster is not healthy, and what to do next.

    A cluster is healthy when at least `nodes_wanted` nodes are ACTIVE and no operation is under
    way. Every range and the controller have a leader and as many members as wanted, and no member
    is on a removed node. No replica is damaged or `halted` (it waits for an upgrade of its node).
    No node is short of disk: `short` has the bytes that are left. The answering node can reach
    every ACTIVE node; `unreachable` has the nodes that it cannot reach, which the controller calls
    DEAD only after some time.

    The metadata may change between two steps. A log that is deleted meanwhile is left out.
    """
    active = metadata.active_nodes()
    found = []
    if len(active) < nodes_wanted:
        found.append(f"{len(active)} nodes are ACTIVE; the check wants {nodes_wanted}")
    found += [
        f"node {node.node_id} is {node.state}"
        for node in metadata.nodes.values()
        if node.state not in ("ACTIVE", "REMOVED")
    ]
    found += [
        f"this node cannot reach node {node.node_id}"
        for node in active
        if node.node_id in unreachable
    ]
    if metadata.sealed:  # a single member may hold the state that starts the next generation
        found.append(
            f"the controller continues with the members {_listed(metadata.controller.members)}"
        )
    damages = [
        (node, what, range_id, generation, reason)
        for told, what in ((damaged, "is damaged"), (halted or {}, "waits for an upgrade"))
        for node, replicas in sorted(told.items())
        for range_id, generation, reason in replicas
    ]
    ranges = _Ranges(metadata, leader, {damage[2:4] for damage in damages})
    yield from ranges.look()
    found += ranges.without_another_node()
    found += ranges.to_be_copied()
    found += ranges.lines
    found += [
        f"node {node}'s replica of {name} {what}: {reason}"
        for node, what, range_id, generation, reason in damages
        if (name := ranges.damaged.get((range_id, generation))) is not None
    ]
    found += [
        (
            f"the disk of node {node} has {free} free bytes, less than its reserve: the ranges "
            "that the node leads refuse appends"
        )
        for node, free in sorted(short.items())
        if node in metadata.nodes
    ]
    found += [
        f"operation {operation.operation_id} ({operation.kind}) is {operation.phase}"
        for operation in metadata.operations.values()
    ]
    if not found:
        return Found([], "")
    troubles = ranges.troubles(damaged, halted or {}, short, unreachable)
    return Found(found, next_step(metadata, troubles, nodes_wanted))


def _nodes_of(damages: Damages, known: Collection[tuple[int, int]]) -> list[int]:
    """Return the nodes with such a replica of a generation that is not over."""
    return [
        node
        for node, replicas in damages.items()
        if any((range_id, generation) in known for range_id, generation, _ in replicas)
    ]


def shortened(lines: list[str]) -> list[str]:
    """Return the first `health_reasons_max` lines, and a line that counts the rest."""
    more = len(lines) - limits.health_reasons_max
    if more <= 0:
        return lines
    return [*lines[:-more], f"{more:,} more reasons; `lognode status` shows all ranges"]


class _Ranges:
    """Collects the reasons that ranges give. Each range is looked at once."""

    def __init__(
        self,
        metadata: Metadata,
        leader: Callable[[int, int], int | None],
        damaged: Collection[tuple[int, int]],
    ) -> None:
        """`damaged` are the ids and generations of damaged replicas."""
        self._metadata = metadata
        self._leader = leader
        self._hurt = damaged
        self._gone = metadata.gone_nodes()
        self._active = len(metadata.active_nodes())
        self._removed = [n.node_id for n in metadata.nodes.values() if n.state == "REMOVED"]
        self._left = set(self._removed)
        self.stranded: Counter[int] = Counter()
        self.lines: list[str] = []
        """Lines for ranges without a leader or without some of their members."""
        self.leaderless: list[Descriptor] = []
        """The ranges without a leader."""
        self.damaged: dict[tuple[int, int], str] = {}
        """The names of the damaged ranges, by id and generation."""
        self._held: Counter[int] = Counter()
        """For each removed node, how many ranges still list it as a member."""
        self._named: defaultdict[int, list[str]] = defaultdict(list)
        """For each removed node, the first of these ranges."""

    def look(self) -> Generator[None, None, None]:
        """Look at all ranges, the controller first."""
        metadata = self._metadata
        ranges = (metadata.controller, *metadata.ranges.values())
        for at in range(0, len(ranges), _STEP_RANGES):
            part = [*filter(self.is_known, ranges[at : at + _STEP_RANGES])]
            self.stranded += stranded(part, metadata.nodes)
            for range_ in part:
                self._look_at(range_)
            yield

    def is_known(self, range_: Descriptor) -> bool:
        """Whether the log of the range was not deleted meanwhile."""
        return range_.range_id == CONTROLLER_RANGE or range_.log_id in self._metadata.logs

    def _look_at(self, range_: Descriptor) -> None:
        metadata, gid = self._metadata, (range_.range_id, range_.generation)
        if self._leader(*gid) is None:
            self.lines.append(f"{metadata.name_of(range_)} has no leader")
            self.leaderless.append(range_)
        replicas = CONTROLLER_MEMBERS
        if range_.range_id != CONTROLLER_RANGE:
            replicas = metadata.logs[range_.log_id].policy.replicas
        size = group_size(replicas, self._active)
        if len(range_.members) < size:
            name, live = metadata.name_of(range_), self._live(range_)
            self.lines.append(f"{name} has {live} of {size} members")
        if gid in self._hurt:
            self.damaged[gid] = metadata.name_of(range_)
        for node in self._left.intersection(range_.members):
            self._held[node] += 1
            if self._held[node] <= _NAMED_MAX:
                self._named[node].append(
                    f"{metadata.name_of(range_)} ({self._live(range_)} of {len(range_.members)} "
                    "members are live)"
                )

    def troubles(
        self,
        damaged: Damages,
        halted: Damages,
        short: Collection[int],
        unreachable: Collection[int],
    ) -> Troubles:
        """Return what the next step depends on, after all ranges were looked at."""
        return Troubles(
            leaderless=next(filter(self.is_known, self.leaderless), None),
            damaged=_nodes_of(damaged, self.damaged),
            halted=_nodes_of(halted, self.damaged),
            stranded=self.stranded,
            short=[node for node in short if node in self._metadata.nodes],
            unreachable=unreachable,
        )

    def without_another_node(self) -> Iterator[str]:
        """Yield a line for each node whose replicas have no other node to go to."""
        for node, count in sorted(self.stranded.items()):
            yield f"{count} replicas of node {node} have no other node to go to: add another node"

    def to_be_copied(self) -> Iterator[str]:
        """Yield a line for each removed node that ranges still list as a member.

        Until other nodes have copies, these ranges have fewer live members than they list, and one
        more stop may end their majority."""
        for node in self._removed:
            held, named = self._held[node], self._named[node]
            if not held:
                continue
            if held > _NAMED_MAX:
                named = [*named, f"{held - _NAMED_MAX} more"]
            yield (
                f"node {node} was removed and the cluster still copies its replicas to "
                f"other nodes ({held}): {', '.join(named)}"
            )

    def _live(self, range_: Descriptor) -> int:
        return sum(member not in self._gone for member in range_.members)


def _listed(nodes: Collection[int]) -> str:
    return ", ".join(map(str, nodes))
