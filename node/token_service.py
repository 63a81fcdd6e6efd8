"""Operations on tokens: create, list, revoke."""

import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from ..client.errors import Conflict
from ..client.protocol import Operation, cluster
from ..partitions import commands
from ..partitions.metadata import Metadata
from .slices import in_slices

log = logging.getLogger("lognode.access")
Body = dict[str, Any]
Handler = Callable[[Body], Coroutine[Any, None, Body]]


class TokenService:
    """`command` has the controller commit a command, `refresh` brings this node's metadata up to
    date; `proves_nodes`: whether a node of the cluster proves that it is one."""

    def __init__(
        self,
        *,
        command: Callable[[Body], Awaitable[Body]],
        refresh: Callable[[], Awaitable[None]],
        metadata: Callable[[], Metadata],
        proves_nodes: bool,
    ) -> None:
        self._command = command
        self._refresh = refresh
        self._metadata = metadata
        self._proves_nodes = proves_nodes
        self.handlers: dict[Operation, Handler] = {
            cluster.TOKEN_CREATE: self.create,
            cluster.TOKEN_LIST: self.list,
            cluster.TOKEN_REVOKE: self.revoke,
        }

    async def create(self, body: Body) -> Body:
        """Create a token. The answer has the version of the metadata that has it.

        Raises Conflict, LimitExceeded, InvalidArgument.
        """
        if not self._proves_nodes:
            raise Conflict(
                "tokens would protect nothing: whoever says that it is a node is believed here; "
                "start every node with --secret-file, or with TLS, and then create tokens"
            )
        answer = await self._command({"op": commands.CREATE_TOKEN, **body})
        fields = {"token": body["id"], "principal": body["principal"]}
        log.info("token created", extra={"fields": fields})
        await self._refresh()
        return answer

    async def list(self, _: Body) -> Body:
        """Return all tokens by the name of their principals, without their digests."""
        await self._refresh()
        records = self._metadata().tokens.values()
        by_name = sorted(records, key=lambda each: (each.principal, each.created_ms))
        return {"tokens": await in_slices(record.to_row() for record in by_name)}

    async def revoke(self, body: Body) -> Body:
        """Revoke a token. Raises NotFound, Conflict."""
        answer = await self._command({"op": commands.REVOKE_TOKEN, "id": body["id"]})
        log.info("token revoked", extra={"fields": {"token": body["id"]}})
        await self._refresh()
        return answer
