"""Operations on named producers (open, list, delete), and the expiry of unused names.

Only the members of the controller hold the records of names (`partitions.producers`), so that
another node forwards the question to the leader.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

from ...client.accepting.request import Room
from ...client.protocol import Operation, cluster, limits, peers
from ...client.protocol.errors import LognodeError, NotLeader
from ...partitions import commands, producers
from ..replicas.host import Host
from ..runtime.slices import in_slices

_LOOK_S: Final = 60.0
_NUMBERS_A_PAGE: Final = 10_000
"""Producer numbers that one page goes through, including numbers of forgotten names."""

log = logging.getLogger("lognode.producers")
Body = dict[str, Any]
Handler = Callable[[Body], Coroutine[Any, None, Body]]
PaidHandler = Callable[[Body, Room], Coroutine[Any, None, Body]]


class ProducerService:
    """Serves the operations on named producers.

    `command` has the controller commit a command. `at_leader` asks the controller's leader an
    operation; its last argument answers if this node is the leader."""

    def __init__(
        self,
        *,
        host: Host,
        command: Callable[[Body], Awaitable[Body]],
        at_leader: Callable[[Operation, Body, Handler], Awaitable[Body]],
        wall_ms: Callable[[], int],
    ) -> None:
        self._host = host
        self._command = command
        self._at_leader = at_leader
        self._wall_ms = wall_ms
        self.handlers: dict[Operation, Handler] = {
            cluster.PRODUCER_OPEN: self.open,
            cluster.PRODUCER_DELETE: self.delete,
        }
        self.paid_handlers: dict[Operation, PaidHandler] = {cluster.PRODUCERS: self.list}

    async def open(self, body: Body) -> Body:
        """Return a producer id: with a name, at a higher epoch; without, a block of anonymous ids.

        `owner` is the principal that asks, "" while clients have no names. `allowed` is how many
        names its quota allows, 0 for no limit."""
        name = body["name"]
        if name is None:
            return await self._command({"op": commands.OPEN_ANONYMOUS, "owner": body["owner"]})
        return await self._command(
            {
                "op": commands.OPEN_NAMED,
                "name": name,
                "owner": body["owner"],
                "allowed": body["allowed"],
            }
        )

    async def delete(self, body: Body) -> Body:
        """Forget a name. Raises NotFound, InvalidArgument."""
        return await self._command({"op": commands.DELETE_PRODUCER, "name": body["name"]})

    async def list(self, body: Body, room: Room) -> Body:
        """Return a page of the names; see the table of operations."""
        await room()
        return await self._at_leader(peers.PRODUCERS_PAGE, body, self.page)

    async def peer_page(self, _: int, body: Body) -> Body:
        """Return a page to another node. Raises NotLeader."""
        return await self.page(body)

    async def page(self, body: Body) -> Body:
        """Return the names after a number. Raises NotLeader unless this node is the leader."""
        after, limit = body["after"], min(body["limit"], limits.producers_page_max)
        replica = self._host.controller
        if replica is None:
            raise NotLeader("this node is not a member of the controller", hint=None)
        await replica.ready()
        metadata = replica.metadata
        end = metadata.producer_ids["number"]
        found: list[Body] = []
        number = after
        for number in range(after + 1, min(end, after + 1 + _NUMBERS_A_PAGE)):
            named = metadata.producers.get(number)
            if named is not None:
                found.append({
                    "name": named.name, "id": named.producer_id, "epoch": named.epoch,
                    "opened_ms": named.opened_ms or None, "owner": named.owner,
                })  # fmt: skip
                if len(found) >= limit:
                    break
        return {"producers": found, "next": number if number + 1 < end else None}

    async def expire(self) -> None:
        """Forget names that nobody has opened for long, while this node leads. Never returns."""
        while True:
            await asyncio.sleep(_LOOK_S)
            try:
                await self.expire_once()
            except LognodeError as error:
                log.info("expiry put off", extra={"fields": {"error": str(error)}})

    async def expire_once(self) -> None:
        """Forget all expired names, if this node is the controller's leader."""
        replica = self._host.controller
        if replica is None or not replica.leads:
            return
        before_ms = max(0, self._wall_ms() - limits.producer_name_expiry_ms)
        metadata = replica.metadata
        names = list(metadata.producers.values())
        looked = await in_slices(
            named.number if producers.is_expired(metadata, named, before_ms) else 0
            for named in names
        )
        expired = [number for number in looked if number]
        for at in range(0, len(expired), limits.producers_page_max):
            numbers = expired[at : at + limits.producers_page_max]
            await self._command(
                {"op": commands.EXPIRE_PRODUCERS, "numbers": numbers, "before_ms": before_ms}
            )
        if expired:
            log.info("names of producers expired", extra={"fields": {"count": len(expired)}})
