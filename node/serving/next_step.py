"""Say what an operator does next about an unhealthy cluster: one line, about the worst trouble."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ...partitions.metadata import Metadata
from ...partitions.model import CONTROLLER_RANGE, Descriptor, NodeRecord

_NAMED_MAX: Final = 5
"""The most nodes that the line names."""
_WAIT: Final = "wait: `lognode health --wait 60s` ends when the cluster is healthy"


@dataclass(frozen=True, slots=True)
class Troubles:
    """What the look at a cluster found; empty fields are fine."""

    leaderless: Descriptor | None = None
    """A range without a leader, the controller if it has none."""
    damaged: Collection[int] = ()
    """Nodes with a damaged replica."""
    halted: Collection[int] = ()
    """Nodes with a replica that waits for an upgrade."""
    stranded: Collection[int] = ()
    """Nodes whose replicas have no other node to go to."""
    short: Collection[int] = ()
    """Nodes that are short of disk."""
    unreachable: Collection[int] = ()
    """Nodes that the answering node cannot reach."""


def next_step(metadata: Metadata, troubles: Troubles, nodes_wanted: int) -> str:
    """Return the next step as one line. The cluster is not healthy."""
    nodes = metadata.nodes
    down = [
        node.node_id
        for node in nodes.values()
        if node.state == "DEAD" or (node.state != "REMOVED" and node.node_id in
                                    troubles.unreachable)
    ]  # fmt: skip
    if troubles.leaderless is not None:
        return _lead_again(metadata, troubles.leaderless, down)
    if down:
        dead = [node for node in down if nodes[node].state == "DEAD"]
        lost = (
            f"; if its disk is lost for good, run `lognode node remove {dead[0]}`" if dead else ""
        )
        return f"start {_named(down, nodes)} again with the same data directory{lost}"
    if troubles.short:
        node = min(troubles.short)
        return (
            f"free space on the disk of {_named([node], nodes)}, shorten the retention of logs, or "
            f"add a node and run `lognode node drain {node}`"
        )
    if troubles.halted:
        return f"upgrade {_named(troubles.halted, nodes)} to the version of the other nodes"
    active = metadata.active_nodes()
    if len(active) < nodes_wanted or troubles.stranded:
        missing = max(nodes_wanted - len(active), 1)
        return (
            f"start {missing} more node{'s' if missing > 1 else ''} with `lognode --join "
            f"{active[0].address if active else 'ADDRESS'}`"
        )
    if troubles.damaged:
        return f"wait: the cluster rebuilds the replica of {_named(troubles.damaged, nodes)}"
    return _drained(metadata) or _WAIT


def _lead_again(metadata: Metadata, range_: Descriptor, down: Sequence[int]) -> str:
    """Return what gives a range a leader again."""
    silent = [member for member in range_.members if member in down]
    gone = {*silent, *(m for m in range_.members if m in metadata.gone_nodes())}
    name = metadata.name_of(range_)
    if len(range_.members) - len(gone) > len(range_.members) // 2:
        return (
            f"wait some seconds for an election of {name}; then read the logs of "
            f"{_named(range_.members, metadata.nodes)}"
        )
    recover = ""
    if range_.range_id != CONTROLLER_RANGE:
        recover = f"run `lognode range recover {range_.range_id}`, which shows what would be lost"
    if not silent:
        return recover or "read the logs of the members of the controller"
    start = f"start {_named(silent, metadata.nodes)} again with the same data directory"
    return f"{start}; if the disks are lost for good, {recover}" if recover else start


def _drained(metadata: Metadata) -> str:
    held = metadata.replicas_by_node()
    for node in metadata.nodes.values():
        if node.state == "DRAINING" and not held[node.node_id]:
            return f"node {node.node_id} is empty: run `lognode node remove {node.node_id}`"
    return ""


def _named(ids: Collection[int], nodes: Mapping[int, NodeRecord]) -> str:
    """Return the nodes with their addresses, for people."""
    told = [
        f"node {node} ({nodes[node].address})" if node in nodes else f"node {node}"
        for node in sorted(ids)[:_NAMED_MAX]
    ]
    if len(ids) > _NAMED_MAX:
        told.append(f"{len(ids) - _NAMED_MAX} more")
    return told[0] if len(told) == 1 else f"{', '.join(told[:-1])} and {told[-1]}"
