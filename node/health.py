"""Whether the cluster is as it should be, from the metadata and who leads: pure functions."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from ..client import limits
from ..partitions.metadata import Metadata, group_size
from ..partitions.model import CONTROLLER_RANGE, Descriptor, NodeRecord
from ..partitions.planner import CONTROLLER_MEMBERS, Damages
from ..partitions.replacing import stranded

_RANGES_A_STEP = 256
_NAMED_MAX = 20
"""Ranges that one line names; the line counts the rest, and `status` shows all of them."""


def lines(
    metadata: Metadata,
    leader: Callable[[int, int], int | None],
    nodes_wanted: int,
    damaged: Damages,
    short: Mapping[int, int],
    unreachable: Collection[int],
) -> Iterator[str]:
    """Why the cluster is not healthy, a line each; and empty lines, so that the loop over all
    ranges can be left and gone on with. The metadata may change meanwhile.

    Healthy: at least `nodes_wanted` nodes ACTIVE, every range and the controller with a leader
    and as many members as wanted, none of them on a node that was removed, no operation under way,
    no replica damaged, no node short of disk: `short` has the bytes that are left; and no node that
    ought to be there `unreachable` from the one that answers: the controller takes its time before
    it calls a node dead.
    """
    active = metadata.active_nodes()
    yield from _about_nodes(metadata, active, nodes_wanted, unreachable)
    ranges = (metadata.controller, *metadata.ranges.values())
    yield from _homeless(metadata, ranges)
    for range_ in ranges:
        yield ""
        log = metadata.logs.get(range_.log_id)
        if range_.range_id == CONTROLLER_RANGE:
            yield from _about_range(metadata, range_, leader, CONTROLLER_MEMBERS, len(active))
        elif log is not None:  # else it was deleted meanwhile
            yield from _about_range(metadata, range_, leader, log.policy.replicas, len(active))
    here = {(r.range_id, r.generation): r for r in ranges} if damaged else {}
    for node, replicas in sorted(damaged.items()):
        for range_id, generation, reason in replicas:
            hurt = here.get((range_id, generation))
            if hurt is not None and _is_known(metadata, hurt):
                yield f"node {node}'s replica of {metadata.name_of(hurt)} is damaged: {reason}"
    for node, free in sorted(short.items()):
        if node in metadata.nodes:
            yield (
                f"node {node} has less disk left than its reserve, {free} bytes: the ranges that "
                "it leads take no appends"
            )
    for operation in list(metadata.operations.values()):
        yield f"operation {operation.operation_id} ({operation.kind}) is {operation.phase}"


def _about_nodes(
    metadata: Metadata,
    active: Collection[NodeRecord],
    nodes_wanted: int,
    unreachable: Collection[int],
) -> list[str]:
    found = []
    if len(active) < nodes_wanted:
        found.append(f"{len(active)} nodes are ACTIVE, {nodes_wanted} are wanted")
    found += [
        f"node {node.node_id} is {node.state}"
        for node in metadata.nodes.values()
        if node.state not in ("ACTIVE", "REMOVED")
    ]
    found += [
        f"node {node.node_id} cannot be reached" for node in active if node.node_id in unreachable
    ]
    if metadata.sealed:  # one member alone may hold the state in which its next generation begins
        found.append(f"the controller goes on with members {_listed(metadata.controller.members)}")
    return found


def _about_range(
    metadata: Metadata,
    range_: Descriptor,
    leader: Callable[[int, int], int | None],
    replicas: int,
    active: int,
) -> Iterator[str]:
    if leader(range_.range_id, range_.generation) is None:
        yield f"{metadata.name_of(range_)} has no leader"
    size = group_size(replicas, active)
    if len(range_.members) < size:
        live = _live(range_, metadata.gone_nodes())
        yield f"{metadata.name_of(range_)} has {live} members, {size} are wanted"


def _is_known(metadata: Metadata, range_: Descriptor) -> bool:
    """Whether the log of the range was not deleted meanwhile."""
    return range_.range_id == CONTROLLER_RANGE or range_.log_id in metadata.logs


def shortened(lines: list[str]) -> list[str]:
    """Return the lines as one answer holds them: the first `health_reasons_max` of them, and how
    many more there are."""
    more = len(lines) - limits.health_reasons_max
    if more <= 0:
        return lines
    return [*lines[:-more], f"{more:,} more reasons; `lognode status` shows all ranges"]


def _homeless(metadata: Metadata, ranges: Sequence[Descriptor]) -> Iterator[str]:
    """Lines about replicas that have no node to go to, and about those of removed nodes."""
    without_home: Counter[int] = Counter()
    removed = {n.node_id: n for n in metadata.nodes.values() if n.state == "REMOVED"}
    held: dict[int, list[Descriptor]] = {node: [] for node in removed}
    for at in range(0, len(ranges), _RANGES_A_STEP):
        yield ""
        some = ranges[at : at + _RANGES_A_STEP]
        without_home += stranded(some, metadata.nodes)
        for range_ in some:
            for member in range_.members:
                if member in held:
                    held[member].append(range_)
    for node, count in sorted(without_home.items()):
        yield f"{count} replicas of node {node} have no other node to go to: let another one join"
    gone = metadata.gone_nodes()
    for node, theirs in held.items():
        if theirs:
            yield _to_be_copied(metadata, node, theirs, gone)


def _to_be_copied(
    metadata: Metadata, node: int, held: Sequence[Descriptor], gone: Collection[int]
) -> str:
    """A removed node is still a member of ranges. Until other nodes have copies, these ranges live
    on fewer members than they list, and another stop may end their majority."""
    named = [
        f"{metadata.name_of(range_)} ({_live(range_, gone)} of {len(range_.members)} members "
        "are live)"
        for range_ in held[:_NAMED_MAX]
        if _is_known(metadata, range_)
    ]
    if len(held) > _NAMED_MAX:
        named.append(f"{len(held) - _NAMED_MAX} more")
    return (
        f"node {node} was removed and its replicas are still to be copied to other "
        f"nodes ({len(held)}): {', '.join(named)}"
    )


def _live(range_: Descriptor, gone: Collection[int]) -> int:
    return sum(member not in gone for member in range_.members)


def _listed(nodes: Collection[int]) -> str:
    return ", ".join(map(str, nodes))
