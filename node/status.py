"""The status of the cluster as this node sees it: /status.json and `lognode status`.

It has a row for each range and replica, and is put together in slices of the loop's time.
"""

import time
from collections.abc import Iterator, Mapping
from typing import Any

from ..client.budget import Budget
from ..client.meter import NodeBudgets
from ..client.request import Room
from ..partitions.facts import Facts
from ..partitions.metadata import Metadata
from ..partitions.model import LastOperation
from .disk_room import DiskRoom
from .heartbeat import Heartbeat
from .host import Host
from .loads import ByNode, Loads, of_range
from .retention import trimmed
from .segment_repair import SegmentRepair
from .slices import in_slices
from .view import View

_ALIVE_S = 3.0

Row = dict[str, Any]
Rows = list[Row]


async def status(
    *,
    node_id: int,
    host: Host,
    view: View,
    facts: Facts,
    heartbeat: Heartbeat,
    room: DiskRoom,
    repair: SegmentRepair,
    loads: Loads,
    budgets: NodeBudgets,
    answer_room: Room,
    descriptors: Row,
) -> dict[str, Any]:
    """`cluster`, `nodes`, `logs`, `ranges`, `operations`, and of this node its `replicas`, its
    `disk`, its `descriptors`, the `segments_in_doubt`, and the `budgets` of its connections."""
    await answer_room()
    by_node = await loads.everywhere()
    replicas = await in_slices(_replicas(host))
    ranges = await in_slices(_ranges(view.metadata, view, by_node))
    metadata = view.metadata
    leads = host.controller is not None and host.controller.leads
    alive = facts.alive(time.monotonic(), _ALIVE_S) if leads else None
    return {
        "cluster": {
            "id": metadata.cluster_id,
            "version": metadata.version,
            "controller": list(metadata.controller.members),
            "controller_leader": view.controller_leader(),
            "answered_by": node_id,
            "seconds_since_controller": round(time.monotonic() - heartbeat.last_answer_at, 3),
            "insecure": is_insecure(metadata, view.insecure),
        },
        "nodes": _nodes(metadata, alive, room, view.insecure),
        "logs": _logs(metadata),
        "ranges": ranges,
        "operations": _operations(metadata),
        "replicas": replicas,
        "disk": {"free": room.free, "reserve": room.reserve, "level": room.level.name},
        "descriptors": descriptors,
        "segments_in_doubt": sorted(repair.in_doubt),
        "budgets": {
            "answers": _budget(budgets.clients.answers),
            "requests": _budget(budgets.clients.requests),
        },
        "damaged": [
            {"node": node, "range": range_id, "generation": generation, "reason": reason}
            for node, replicas in sorted(view.damaged.items())
            for range_id, generation, reason in replicas
        ],
    }


def _budget(budget: Budget) -> Row:
    """Of the connections of clients: the bytes that they hold, and how many wait for room."""
    principal, connection = budget.largest()
    return {
        "bytes": budget.held,
        "bytes_max": budget.limits.node_bytes,
        "largest_principal_bytes": principal,
        "largest_connection_bytes": connection,
        "principals": len(budget.principals),
        "waiting": budget.tickets,
    }


def is_insecure(metadata: Metadata, told: Mapping[int, bool]) -> bool | None:
    """Whether a node of the cluster runs with `--insecure`; None where that is not known of all."""
    nodes = [told.get(n.node_id) for n in metadata.nodes.values() if n.state != "REMOVED"]
    return True if True in nodes else None if None in nodes else False


def _nodes(
    metadata: Metadata, alive: set[int] | None, room: DiskRoom, insecure: Mapping[int, bool]
) -> Rows:
    """`alive` is null where only the controller's leader would know, `insecure` where nobody has
    heard of the node."""
    short, held = room.short, metadata.replicas_by_node()
    return [
        {
            "id": node.node_id,
            "address": node.address,
            "peer": node.peer_address,
            "http": node.http,
            "zone": node.zone,
            "state": node.state,
            "replicas": held[node.node_id],
            "alive": None if alive is None else node.node_id in alive,
            "disk_short": node.node_id in short,
            "insecure": insecure.get(node.node_id),
        }
        for node in metadata.nodes.values()
    ]


def _logs(metadata: Metadata) -> Rows:
    return [
        {
            "id": record.log_id,
            "name": record.name,
            "ranges": len(metadata.ranges_of(record.log_id)),
            **record.policy.to_body(),
        }
        for record in metadata.logs.values()
    ]


def _ranges(metadata: Metadata, view: View, by_node: ByNode) -> Iterator[Row]:
    """All ranges, the controller's first."""
    names = {record.log_id: record.name for record in metadata.logs.values()}
    gone = metadata.gone_nodes()
    for range_ in (metadata.controller, *metadata.ranges.values()):
        leader = view.leader(range_.range_id, range_.generation)
        yield {
            "id": range_.range_id,
            "log": names.get(range_.log_id, ""),
            "start": range_.span.start,
            "end": range_.span.end,
            "generation": range_.generation,
            "members": list(range_.members),
            "live_members": [member for member in range_.members if member not in gone],
            "leader": leader,
            "state": range_.state,
            "operation": range_.operation,
            **of_range(range_, leader, by_node),
            "last_operation": _last(metadata.last_operations.get(range_.range_id)),
        }


def _last(last: LastOperation | None) -> Row | None:
    """Null: nothing has changed the range since it was created, or nobody has kept it."""
    if last is None:
        return None
    return {
        "id": last.operation_id or None,
        "kind": last.kind,
        "reason": last.reason,
        "outcome": last.outcome,
        "ended_at_ms": last.ended_at_ms or None,
    }


def _operations(metadata: Metadata) -> Rows:
    return [
        {
            "id": operation.operation_id,
            "kind": operation.kind,
            "phase": operation.phase,
            "ranges": [range_id for range_id, _ in operation.inputs],
            "reason": operation.reason,
        }
        for operation in metadata.operations.values()
    ]


def _replicas(host: Host) -> Iterator[Row]:
    for replica in host.ranges():
        yield {
            "range": replica.gid.range_id,
            "generation": replica.gid.generation,
            "role": replica.group.role,
            "term": replica.group.term,
            "commit": replica.group.commit_index,
            "applied": replica.applied_index,
            "entries": replica.state.next_seq - 1,
            "segments": len(replica.state.manifest),
            "segment_bytes": replica.state.segment_bytes,
            "trimmed_below": trimmed(
                replica.state.removal.marks, replica.state.start, replica.state.end
            ),
            "trimmed_keys": len(replica.state.removal.floors),
            "memtable_bytes": replica.state.memtable_bytes,
            "sealed": replica.is_sealed,
        }
