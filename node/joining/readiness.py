"""Say whether the node is ready to serve, for `/readyz`.

A node that has data and runs short of disk stays ready: its readers and what frees space need it. A
node without entries that is short of disk from the beginning has nothing to serve, and every append
to it would wait in vain.
"""

import time

from ..access.entrance import Entrance
from ..control.heartbeat import Heartbeat
from ..directory.disk_room import DiskRoom, Level
from ..replicas.host import Host
from ..runtime.shutdown import Shutdown
from .membership import Membership

_SILENT_S = 5.0


class Readiness:
    """Whether this node has joined, hears from the controller, and has room for its first
    entries."""

    def __init__(
        self,
        *,
        shutdown: Shutdown,
        membership: Membership,
        entrance: Entrance,
        heartbeat: Heartbeat,
        room: DiskRoom,
        host: Host,
    ) -> None:
        self._room = room
        self._host = host
        self._shutdown = shutdown
        self._membership = membership
        self._entrance = entrance
        self._heartbeat = heartbeat

    def lacking(self) -> str | None:
        """Return why the node is not ready; None: the node is ready."""
        if self._shutdown.is_asked:
            return "stopping"
        if not (self._membership.registered and self._entrance.accesses.is_ready):
            return "the node is not registered with the controller yet"
        silent_s = time.monotonic() - self._heartbeat.last_answer_at
        if silent_s > _SILENT_S:
            return f"the controller has not answered for {silent_s:.0f} s"
        room = self._room
        if room.level is not Level.AMPLE and not self._has_entries():
            return (
                f"the disk has {room.free} free bytes, and the node refuses appends below "
                f"{room.reserve}: free space, or give a smaller --disk-reserve-bytes"
            )
        return None

    def _has_entries(self) -> bool:
        return any(replica.state.next_seq > 1 for replica in self._host.ranges())
