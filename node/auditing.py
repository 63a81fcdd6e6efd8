"""The audit of a node: its parts, put together and kept going (X7).

Records are always lines of the node's log. They go to the log `_audit` as well while the cluster
knows its clients, by tokens or by TLS: only then does a record name somebody.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

from ..client.connection import Connection
from .audit import Audit
from .audit_trail import NAME, RETENTION_MS, AuditTrail
from .controller_replica import ControllerReplica
from .data_directory import Identity
from .own_appends import OwnAppends
from .reserved import Reserved
from .system_log import SystemLog
from .view import View

_LOOK_S: Final = 5.0

Body = dict[str, Any]
Serve = Callable[[Body], Awaitable[Body]]


class Auditing:
    """`connection` gives the link to another node, `create` creates a log; `is_known` says whether
    clients are known here. `append` serves an append on this node; it is set before `run`."""

    append: Serve

    def __init__(
        self,
        *,
        identity: Identity,
        view: View,
        connection: Callable[[int], Connection | None],
        create: Serve,
        wall_ms: Callable[[], int],
        is_known: Callable[[], bool],
    ) -> None:
        own = OwnAppends(
            node_id=identity.node_id, view=view, connection=connection,
            serve=lambda body: self.append(body), create=create,
        )  # fmt: skip
        self._node = identity.node_id
        self.reserved = Reserved(lambda: view.metadata)
        self._log = SystemLog(NAME, partial(own.append, NAME, RETENTION_MS))
        trail = AuditTrail(
            identity.node_id, identity.boot, wall_ms, self._log.put, is_known=is_known
        )
        self.audit = Audit(time.monotonic, trail.emit)

    def watch(self, replica: ControllerReplica) -> None:
        """Record the commands that are proposed by this replica of the controller."""
        replica.on_command = partial(self.audit.commanded, self._node)

    async def run(self) -> None:
        """Write to the log, and tell of what was counted, until cancelled."""
        writing = asyncio.ensure_future(self._log.run())
        try:
            while not writing.done():
                await asyncio.wait((writing,), timeout=_LOOK_S)
                self.audit.look()
            await writing
        finally:
            writing.cancel()
