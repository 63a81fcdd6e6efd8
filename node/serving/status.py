"""The status of the cluster as this node sees it, for /status.json and `lognode status`.

The status has a row for each range and replica. HTTP gets all rows, put together in slices of the
loop's time. Clients get pages: a page is made on request, so that no node keeps rows for a slow
reader.
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final

from ...client.accepting.budget import Budget
from ...client.accepting.meter import NodeBudgets
from ...client.accepting.request import Room
from ...client.protocol import limits
from ...partitions import levels
from ...partitions.levels import Program
from ...partitions.metadata import Metadata
from ...partitions.model import CONTROLLER_RANGE, Descriptor, LastOperation
from ..control.heartbeat import Heartbeat
from ..directory.disk_room import DiskRoom
from ..load.load_reports import ByNode, Loads, of_range
from ..metadata.view import View
from ..replicas.host import Host
from ..replicas.range_replica import RangeReplica
from ..runtime.slices import in_slices
from ..upkeep.retention import trimmed
from ..upkeep.segment_repair import SegmentRepair
from . import words

_LOADS_LAST_S: Final = 5.0
"""How long the other nodes' loads are reused for the pages of one status."""

Row = dict[str, Any]
Rows = list[Row]
Placed = Iterator[tuple[int, Any]]
"""Rows, each with its position; several rows may share a position."""


class Status:
    """`whole` returns the dict of /status.json; `page` returns a part of it."""

    def __init__(
        self,
        *,
        node_id: int,
        host: Host,
        view: View,
        heartbeat: Heartbeat,
        room: DiskRoom,
        repair: SegmentRepair,
        loads: Loads,
        budgets: NodeBudgets,
        descriptors: Callable[[], Row],
        consumer_groups: Callable[[], Row],
        tier: Callable[[], Row | None],
        kafka: Callable[[], Row | None],
    ) -> None:
        self._consumer_groups = consumer_groups
        self._tier = tier
        self._kafka = kafka
        self._budgets = budgets
        self._descriptors = descriptors
        self._node_id = node_id
        self._host = host
        self._view = view
        self._heartbeat = heartbeat
        self._room = room
        self._repair = repair
        self._loads = loads
        self._told: tuple[float, ByNode] = (-_LOADS_LAST_S, {})
        """When the other nodes were last asked for their loads, and their answers."""
        self._sections: Mapping[str, Callable[[int], Placed]] = {
            "logs": self._logs,
            "ranges": self._ranges,
            "operations": self._operations,
            "replicas": self._replicas,
            "segments_in_doubt": self._in_doubt,
            "damaged": self._damaged,
        }

    async def whole(self) -> dict[str, Any]:
        """Return all rows of all sections."""
        await self._ask_loads()
        found = {
            name: [row for _, row in await in_slices(rows(-1))]
            for name, rows in self._sections.items()
        }
        return {**self._head(), **found}

    async def page(self, body: Row, room: Room) -> Row:
        """Return the next rows, section after section; see the table of operations."""
        await room()
        limit = min(body["limit"], limits.status_page_max)
        names = list(self._sections)
        answer: Row = {}
        if body["after"] is None:
            section, after = 0, -1
            await self._ask_loads()
            answer = {**self._head(), **{name: [] for name in names}}
        else:
            section, position = body["after"]
            after = position - 1
            if time.monotonic() - self._told[0] > _LOADS_LAST_S:
                await self._ask_loads()
        count = 0
        for number in range(section, len(names)):
            rows = self._sections[names[number]](after)
            for position, row in await in_slices(_first(rows, limit - count)):
                answer.setdefault(names[number], []).append(row)
                count, after = count + 1, position
            if count >= limit:
                return {**answer, "next": [number, after + 1]}
            after = -1
        return {**answer, "next": None}

    async def _ask_loads(self) -> None:
        by_node = await self._loads.everywhere()
        self._told = time.monotonic(), by_node

    def _head(self) -> Row:
        """Return the parts that exist once, and the nodes."""
        metadata, view, room = self._view.metadata, self._view, self._room
        alive = self._heartbeat.shown_alive()
        silent_s = time.monotonic() - self._heartbeat.last_answer_at
        tier, kafka = self._tier(), self._kafka()
        return {
            "cluster": {
                "id": metadata.cluster_id,
                "version": metadata.version,
                "controller": list(metadata.controller.members),
                "controller_leader": view.controller_leader(),
                "answered_by": self._node_id,
                "seconds_since_controller": round(silent_s, 3),
                "insecure": is_insecure(metadata, view.insecure),
                "feature_level": metadata.feature_level,
                "can_finalize": levels.offered(metadata, view.programs),
            },
            "nodes": _nodes(metadata, alive, room, view),
            "consumer_groups": self._consumer_groups(),
            "disk": {"free": room.free, "reserve": room.reserve, "level": room.level.name},
            "descriptors": self._descriptors(),
            **({} if tier is None else {"tier": tier}),
            **({} if kafka is None else {"kafka": kafka}),
            "budgets": {
                "answers": _budget(self._budgets.clients.answers),
                "requests": _budget(self._budgets.clients.requests),
            },
        }

    def _logs(self, after: int) -> Placed:
        metadata = self._view.metadata
        for log_id in sorted(metadata.logs):
            record = metadata.logs.get(log_id)
            if log_id > after and record is not None:
                yield (
                    log_id,
                    {
                        "id": log_id,
                        "name": record.name,
                        "hierarchy": record.hierarchy or None,
                        "ranges": metadata.ranges.count(log_id),
                        **record.policy.to_body(),
                    },
                )

    def _ranges(self, after: int) -> Placed:
        """Yield all ranges, the controller's first."""
        metadata, by_node = self._view.metadata, self._told[1]
        gone = metadata.gone_nodes()
        for range_id in sorted((CONTROLLER_RANGE, *metadata.ranges)):
            range_ = metadata.ranges.get(range_id)
            if range_id == CONTROLLER_RANGE:
                range_ = metadata.controller
            if range_id > after and range_ is not None:
                yield range_id, self._range(metadata, range_, by_node, gone)

    def _range(
        self, metadata: Metadata, range_: Descriptor, by_node: ByNode, gone: Collection[int]
    ) -> Row:
        leader = self._view.leader(range_.range_id, range_.generation)
        log = metadata.logs.get(range_.log_id)
        return {
            "id": range_.range_id,
            "log": "" if log is None else log.name,
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

    def _operations(self, after: int) -> Placed:
        operations = self._view.metadata.operations
        for number in sorted(operations):
            operation = operations.get(number)
            if number > after and operation is not None:
                yield (
                    number,
                    {
                        "id": operation.operation_id,
                        "kind": operation.kind,
                        "phase": operation.phase,
                        "ranges": [range_id for range_id, _ in operation.inputs],
                        "reason": words.of_reason(operation.reason, operation.causes),
                    },
                )

    def _replicas(self, after: int) -> Placed:
        """Yield the replicas of this node, by range."""
        for replica in sorted(self._host.ranges(), key=lambda replica: replica.gid):
            if replica.gid.range_id > after:
                yield replica.gid.range_id, _replica(replica, self._tier_only_bytes(replica))

    def _tier_only_bytes(self, replica: RangeReplica) -> int:
        """Return the bytes of a range's files that this node has in the tier only."""
        kept, here = self._host.kept.of(replica.gid), self._host.store.is_listed
        if not kept:
            return 0
        sizes = {info.content_id: info.size for info in replica.state.manifest}
        return sum(size for name, size in sizes.items() if name in kept and not here(name))

    def replicas(self) -> Iterator[Row]:
        """Yield the replicas of this node, each with the name of its log."""
        metadata = self._view.metadata
        for range_id, row in self._replicas(-1):
            range_ = metadata.ranges.get(range_id)
            record = None if range_ is None else metadata.logs.get(range_.log_id)
            yield {"log": "" if record is None else record.name, **row}

    def _in_doubt(self, after: int) -> Placed:
        return (each for each in enumerate(sorted(self._repair.in_doubt)) if each[0] > after)

    def _damaged(self, after: int) -> Placed:
        rows = [
            {"node": node, "range": range_id, "generation": generation, "reason": reason}
            for node, replicas in sorted(self._view.damaged.items())
            for range_id, generation, reason in replicas
        ]
        return (each for each in enumerate(rows) if each[0] > after)


def _first(rows: Placed, count: int) -> Placed:
    """Yield the first `count` rows, and further rows that share the last position."""
    last = -1
    for position, row in rows:
        if count <= 0 and position != last:
            return
        yield position, row
        count, last = count - 1, position


def _budget(budget: Budget) -> Row:
    """Return the bytes that connections of clients hold, and how many requests wait for room."""
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
    """Return whether a node of the cluster runs with `--insecure`, or None if unknown."""
    nodes = [told.get(n.node_id) for n in metadata.nodes.values() if n.state != "REMOVED"]
    return True if True in nodes else None if None in nodes else False


def _nodes(metadata: Metadata, alive: set[int] | None, room: DiskRoom, view: View) -> Rows:
    """Return a row for each node. `alive` is null while no leader of the controller answers;
    `insecure`, `version` and `levels` where this node has heard nothing of the node."""
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
            "insecure": view.insecure.get(node.node_id),
            **_program(view.programs.get(node.node_id)),
        }
        for node in metadata.nodes.values()
    ]


def _program(program: Program | None) -> Row:
    if program is None:
        return {"version": None, "levels": None}
    return {"version": program.version, "levels": [program.low, program.high]}


def _last(last: LastOperation | None) -> Row | None:
    """Return the last operation; null if nothing changed the range, or no node kept the record."""
    if last is None:
        return None
    return {
        "id": last.operation_id or None,
        "kind": last.kind,
        "reason": words.of_reason(last.reason, last.causes),
        "outcome": last.outcome,
        "ended_at_ms": last.ended_at_ms or None,
    }


def _replica(replica: RangeReplica, tier_only_bytes: int) -> Row:
    return {
        "range": replica.gid.range_id,
        "generation": replica.gid.generation,
        "role": replica.group.role,
        "term": replica.group.term,
        "commit": replica.group.commit_index,
        "applied": replica.applied_index,
        "entries": replica.state.next_seq - 1,
        "segments": len(replica.state.manifest),
        "segment_bytes": replica.state.segment_bytes,
        "tier_only_bytes": tier_only_bytes,
        "trimmed_below": trimmed(
            replica.state.removal.marks, replica.state.start, replica.state.end
        ),
        "trimmed_keys": len(replica.state.removal.floors),
        "memtable_bytes": replica.state.memtable_bytes,
        "sealed": replica.is_sealed,
        "level": replica.state.level,
    }
