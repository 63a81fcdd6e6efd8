"""The operator of a simulated cluster, who makes decisions that the cluster must not make.

Only the operator knows that a machine never comes back. The operator removes it, once it is DEAD,
unless the controller replaces its replicas by itself; and ends a drain whose replicas have nowhere
else to go.

For a range that lost most of its replicas for good, the operator accepts the loss, and has the
range go on from the remaining member (see `partitions.recovery`). The operator also decides which
replicas are lost, so that the remaining one does not rot. Only these replicas are lost: their nodes
go on with everything else.
"""

from typing import TYPE_CHECKING, Final

from ...node.directory import meta_keys
from ...partitions import commands
from ...partitions.leaving import NEVER
from ...partitions.metadata import Metadata
from ...partitions.model import Descriptor
from ...partitions.replacing import stranded
from ...raft.types import GroupId
from .controller import ControllerReplica

if TYPE_CHECKING:
    from .world import World

_LOOKS_EVERY_S: Final = 0.5


class Operator:
    """The operator of one run."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._survivors: dict[GroupId, int] = {}
        """For each generation that waits for a recovery, the member that is left."""

    def start(self) -> None:
        """Look at the cluster periodically, to the end of the run."""
        self._world.scheduler.after(_LOOKS_EVERY_S, self._look)

    def _look(self) -> None:
        leader = self._world.operations.leader()
        if leader is not None:
            for node in sorted(self._world.nemesis.gone):
                self._replace(leader, leader.metadata, node)
            for gid, survivor in list(self._survivors.items()):
                self._recover(leader, gid, survivor)
        self._world.scheduler.after(_LOOKS_EVERY_S, self._look)

    def _replace(self, leader: ControllerReplica, metadata: Metadata, gone: int) -> None:
        state = metadata.nodes[gone].state
        if stranded([metadata.controller, *metadata.ranges.values()], metadata.nodes)[gone]:
            for node in metadata.nodes.values():
                if node.state == "DRAINING":
                    self._drains_no_longer(leader, node.node_id)
        elif state == "DRAINING":
            self._drains_no_longer(leader, gone)
        elif state == "DEAD" and self._world.options.repair_after_seconds == NEVER:
            self._world.trace("operator", "remove", f"n{gone}")
            leader.ask({"op": commands.REMOVE_NODE, "node": gone, "dead": True})

    def _drains_no_longer(self, leader: ControllerReplica, node: int) -> None:
        self._world.trace("operator", "undrain", f"n{node}")
        leader.ask({"op": commands.DRAIN_NODE, "node": node, "undo": True})

    # Recovery.

    def wreck(self, value: float) -> None:
        """Lose all replicas but one of a healthy range for good, unless another range is waiting.

        `value`, 0 to 1, picks the range and the remaining member, more often one that is behind.
        """
        world = self._world
        newest = max((host.view for host in world.hosts.values()), key=lambda view: view.version)
        ranges = sorted(newest.metadata.ranges.values(), key=lambda range_: range_.range_id)
        whole = [range_ for range_ in ranges if self._is_whole(range_)]
        if not whole or self._survivors:
            return
        position = value * len(whole)
        range_ = whole[int(position)]
        gid = GroupId(range_.range_id, range_.generation)
        behind = sorted(range_.members, key=lambda node: self._reach(node, gid))
        survivor = behind[int((position % 1.0) ** 2 * len(behind))]
        world.trace("world", "wreck", f"{gid.range_id}/{gid.generation} but n{survivor}")
        self._survivors[gid] = survivor
        for node in range_.members:
            if node != survivor:
                world.hosts[node].wreck(gid)

    def _reach(self, node: int, gid: GroupId) -> int:
        """Return how far the log of a member reaches; 0: it is down."""
        member = self._world.hosts[node].member(gid)
        return 0 if member is None else member.log.last_index

    def _is_whole(self, range_: Descriptor) -> bool:
        """Whether every one of several members has begun the generation, and none is damaged."""
        key = meta_keys.replica_key(GroupId(range_.range_id, range_.generation))
        found = [self._world.hosts[node].durable.meta.get(key) for node in range_.members]
        return len(found) > 1 and all(row is not None and not row["damaged"] for row in found)

    def _recover(self, leader: ControllerReplica, gid: GroupId, survivor: int) -> None:
        range_ = leader.metadata.ranges.get(gid.range_id)
        if range_ is None:
            return  # a merge took the range, or the leader is behind
        if range_.generation > gid.generation:
            del self._survivors[gid]
            return
        damaged = [
            node
            for node, damages in leader.facts.damaged.items()
            if any(damage[:2] == gid for damage in damages)
        ]
        self._world.trace("operator", "recover", f"{gid.range_id}/{gid.generation} n{survivor}")
        leader.ask({
            "op": commands.RECOVER, "range": gid.range_id, "from": survivor, "damaged": damaged,
        })  # fmt: skip
