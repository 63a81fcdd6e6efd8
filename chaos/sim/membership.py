"""A simulated node's part in the cluster: heartbeats, reports, and the controller's generations.

Where a controller replica is here, this module drives the work of its leader. A member that has
applied the last record of a controller generation begins the next generation, and pushes it to the
others until each has it (x29).
"""

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ...partitions.metadata import Metadata
from ...partitions.model import CONTROLLER_RANGE, Descriptor
from ...partitions.received import steps
from ...raft.types import GroupId
from .controller import STEP_S, ControllerReplica, controller_row
from .member import CONTROLLER, HEARTBEAT

if TYPE_CHECKING:
    from .host import Host
    from .replicas import Replicas

_HEARTBEAT_S: Final = 0.5
_UNANSWERED_MAX: Final = 2


class Membership:
    """The membership in one life of a process."""

    def __init__(self, host: "Host", replicas: "Replicas") -> None:
        self._host = host
        self._replicas = replicas
        self._turn = 0
        self._unanswered = 0

    def start(self) -> None:
        """Begin the first controller of a newly founded cluster, and the periodic work."""
        metadata = self._host.view.metadata
        founded = not self._replicas.marks.get(CONTROLLER_RANGE) and (
            metadata.controller.generation == 1
        )
        if founded and self._host.node_id in metadata.controller.members:
            own = Metadata.from_image(metadata.image())
            self._replicas.begin_controller(metadata.controller, own, (1, 0), campaign=False)
        self._host.later(_HEARTBEAT_S * self._host.rng.random(), self._beat)
        self._host.later(STEP_S * self._host.rng.random(), self._step)

    # Heartbeats.

    def _beat(self) -> None:
        host = self._host
        host.later(_HEARTBEAT_S, self._beat)
        host.look_soon()
        controller = self._replicas.controller
        if controller is not None and controller.leads:
            return
        self._unanswered += 1
        if self._unanswered > _UNANSWERED_MAX:
            host.view.leader = None
        leader = host.view.leader
        if leader is None:
            members = [m for m in host.view.metadata.controller.members if m != host.node_id]
            members = members or [n for n in host.view.metadata.nodes if n != host.node_id]
            self._turn += 1
            leader = members[self._turn % len(members)]
        host.send(leader, HEARTBEAT, (0, 0), [*host.view.version, host.damages()])

    def take_heartbeat(self, node: int, body: list[Any]) -> None:
        """Pass another node's heartbeat to the controller's leader."""
        controller = self._replicas.controller
        if controller is not None:
            generation, version, damaged = body
            told = [(range_id, number, reason) for range_id, number, reason in damaged]
            controller.take_heartbeat(node, (generation, version), told)

    def take_news(self, sender: int, image: dict[str, Any] | None) -> None:
        """Take the answer of the controller's leader, with its image if that is newer."""
        self._unanswered = 0
        self._host.view.leader = sender
        if image is not None:
            self._host.view.take(_received(image, self._host.view.metadata))

    def take_report(self, node: int, report: dict[str, Any]) -> None:
        """Take a member's report on an operation."""
        controller = self._replicas.controller
        if controller is not None:
            controller.take_report(node, report)

    # The controller.

    def _step(self) -> None:
        self._host.later(STEP_S, self._step)
        controller = self._replicas.controller
        if controller is None or controller.stopped:
            return
        known = self._host.view.metadata
        later = known.controller.generation > controller.gid.generation
        if later and not known.sealed and self._host.node_id not in known.controller.members:
            self._retire(known.controller.generation)  # a later generation's leader has answered
        elif controller.is_sealed:
            self._begin_next(controller)
        else:
            controller.step()
            controller.push()
            self._retire_before(controller)

    def _begin_next(self, ended: ControllerReplica) -> None:
        metadata = Metadata.from_image(ended.metadata.image())
        metadata.begin_generation()
        if self._host.node_id in metadata.controller.members:
            self._replicas.begin_controller(
                metadata.controller, metadata, (1, 0), campaign=ended.leads
            )
            return
        # This may be the only replica of the state in which the next generation begins.
        gid = GroupId(CONTROLLER_RANGE, metadata.controller.generation)
        row = controller_row(metadata.controller, metadata, (1, 0))
        for peer in sorted({*metadata.controller.members} & self._host.links.keys()):
            self._host.send(peer, CONTROLLER, gid, row)

    def _retire_before(self, controller: ControllerReplica) -> None:
        if controller.all_begun:
            self._retire(controller.gid.generation)

    def _retire(self, generation: int) -> None:
        old = [
            gid
            for gid in (*self._replicas.groups, *self._replicas.damaged)
            if gid.range_id == CONTROLLER_RANGE and gid.generation < generation
        ]
        if old:
            self._replicas.retire(old)

    def take_controller(self, sender: int, gid: GroupId, row: dict[str, Any] | None) -> None:
        """Take the generation that a member pushes.

        Without a row, the member confirms the pushed one.
        """
        replica = self._replicas.groups.get(gid)
        if row is None:
            if isinstance(replica, ControllerReplica):
                replica.begun_by(sender)
            return
        metadata = _received(row["image"], self._host.view.metadata)
        index, term = row["applied"]
        if not isinstance(replica, ControllerReplica):
            descriptor = Descriptor.from_wire(row["descriptor"])
            self._replicas.begin_controller(descriptor, metadata, (index, term), campaign=False)
            return
        confirm = partial(self._host.send, sender, CONTROLLER, gid, None)
        if not replica.stopped and replica.group.base_wanted and index > replica.applied_index:
            _check(metadata, replica.metadata)
            self._replicas.reinstall_controller(replica, metadata, (index, term), confirm)
        else:
            confirm()


def _received(image: dict[str, Any], known: Metadata) -> Metadata:
    metadata = Metadata.from_image(image)
    _check(metadata, known)
    return metadata


def _check(metadata: Metadata, known: Metadata) -> None:
    """Raise what a node raises for received metadata."""
    for _ in steps(metadata, known):
        pass
