"""Operations on tokens: create, list, revoke."""

import heapq
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import msgpack

from ...client.accepting.request import Room
from ...client.protocol import Operation, cluster, limits
from ...client.protocol.errors import Conflict, Unsupported
from ...client.protocol.scopes import from_rows
from ...partitions import commands, levels
from ...partitions.metadata import Metadata

log = logging.getLogger("lognode.access")
Body = dict[str, Any]
Handler = Callable[[Body], Coroutine[Any, None, Body]]
PaidHandler = Callable[[Body, Room], Coroutine[Any, None, Body]]


class TokenService:
    """Serves the operations on tokens.

    `command` has the controller commit a command; `refresh` brings this node's metadata up to date.
    `proves_nodes`: whether nodes of the cluster prove that they are nodes."""

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
            cluster.TOKEN_REVOKE: self.revoke,
        }
        self.paid_handlers: dict[Operation, PaidHandler] = {cluster.TOKEN_LIST: self.list}

    async def create(self, body: Body) -> Body:
        """Create a token. The answer has the first metadata version with the token.

        Raises Conflict, LimitExceeded, InvalidArgument, and Unsupported for patterns and for keys
        for SCRAM below their feature level.
        """
        if not self._proves_nodes:
            raise Conflict(
                "the nodes of this cluster do not prove their identity: any client could act "
                "as a node, and tokens would protect nothing. Start every node with "
                "--secret-file or with TLS, and then create tokens"
            )
        await self._check_level(body)
        answer = await self._command({"op": commands.CREATE_TOKEN, **body})
        fields = {"token": body["id"], "principal": body["principal"]}
        log.info("token created", extra={"fields": fields})
        await self._refresh()
        return answer

    async def _check_level(self, body: Body) -> None:
        """Raise Unsupported where the cluster's level has no scopes with patterns, or no keys for
        SCRAM: a controller of an earlier version would leave these out."""

        def check() -> None:
            level = self._metadata().feature_level
            levels.check_pattern_scopes(level, from_rows(body))
            levels.check_scram(level, body.get("scram"))

        try:
            check()
        except Unsupported:
            await self._refresh()  # the level may have been raised at another node
            check()

    async def list(self, body: Body, room: Room) -> Body:
        """Return a page of the tokens, by id and without their digests.

        See the table of operations. Pages go by id, so that a token that is created or revoked
        between two pages does not move the other tokens."""
        await self._refresh()
        await room()
        tokens, after = self._metadata().tokens, body["after"] or ""
        limit = min(body["limit"], limits.tokens_page_max)
        ids = heapq.nsmallest(limit + 1, (each for each in tokens if each > after))
        rows: list[Body] = []
        size = 0
        for token_id in ids[:limit]:
            row = tokens[token_id].to_row()
            rows.append(row)
            size += len(msgpack.packb(row))
            if size >= limits.tokens_page_bytes:
                break
        following = ids[len(rows) - 1] if len(rows) < len(ids) else None
        return {"tokens": rows, "next": following}

    async def revoke(self, body: Body) -> Body:
        """Revoke a token. Raises NotFound, Conflict."""
        answer = await self._command({"op": commands.REVOKE_TOKEN, "id": body["id"]})
        log.info("token revoked", extra={"fields": {"token": body["id"]}})
        await self._refresh()
        return answer
