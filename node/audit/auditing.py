"""Put together and run a node's records for the cluster (X7): its audit, and the use by tenants.

Audit records are always lines of the node's log. They also go to the log `_audit` while the cluster
knows its clients, by tokens or by TLS: only then does a record name somebody. The log `_usage` has
what tenants have used.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from types import ModuleType
from typing import Any, Final, cast

from ...client.connection import Connection
from ...client.protocol.invariants import invariant
from ..directory.data_directory import Identity
from ..metadata.view import View
from ..quota.quotas import Quotas
from ..replicas.controller_replica import ControllerReplica
from . import audit_trail, usage_trail
from .audit import Audit
from .audit_trail import AuditTrail
from .own_appends import OwnAppends
from .reserved import Reserved
from .system_log import SystemLog
from .usage_trail import UsageTrail

_LOOK_S: Final = 5.0
_LAST_S: Final = 1.0

Body = dict[str, Any]
Serve = Callable[[Body], Awaitable[Body]]


class Auditing:
    """The audit and usage records of a node. `connection` returns the link to another node,
    `create` creates a log. `is_known` returns whether clients are known here."""

    def __init__(
        self,
        *,
        identity: Identity,
        view: View,
        connection: Callable[[int], Connection | None],
        create: Serve,
        quotas: Quotas,
        wall_ms: Callable[[], int],
        is_known: Callable[[], bool],
    ) -> None:
        own = self.appends = OwnAppends(
            node_id=identity.node_id, view=view, connection=connection,
            serve=self._append_here, create=create,
        )  # fmt: skip
        self._serve: Serve | None = None
        self._node = identity.node_id
        self.reserved = Reserved(lambda: view.metadata)
        self._log = _log_of(audit_trail, own)
        self._usage_log = _log_of(usage_trail, own)
        self._usage = UsageTrail(
            identity.node_id, identity.boot, quotas, wall_ms, self._usage_log.put
        )
        trail = AuditTrail(
            identity.node_id, identity.boot, wall_ms, self._log.put, is_known=is_known
        )
        self.audit = Audit(time.monotonic, trail.emit)

    def append_with(self, serve: Serve) -> None:
        """Set what serves an append on this node, before `run`."""
        self._serve = serve

    async def _append_here(self, body: Body) -> Body:
        invariant(self._serve is not None, "the records of a node are written before it serves")
        return await cast("Serve", self._serve)(body)

    def watch(self, replica: ControllerReplica) -> None:
        """Record the commands that this replica of the controller proposes."""
        replica.tell_commands(partial(self.audit.commanded, self._node))

    async def run(self) -> None:
        """Write to the logs, and emit counted refusals, until cancelled."""
        async with asyncio.TaskGroup() as parts:
            for part in (self._log.run(), self._usage_log.run(), self._usage.run(), self._look()):
                parts.create_task(part)

    async def finish(self) -> None:
        """Write what is not recorded yet, within a second, when the node stops in order."""
        self.audit.look(at_end=True)
        self._usage.write()
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST_S):
                await asyncio.gather(self._log.written(), self._usage_log.written())

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            self.audit.look()


def _log_of(trail: ModuleType, own: OwnAppends) -> SystemLog:
    return SystemLog(trail.NAME, partial(own.append, trail.NAME, trail.RETENTION_MS))
