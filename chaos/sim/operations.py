"""Operations on ranges on request, and whether all their effects are complete."""

from typing import TYPE_CHECKING, Any, Final

from ...client.protocol.levels import LEVEL_MAX, LEVEL_MIN
from ...node.rules.heartbeats import version_of
from ...node.rules.levels import ranges_may_rise
from ...partitions import commands, levels
from ...partitions.metadata import Metadata
from ...partitions.model import CONTROLLER_RANGE, Descriptor
from ...raft.types import GroupId
from .controller import ControllerReplica
from .faults import Fault
from .member import Member
from .replica import RangeReplica

if TYPE_CHECKING:
    from .world import World

_RANGES_MAX: Final = 5


class Operations:
    """The operations of one run."""

    def __init__(self, world: "World") -> None:
        self._world = world

    def begin(self, fault: Fault) -> None:
        """Ask the controller's leader for an operation; without a leader, nothing happens.

        `how` is `repair` (the same members), `move` (another node for one member, if there is one),
        `split` (at a key of a client, if there is one within the range), `merge` (with the right
        neighbour, or a move towards the members of that), `drain` (of a node; of a draining node,
        its end) or `finalize` (the feature level rises). `value`, 0 to 1, picks the range or node,
        and the leaving member or the key. A `wreck` asks nobody: all members of a range but one
        lose their replica.
        """
        if fault.how == "wreck":
            self._world.operator.wreck(fault.value)
            return
        leader = self.leader()
        if leader is None:
            return
        metadata = leader.metadata
        if fault.how == "drain":
            self._drain(leader, fault.value)
            return
        if fault.how == "finalize":
            self._finalize(leader)
            return
        ranges = [metadata.ranges[number] for number in sorted(metadata.ranges)]
        if fault.how == "merge":
            ranges = [range_ for range_ in ranges if range_.span.end is not None] or ranges
        position = fault.value * len(ranges)
        range_ = ranges[int(position)]
        spare = sorted(metadata.nodes.keys() - set(range_.members))
        if fault.how == "move" and spare:
            position = position % 1.0 * len(range_.members)
            goes = range_.members[int(position)]
            self._move(leader, range_, goes, spare[int(position % 1.0 * len(spare))])
            return
        keys = self._keys_within(range_)
        if fault.how == "split" and keys and len(metadata.ranges) < _RANGES_MAX:
            self._split(leader, range_, keys[int(position % 1.0 * len(keys))])
        elif fault.how == "merge" and range_.span.end is not None:
            self._merge(leader, range_)
        else:
            self._plan(leader, range_, "repair")

    def _keys_within(self, range_: Descriptor) -> list[bytes]:
        """Return keys of clients at which the range can be split."""
        options = self._world.options
        keys = [
            b"%d/k%d" % (group, number)
            for group in range(options.groups)
            for number in range(options.keys)
        ]
        return [key for key in keys if key in range_.span and key != range_.span.start]

    def leader(self) -> ControllerReplica | None:
        """Return the controller's leader, if it can be asked."""
        for host in self._world.hosts.values():
            replica = None if host.replicas is None else host.replicas.controller
            if replica is not None and replica.leads and not replica.is_sealed and not host.paused:
                return replica
        return None

    def _move(
        self, leader: ControllerReplica, range_: Descriptor, from_node: int, to_node: int
    ) -> None:
        self._ask(leader, range_, f"move from {from_node} to {to_node}", {
            "op": commands.MOVE, "range": range_.range_id, "from": from_node, "to": to_node,
        })  # fmt: skip

    def _split(self, leader: ControllerReplica, range_: Descriptor, at: bytes) -> None:
        self._ask(leader, range_, f"split at {at!r}", {
            "op": commands.SPLIT, "log": "log", "at": at,
        })  # fmt: skip

    def _merge(self, leader: ControllerReplica, range_: Descriptor) -> None:
        at = range_.span.end
        right = next(each for each in leader.metadata.ranges.values() if each.span.start == at)
        goes = sorted(set(range_.members) - set(right.members))
        comes = sorted(set(right.members) - set(range_.members))
        if goes and comes:
            self._move(leader, range_, goes[0], comes[0])
            return
        self._ask(leader, range_, f"merge at {at!r}", {
            "op": commands.MERGE, "log": "log", "at": at,
        })  # fmt: skip

    def _drain(self, leader: ControllerReplica, value: float) -> None:
        """Drain a node; the metadata refuses this if its replicas have nowhere to go."""
        nodes = sorted(leader.metadata.nodes)
        node = nodes[int(value * len(nodes))]
        undo = leader.metadata.nodes[node].state == "DRAINING"
        self._world.trace("world", "change", f"n{node} {'drains no longer' if undo else 'drains'}")
        leader.ask({"op": commands.DRAIN_NODE, "node": node, "undo": undo})

    def _finalize(self, leader: ControllerReplica) -> None:
        """Raise the feature level; the programs of all nodes know it."""
        nodes = [[n.node_id, n.boot, n.process] for n in levels.present(leader.metadata)]
        self._world.trace("world", "change", f"to feature level {LEVEL_MAX}")
        leader.ask({"op": commands.FINALIZE, "level": LEVEL_MAX, "nodes": nodes})

    def _plan(self, leader: ControllerReplica, range_: Descriptor, kind: str) -> None:
        self._ask(leader, range_, f"{kind} with the same members", {
            "op": commands.PLAN,
            "kind": kind,
            "inputs": [[range_.range_id, range_.generation]],
            "outputs": [{"range": range_.range_id, "members": range_.members}],
        })  # fmt: skip

    def _ask(
        self, leader: ControllerReplica, range_: Descriptor, what: str, command: dict[str, Any]
    ) -> None:
        name = f"{range_.range_id}/{range_.generation} {list(range_.members)}"
        self._world.trace("world", "change", f"{name} {what}")
        leader.ask(command)

    # End.

    def converged(self) -> bool:
        """Whether every effect is complete.

        Every member of every range has applied all that its leader has; no operation is under way;
        and nothing is left of generations that are over, or of machines that are lost for good.
        """
        hosts = self._world.hosts_left()
        if not all(host.alive and host.replicas is not None for host in hosts):
            return False
        metadata = max((host.view for host in hosts), key=lambda view: view.version).metadata
        if self._world.options.changes:
            if metadata.operations or not self._agree(metadata.controller):
                return False
            if any(host.view.version != version_of(metadata) for host in hosts):
                return False
        if not all(host.has_sound_files for host in hosts):
            return False
        if not self._has_risen(metadata):
            return False
        return all(self._agree(range_) for range_ in metadata.ranges.values()) and all(
            self._is_clean(metadata)
        )

    def _has_risen(self, metadata: Metadata) -> bool:
        """Whether all directories and ranges have the feature level of the cluster.

        Ranges wait for a machine that was lost for good before its directory had noted the level.
        """
        level, leader = metadata.feature_level, self.leader()
        if level == LEVEL_MIN:
            return True
        hosts = self._world.hosts_left()
        if leader is None or any(host.view.noted_level < level for host in hosts):
            return False
        if not ranges_may_rise(metadata, leader.host.view.programs):
            return bool(self._world.nemesis.gone)
        return all(self._follows(range_, level) for range_ in metadata.ranges.values())

    def _follows(self, range_: Descriptor, level: int) -> bool:
        """Whether all replicas of the range have the feature level of the cluster."""
        gid = GroupId(range_.range_id, range_.generation)
        found = [host.replicas.groups.get(gid) for host in self._world.hosts.values()
                 if host.replicas is not None]  # fmt: skip
        return all(r.store.state.level == level for r in found if isinstance(r, RangeReplica))

    def _agree(self, descriptor: Descriptor) -> bool:
        gid = GroupId(descriptor.range_id, descriptor.generation)
        members: list[Member] = []
        for node in descriptor.members:
            replicas = self._world.hosts[node].replicas
            replica = None if replicas is None else replicas.groups.get(gid)
            if replica is not None:
                members.append(replica)
            elif replicas is None or gid not in replicas.damaged or self._world.options.changes:
                return False  # a controller, if there is one, replaces damaged replicas
        leaders = [member for member in members if member.group.ready_to_lead]
        if len(leaders) != 1:
            return False
        last = leaders[0].group.last_index
        return all(member.applied_index == last for member in members)

    @staticmethod
    def _newest(metadata: Metadata, range_id: int) -> int:
        if range_id == CONTROLLER_RANGE:
            return metadata.controller.generation
        return metadata.ranges[range_id].generation

    def _is_clean(self, metadata: Metadata) -> list[bool]:
        return [
            self._newest(metadata, gid.range_id) == gid.generation
            for host in self._world.hosts_left()
            if host.replicas is not None
            for gid in (*host.replicas.groups, *host.replicas.damaged)
        ]
