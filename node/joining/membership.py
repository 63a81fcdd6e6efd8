"""Register this node with the controller at each start, and end it if it is refused or fenced.

Each start has a boot number, one higher than before and durable, and a random process number. The
controller accepts a later boot. It refuses an older boot, or the same boot of another process: such
a data directory was copied or restored. A refused directory stays refused, because repeated starts
would raise its boot above that of the true node (x2.24). A process ends when it sees a later
process registered in its place: it is fenced (docs/design/ranges.md#joining). It also ends when
its node was removed.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from ...client.protocol.errors import Conflict, InvalidArgument, LognodeError, NotFound
from ...partitions.model import NodeRecord
from ...statemachine.meta import MetaStore
from ..directory import feature_level, meta_keys
from ..directory.data_directory import Identity
from ..serving.cluster_service import register_command
from .waits import Waits

_RETRY_S = 0.05
_QUIET_S = 2.0
"""An election of the controller takes as long, and is not worth a line in the log."""

log = logging.getLogger("lognode.joining")

Body = dict[str, Any]


def check_not_refused(meta: MetaStore) -> None:
    """Raise Conflict for a data directory that its cluster has refused.

    Raises Unsupported for a directory of a feature level that this program does not know.
    """
    reason = feature_level.refused(meta.get)
    if reason is not None:
        raise Conflict(
            f"the cluster has refused this data directory: {reason}; give the node an empty "
            "directory and --join"
        )


class Membership:
    """Registers this node, and ends it when another process has replaced it.

    `body` is the registration. `knows_cluster` returns whether a controller is known; `store`
    commits meta rows; `on_end` gets the error that ends this node."""

    def __init__(
        self,
        *,
        identity: Identity,
        process: int,
        body: Body,
        knows_cluster: Callable[[], bool],
        command: Callable[[Body], Awaitable[Body]],
        store: Callable[[dict[str, Any]], Awaitable[None]],
        on_end: Callable[[LognodeError], None],
    ) -> None:
        self.registered = False
        self._identity = identity
        self._process = process
        self._command = register_command(body)
        self._knows_cluster = knows_cluster
        self._send = command
        self._store = store
        self._on_end = on_end
        self._ending: asyncio.Future[None] | None = None

    async def register(self) -> None:
        """Tell the controller that this node is up, with its addresses and its boot."""
        waits = Waits(log, "the node waits for the controller to register it", quiet_s=_QUIET_S)
        while not self.registered:
            reason = "the node has not heard from the cluster yet"
            try:
                if self._knows_cluster():
                    await self._send(self._command)
                    self.registered = True
                    waits.end("the controller has registered the node")
                    return
            except LognodeError as error:
                if _is_for_good(error):
                    await self._end(error)
                    return
                if not error.retryable:
                    self._on_end(error)
                    return
                reason = error.message
            waits.tell(reason)
            await asyncio.sleep(_RETRY_S)

    def look(self, record: NodeRecord | None) -> None:
        """Check this node's record in the newest image, and end the node if it must end."""
        mine = self._identity
        if record is None or self._ending is not None:
            return
        if record.state == "REMOVED":
            error = Conflict(
                f"node {mine.node_id} was removed from the cluster; start a new node with "
                "an empty data directory and --join"
            )
            self._ending = asyncio.ensure_future(self._end(error))
            return
        if record.boot < mine.boot:
            return
        theirs = (record.incarnation, record.boot, record.process)
        if theirs != (mine.incarnation, mine.boot, self._process):
            error = Conflict(
                f"another process is registered as node {mine.node_id}, from "
                f"{record.address}, and the cluster refuses this process; never copy or "
                "restore a data directory"
            )
            self._ending = asyncio.ensure_future(self._end(error))

    async def _end(self, error: LognodeError) -> None:
        await self._store({meta_keys.REFUSED: error.message})
        self._on_end(error)


def _is_for_good(error: LognodeError) -> bool:
    """Return whether the cluster refuses the data directory itself.

    It does so if the directory is a copy, its node was removed, or its node is unknown. A refusal
    of an operator's setting, such as an address or a zone, ends when the setting is corrected."""
    if isinstance(error, InvalidArgument):
        return error.fields.get("what") in ("incarnation", "node")
    return isinstance(error, NotFound)
