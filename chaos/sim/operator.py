"""Who looks after a simulated cluster: asks for what the cluster must not decide by itself.

That a machine never comes back is known to nobody else. The operator removes it, once it is DEAD,
unless the controller gives its replicas to others by itself; and lets a node stay that drains where
replicas have nowhere else to go.
"""

from typing import TYPE_CHECKING, Final

from ...partitions import commands
from ...partitions.leaving import NEVER
from ...partitions.metadata import Metadata
from ...partitions.replacing import stranded
from .controller import ControllerReplica

if TYPE_CHECKING:
    from .world import World

_LOOKS_EVERY_S: Final = 0.5


class Operator:
    """Of one run."""

    def __init__(self, world: "World") -> None:
        self._world = world

    def start(self) -> None:
        """Look at the cluster now and then, to the end of the run."""
        self._world.scheduler.after(_LOOKS_EVERY_S, self._look)

    def _look(self) -> None:
        leader = self._world.operations.leader()
        if leader is not None:
            for node in sorted(self._world.nemesis.gone):
                self._replace(leader, leader.metadata, node)
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
