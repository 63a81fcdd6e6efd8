"""Operations on the names of consumer groups: create, delete, list.

`group_service` serves the consumers. The controller keeps the groups; see `partitions.groups`.
"""

import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from ...client.accepting.request import Room
from ...client.protocol import Operation, key_partitions
from ...client.protocol.errors import LogNotFound, Unsupported
from ...client.protocol.groups import GROUP_CREATE, GROUP_DELETE, GROUP_LIST
from ...partitions import commands, groups
from ...partitions.metadata import Metadata
from ...partitions.model import LogRecord

log = logging.getLogger("lognode.groups")
Body = dict[str, Any]
Handler = Callable[[Body], Coroutine[Any, None, Body]]
PaidHandler = Callable[[Body, Room], Coroutine[Any, None, Body]]


class GroupCatalog:
    """Serves the operations on names of groups.

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
            GROUP_CREATE: self.create,
            GROUP_DELETE: self.delete,
        }
        self.paid_handlers: dict[Operation, PaidHandler] = {GROUP_LIST: self.list}

    async def create(self, body: Body) -> Body:
        """Create a group, or answer with the equal group that exists.

        Raises LogNotFound, Unsupported, InvalidArgument, LimitExceeded; Conflict if the group
        exists with other options.
        """
        record = await self._known_log(body["log"])
        groups.check_new(body, record.hierarchy)
        if record.policy.kafka_partitions is not None:
            raise key_partitions.unsupported("consumer groups of lognode")
        answer = await self._command({"op": commands.CREATE_GROUP, **body})
        if answer["created"]:
            told = {"log": body["log"], "name": body["name"], "group": answer["id"]}
            log.info("group created", extra={"fields": told})
        await self._refresh()  # the next request of the consumer may come to this node
        return answer

    async def delete(self, body: Body) -> Body:
        """Delete a group. Raises LogNotFound, NotFound."""
        answer = await self._command({"op": commands.DELETE_GROUP, **body})
        told = {"log": body["log"], "name": body["name"], "group": answer["id"]}
        log.info("group deleted", extra={"fields": told})
        await self._refresh()
        return answer

    async def list(self, body: Body, room: Room) -> Body:
        """Return the groups of a log, or one group, as current as the controller leader's.

        Raises LogNotFound.
        """
        await self._refresh()
        await room()
        metadata = self._metadata()
        found = metadata.groups.of_log(metadata.log_named(body["log"]).log_id)
        wanted = body["name"]
        return {
            "groups": [record.to_body() for record in found if wanted in (None, record.name)],
        }

    async def _known_log(self, name: str) -> LogRecord:
        """Return the log, once the cluster's level has groups. This node may know neither yet."""
        try:
            return self._log(name)
        except (LogNotFound, Unsupported):
            await self._refresh()
        return self._log(name)

    def _log(self, name: str) -> LogRecord:
        metadata = self._metadata()
        groups.check_level(metadata.feature_level)
        return metadata.log_named(name)
