"""Whether the cluster is as it should be, from the metadata and who leads: a pure function."""

from collections.abc import Callable, Collection, Iterator, Mapping

from ..client import limits
from ..partitions.metadata import Metadata, group_size
from ..partitions.model import CONTROLLER_RANGE, Descriptor
from ..partitions.planner import CONTROLLER_MEMBERS, Damages
from ..partitions.replacing import stranded

_NAMED_MAX = 20
"""Ranges that one line names; the line counts the rest, and `status` shows all of them."""


def reasons(
    metadata: Metadata,
    leader: Callable[[int, int], int | None],
    nodes_wanted: int,
    damaged: Damages,
    short: Mapping[int, int],
    unreachable: Collection[int],
) -> list[str]:
    """Why the cluster is not healthy, a line each; empty when it is.

    Healthy: at least `nodes_wanted` nodes ACTIVE, every range and the controller with a leader
    and as many members as wanted, none of them on a node that was removed, no operation under way,
    no replica damaged, no node short of disk: `short` has the bytes that are left; and no node that
    ought to be there `unreachable` from the one that answers: the controller takes its time before
    it calls a node dead.
    """
    active = metadata.active_nodes()
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
    ranges = (metadata.controller, *metadata.ranges.values())
    found += [
        f"{count} replicas of node {node} have no other node to go to: let another one join"
        for node, count in sorted(stranded(ranges, metadata.nodes).items())
    ]
    found += _to_be_copied(metadata, ranges)
    gone = metadata.gone_nodes()
    for range_ in ranges:
        name = metadata.name_of(range_)
        if leader(range_.range_id, range_.generation) is None:
            found.append(f"{name} has no leader")
        replicas = CONTROLLER_MEMBERS
        if range_.range_id != CONTROLLER_RANGE:
            replicas = metadata.logs[range_.log_id].policy.replicas
        size = group_size(replicas, len(active))
        if len(range_.members) < size:
            live = _live(range_, gone)
            found.append(f"{name} has {live} members, {size} are wanted")
    here = {(r.range_id, r.generation): r for r in ranges} if damaged else {}
    found += [
        f"node {node}'s replica of {metadata.name_of(hurt)} is damaged: {reason}"
        for node, replicas in sorted(damaged.items())
        for range_id, generation, reason in replicas
        if (hurt := here.get((range_id, generation))) is not None
    ]
    found += [
        f"node {node} has less disk left than its reserve, {free} bytes: the ranges that it leads "
        "take no appends"
        for node, free in sorted(short.items())
        if node in metadata.nodes
    ]
    found += [
        f"operation {operation.operation_id} ({operation.kind}) is {operation.phase}"
        for operation in metadata.operations.values()
    ]
    return found


def shortened(lines: list[str]) -> list[str]:
    """Return the lines as one answer holds them: the first `health_reasons_max` of them, and how
    many more there are."""
    more = len(lines) - limits.health_reasons_max
    if more <= 0:
        return lines
    return [*lines[:-more], f"{more:,} more reasons; `lognode status` shows all ranges"]


def _to_be_copied(metadata: Metadata, ranges: Collection[Descriptor]) -> Iterator[str]:
    """A line for each removed node that is still a member of ranges. Until other nodes have copies,
    these ranges live on fewer members than they list, and another stop may end their majority."""
    gone = metadata.gone_nodes()
    for node in metadata.nodes.values():
        if node.state != "REMOVED":
            continue
        held = [range_ for range_ in ranges if node.node_id in range_.members]
        if not held:
            continue
        named = [
            f"{metadata.name_of(range_)} ({_live(range_, gone)} of {len(range_.members)} members "
            "are live)"
            for range_ in held[:_NAMED_MAX]
        ]
        if len(held) > _NAMED_MAX:
            named.append(f"{len(held) - _NAMED_MAX} more")
        yield (
            f"node {node.node_id} was removed and its replicas are still to be copied to other "
            f"nodes ({len(held)}): {', '.join(named)}"
        )


def _live(range_: Descriptor, gone: Collection[int]) -> int:
    return sum(member not in gone for member in range_.members)


def _listed(nodes: Collection[int]) -> str:
    return ", ".join(map(str, nodes))
