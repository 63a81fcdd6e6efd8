"""Operations on the names of views: register, delete, list.

`view_service` serves the waits. The controller keeps the views; see `partitions.views`.
"""

import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from ...client.accepting.request import Room
from ...client.protocol import Operation
from ...client.protocol.errors import Unsupported
from ...client.protocol.views import VIEW_DELETE, VIEW_LIST, VIEW_REGISTER
from ...partitions import commands, views
from ...partitions.metadata import Metadata

log = logging.getLogger("lognode.views")
Body = dict[str, Any]
Handler = Callable[[Body], Coroutine[Any, None, Body]]
PaidHandler = Callable[[Body, Room], Coroutine[Any, None, Body]]


class ViewCatalog:
    """Serves the operations on names of views.

    `command` has the controller commit a command; `refresh` brings this node's metadata up to date.
    """

    def __init__(
        self,
        *,
        command: Callable[[Body], Awaitable[Body]],
        refresh: Callable[[], Awaitable[None]],
        metadata: Callable[[], Metadata],
    ) -> None:
        self._command = command
        self._refresh = refresh
        self._metadata = metadata
        self.handlers: dict[Operation, Handler] = {
            VIEW_REGISTER: self.register,
            VIEW_DELETE: self.delete,
        }
        self.paid_handlers: dict[Operation, PaidHandler] = {VIEW_LIST: self.list}

    async def register(self, body: Body) -> Body:
        """Register a view, or answer with the equal view that exists.

        Raises LogNotFound, NotFound, Unsupported, InvalidArgument, LimitExceeded; Conflict if the
        view exists with other options.
        """
        views.check_new(body)
        await self._check_level()
        answer = await self._command({"op": commands.REGISTER_VIEW, **body})
        told = {"log": body["log"], "name": body["name"], "view": answer["id"]}
        log.info("view registered", extra={"fields": told})
        await self._refresh()
        return answer

    async def delete(self, body: Body) -> Body:
        """Delete a view. Raises LogNotFound, NotFound."""
        answer = await self._command({"op": commands.DELETE_VIEW, **body})
        told = {"log": body["log"], "name": body["name"], "view": answer["id"]}
        log.info("view deleted", extra={"fields": told})
        await self._refresh()
        return answer

    async def list(self, body: Body, room: Room) -> Body:
        """Return the views of a log, as current as the controller leader's. Raises LogNotFound."""
        await self._refresh()
        await room()
        metadata = self._metadata()
        found = metadata.views.of_log(metadata.log_named(body["log"]).log_id)
        return {"views": [views.body_of(metadata, record) for record in found]}

    async def _check_level(self) -> None:
        """Raise Unsupported below the level of views. This node may not know the level yet."""
        try:
            views.check_level(self._metadata().feature_level)
        except Unsupported:
            await self._refresh()
            views.check_level(self._metadata().feature_level)
