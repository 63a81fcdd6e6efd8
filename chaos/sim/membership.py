"""A simulated node's part in the cluster: heartbeats, reports, and the controller's generations.

Where a controller replica is here, this module drives the work of its leader. A member that has
applied the last record of a controller generation begins the next generation, and pushes it to the
others until each has it (x29).
"""

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ...node.rules.controller_generations import (
    BeginNext,
    ControllerMember,
    Push,
    PushNext,
    RetireBefore,
    moves,
    successor,
    use_of,
)
from ...node.rules.ending import before
from ...node.rules.heartbeats import PERIOD_S, Told, next_to_ask
from ...node.rules.levels import may_propose, ranges_may_rise
from ...partitions.levels import Program
from ...partitions.metadata import Metadata
from ...partitions.model import CONTROLLER_RANGE, Descriptor
from ...partitions.received import steps
from ...raft.types import GroupId
from .controller import STEP_S, ControllerReplica, controller_row
from .member import CONTROLLER, HEARTBEAT

if TYPE_CHECKING:
    from .host import Host
    from .replicas import Replicas

_UNANSWERED_MAX: Final = 2


class Membership:
    """The membership in one life of a process."""

    def __init__(self, host: "Host", replicas: "Replicas") -> None:
        self._host = host
        self._replicas = replicas
        self._turn = 0
        self._unanswered = 0
        self._proposed: dict[GroupId, float] = {}
        """When the cluster's feature level was last proposed to a range."""
        self._have: dict[int, set[int]] = {}
        """Members known to have begun each generation of the controller."""

    def start(self) -> None:
        """Begin the first controller of a newly founded cluster, and the periodic work."""
        metadata = self._host.view.metadata
        founded = not self._replicas.marks.get(CONTROLLER_RANGE) and (
            metadata.controller.generation == 1
        )
        if founded and self._host.node_id in metadata.controller.members:
            own = Metadata.from_image(metadata.image())
            self._replicas.begin_controller(metadata.controller, own, (1, 0), campaign=False)
        self._host.later(PERIOD_S * self._host.rng.random(), self._beat)
        self._host.later(STEP_S * self._host.rng.random(), self._step)

    # Heartbeats.

    def _beat(self) -> None:
        host = self._host
        host.later(PERIOD_S, self._beat)
        host.look_soon()
        self._follow_level()
        controller = self._replicas.controller
        if controller is not None and controller.leads:
            return
        self._unanswered += 1
        if self._unanswered > _UNANSWERED_MAX:
            host.view.leader = None
        leader = host.view.leader
        if leader is None:
            self._turn += 1
            leader = next_to_ask(host.view.metadata, host.node_id, self._turn)
        if leader is not None:
            told = [*host.view.version, host.damages(), list(host.view.program)]
            host.send(leader, HEARTBEAT, (0, 0), told)

    def _follow_level(self) -> None:
        """Note the cluster's feature level, then propose it to the ranges that are led here."""
        view, now = self._host.view, self._host.world.clock.now
        view.note_level()
        if not ranges_may_rise(view.metadata, view.programs):
            return
        level = view.metadata.feature_level
        for replica in self._replicas.ranges():
            own, proposed_at = replica.store.state.level, self._proposed.get(replica.gid)
            if may_propose(own, level, proposed_at, now) and replica.propose_level(level):
                self._proposed[replica.gid] = now
        self._host.pump()

    def take_heartbeat(self, node: int, body: list[Any]) -> None:
        """Pass another node's heartbeat to the controller's leader."""
        controller = self._replicas.controller
        if controller is not None:
            generation, version, damaged, program = body
            told = Told([(range_id, number, reason) for range_id, number, reason in damaged])
            controller.take_heartbeat(node, (generation, version), told, Program(*program))

    def take_news(self, sender: int, body: list[Any]) -> None:
        """Take the answer of the controller's leader, with its image if that is newer."""
        image, programs = body
        self._unanswered = 0
        self._host.view.leader = sender
        self._host.view.learn_programs({node: Program(*told) for node, told in programs})
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
        member = ControllerMember(
            controller.descriptor,
            controller.metadata.controller,
            controller.is_sealed,
            controller.leads,
            controller.group.needs_base,
        )
        if not controller.is_sealed:
            controller.step()
        node = self._host.node_id
        for move in moves(node, known.controller, known.sealed, member, self._have):
            match move:
                case RetireBefore(generation):
                    groups = (*self._replicas.groups, *self._replicas.damaged)
                    if old := before(generation, groups):
                        self._replicas.retire(old)
                case BeginNext(campaign):
                    metadata = successor(controller.metadata)
                    self._replicas.begin_controller(
                        metadata.controller, metadata, (1, 0), campaign=campaign
                    )
                case PushNext(to):
                    metadata = successor(controller.metadata)
                    self._push(controller_row(metadata.controller, metadata, (1, 0)), to)
                case Push(to):
                    self._push(controller.row(), to)

    def _push(self, row: dict[str, Any], to: frozenset[int]) -> None:
        gid = GroupId(CONTROLLER_RANGE, row["descriptor"]["generation"])
        for peer in sorted(to & self._host.links.keys()):
            self._host.send(peer, CONTROLLER, gid, row)

    def take_controller(self, sender: int, gid: GroupId, row: dict[str, Any] | None) -> None:
        """Take the generation that a member pushes.

        Without a row, the member confirms the pushed one.
        """
        replica = self._replicas.groups.get(gid)
        if row is None:
            self._have.setdefault(gid.generation, set()).add(sender)
            return
        metadata = _received(row["image"], self._host.view.metadata)
        index, term = row["applied"]
        descriptor = Descriptor.from_wire(row["descriptor"])
        confirm = partial(self._host.send, sender, CONTROLLER, gid, None)
        mark, waits = self._replicas.marks.get(CONTROLLER_RANGE, 0), None
        if isinstance(replica, ControllerReplica):
            if replica.stopped:
                return  # it is being reinstalled
            if not replica.group.base_wanted:
                confirm()
                return
            waits = replica.applied_index
        use = use_of(descriptor, index, mark, waits)
        if use == "begin":
            self._replicas.begin_controller(descriptor, metadata, (index, term), campaign=False)
        elif use == "reinstall" and isinstance(replica, ControllerReplica):
            _check(metadata, replica.metadata)
            self._replicas.reinstall_controller(replica, metadata, (index, term), confirm)
        elif replica is not None:
            confirm()


def _received(image: dict[str, Any], known: Metadata) -> Metadata:
    metadata = Metadata.from_image(image)
    _check(metadata, known)
    return metadata


def _check(metadata: Metadata, known: Metadata) -> None:
    """Raise what a node raises for received metadata."""
    for _ in steps(metadata, known):
        pass
