"""What a member of the controller does beside other nodes: its replica is its image."""

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from ..access.entrance import Entrance
from ..audit.auditing import Auditing
from ..control.controller_driver import ControllerDriver
from ..metadata.view import View
from ..metrics import Metrics
from ..replicas.controller_replica import ControllerReplica
from ..replicas.host import Host
from ..runtime.supervision import supervised
from ..runtime.sync_thread import SyncThread


class ControllerMember:
    """Acts on the controller's replicas of this node, while there are any.

    `spawn` begins a part that runs until the node stops.
    """

    def __init__(
        self,
        *,
        cluster_id: str,
        host: Host,
        view: View,
        driver: ControllerDriver,
        auditing: Auditing,
        entrance: Entrance,
        sync: SyncThread,
        metrics: Metrics,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self._cluster_id = cluster_id
        self._host = host
        self._view = view
        self._driver = driver
        self._auditing = auditing
        self._entrance = entrance
        self._sync = sync
        self._metrics = metrics
        self._spawn = spawn

    def began(self, replica: ControllerReplica) -> None:
        """Follow the replica, and do the controller's work while the replica leads."""
        self._view.follow_replica(replica.metadata)
        self._auditing.watch(replica)
        self._spawn(supervised("driver", partial(self._driver.run, replica), self._metrics))
        if not replica.metadata.cluster_id:
            self._spawn(self._entrance.found(replica, self._cluster_id, self._sync.run))

    def changed(self) -> None:
        """Take what the controller's replica has applied."""
        controller = self._host.controller
        if controller is not None:
            self._view.follow_replica(controller.metadata)
        self._driver.wake()
