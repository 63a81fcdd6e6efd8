"""Append records for the cluster itself, at the leader of the range, on this node or another.

A node has no client of its own: it has the metadata, and a link to every other node. An append is
tried once; the caller repeats it. No producer numbers the records of `append`. So a repetition
after an unknown outcome may append its records twice, and each record needs its own id. `send`
takes a batch whose caller names the producer.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from ...client.connection import Connection
from ...client.protocol.appends import APPEND
from ...client.protocol.cluster import CREATE_LOG
from ...client.protocol.errors import (
    LogNotFound,
    NotLeader,
    Timeout,
    Unavailable,
    from_wire,
)
from ...client.protocol.records import encode_batch
from ...partitions.model import Descriptor
from ..metadata.view import View

_TIMEOUT_MS: Final = 5_000

Body = dict[str, Any]
KeyedValue = tuple[bytes, bytes]


class OwnAppends:
    """Appends for this node. `serve` appends on this node, `connection` returns the link to another
    node, `create` creates a log."""

    def __init__(
        self,
        *,
        node_id: int,
        view: View,
        connection: Callable[[int], Connection | None],
        serve: Callable[[Body], Awaitable[Body]],
        create: Callable[[Body], Awaitable[Body]],
    ) -> None:
        self._node_id = node_id
        self._view = view
        self._connection = connection
        self._serve = serve
        self._create = create

    async def append(self, name: str, retention_ms: int, records: Sequence[KeyedValue]) -> None:
        """Append the records to the log; create the log first if it is missing.

        Raises LognodeError; some of the records may then be in the log.
        """
        try:
            log_id = self._view.metadata.log_named(name).log_id
        except LogNotFound:
            created = await self._create(
                CREATE_LOG.request.check(
                    {"name": name, "ranges": 1, "retention_ms": retention_ms, "exist_ok": True}
                )
            )
            log_id = created["log"]
        spans = [each for each in self._view.metadata.ranges.values() if each.log_id == log_id]
        for range_ in spans:
            some = [record for record in records if record[0] in range_.span]
            if some:
                await self._append(range_, some)
        if not spans:
            raise Unavailable(f"log {name!r} has no range yet", reason="creating")

    async def send(self, range_: Descriptor, batch: bytes) -> None:
        """Append an encoded batch to a range, once.

        A batch of a producer may be sent again after an unknown outcome. Raises LognodeError.
        """
        leader = self._view.leader(range_.range_id, range_.generation)
        if leader is None:
            raise NotLeader(f"range {range_.range_id} has no leader", hint=None)
        body = APPEND.request.check(
            {"range": range_.range_id, "generation": range_.generation, "batches": [batch],
             "timeout_ms": _TIMEOUT_MS}
        )  # fmt: skip
        (result,) = (await self._ask(leader, body))["results"]
        if result["status"] == "error":
            raise from_wire(result["error"])

    async def _append(self, range_: Descriptor, records: Sequence[KeyedValue]) -> None:
        batch = encode_batch(
            [key for key, _ in records], [value for _, value in records],
            producer=0, epoch=0, low=1, numbers=1,
        )  # fmt: skip
        await self.send(range_, batch)

    async def _ask(self, leader: int, body: Body) -> Body:
        if leader == self._node_id:
            try:
                async with asyncio.timeout(_TIMEOUT_MS / 1000):
                    return await self._serve(body)
            except TimeoutError:
                raise Timeout(
                    f"range {body['range']} has not stored the append within "
                    f"{_TIMEOUT_MS / 1000:g} s"
                ) from None
        connection = self._connection(leader)
        if connection is None:
            raise Unavailable(f"this node has no link to node {leader}")
        deadline = asyncio.get_running_loop().time() + _TIMEOUT_MS / 1000
        answer: Body = await connection.request(APPEND, body, deadline=deadline)
        return answer
