"""Say whether the node is ready to serve, for `/readyz`."""

import time

from ..access.entrance import Entrance
from ..control.heartbeat import Heartbeat
from ..runtime.shutdown import Shutdown
from .membership import Membership

_SILENT_S = 5.0


class Readiness:
    """Whether this node has joined, and hears from the controller."""

    def __init__(
        self,
        *,
        shutdown: Shutdown,
        membership: Membership,
        entrance: Entrance,
        heartbeat: Heartbeat,
    ) -> None:
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
        return None
