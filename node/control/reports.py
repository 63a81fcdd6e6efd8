"""Reports of a member to the controller's leader on the progress of an operation on a range."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from ...client.connection import Connection
from ...client.protocol.errors import Unavailable
from ...client.protocol.peers import REPORT
from ...partitions.facts import Facts
from ..metadata.view import View
from ..replicas.host import Host

_TIMEOUT_S: Final = 5.0

Report = dict[str, Any]


class Reports:
    """Both sides of a report. `on_news` is called after a report was taken here."""

    def __init__(
        self,
        *,
        node_id: int,
        host: Host,
        view: View,
        connection: Callable[[int], Connection | None],
        facts: Facts,
        on_news: Callable[[], None],
    ) -> None:
        self._node_id = node_id
        self._host = host
        self._view = view
        self._connection = connection
        self._facts = facts
        self._on_news = on_news

    async def send(self, report: Report) -> None:
        """Report to the controller's leader, here or elsewhere. Raises Unavailable, Timeout."""
        node = self._view.controller_leader()
        if node == self._node_id:
            await self.take(node, report)
            return
        connection = None if node is None else self._connection(node)
        if connection is None:
            raise Unavailable("this node has no link to the controller's leader")
        deadline = asyncio.get_running_loop().time() + _TIMEOUT_S
        await connection.request(REPORT, report, deadline=deadline)

    async def take(self, node: int, report: Report) -> dict[str, Any]:
        """Keep a member's report. Raises InvalidArgument."""
        replica = self._host.controller
        under_way = () if replica is None else replica.metadata.operations
        self._facts.take(node, report, asyncio.get_running_loop().time(), under_way)
        self._on_news()
        return {}
