"""While this node drains, it hands over every group it leads.

So its replicas leave as followers. The controller's leader moves them once no group is left that
another node could lead, or after a while (`partitions/leaving.py`).
"""

import contextlib

from ...client.protocol.errors import LognodeError
from ..metadata.view import View
from ..replicas.host import Host
from ..replicas.replica import Replica
from .handover import Handover

_PERIOD_S = 1.0


class Draining:
    """Runs on every node; acts while the node's record says DRAINING."""

    def __init__(self, *, node_id: int, host: Host, view: View, handover: Handover) -> None:
        self._node_id = node_id
        self._host = host
        self._view = view
        self._handover = handover
        self.leads_left: int | None = None
        """Groups that this node still leads and others could lead, after an attempt; None: not
        draining."""

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await self.look()
            await self._view.changed(_PERIOD_S)

    async def look(self) -> None:
        """Hand over the groups led here, while this node drains."""
        if not self._drains:
            self.leads_left = None
            return
        for replica in [r for r in self._host.groups.values() if r.leads]:
            able = self._able(replica)
            if able and self._drains:
                with contextlib.suppress(LognodeError):  # the next look tries again
                    await self._handover.spare(replica, able, why="this node drains")
        led = [r for r in self._host.groups.values() if r.leads and self._able(r)]
        self.leads_left = len(led) if self._drains else None

    @property
    def _drains(self) -> bool:
        record = self._view.metadata.nodes.get(self._node_id)
        return record is not None and record.state == "DRAINING"

    def _able(self, replica: Replica) -> set[int]:
        """Return the replica's members on nodes that stay."""
        active = {node.node_id for node in self._view.metadata.active_nodes()}
        return active.intersection(replica.members) - {self._node_id}
