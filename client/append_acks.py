"""The batches of a consumer that an append acknowledges: one request for both, applied or refused
as one.

The request goes to a leader that knows what the consumer has, like every request that settles
batches. A repetition carries the same record numbers and the same tokens. The range knows the
numbers: it answers a repetition like the first attempt, although its tokens are settled.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any

from .cluster import Body, Cluster
from .group_held import Held, Unit
from .protocol.errors import BatchSpansRanges, LognodeError, from_wire
from .protocol.groups import GROUP_APPEND
from .routing import Range

if TYPE_CHECKING:
    from .appends import AppendBatch


class AppendAcks:
    """What one append acknowledges: all entries of these batches that are not acknowledged.

    `common` is what every request of the consumer has. `claimed` waits until a leader knows what
    the consumer has, and returns the leader's node. `acked` is told of each batch and position when
    the append is applied, `lost` of each unit and token that the consumer no longer has.
    """

    def __init__(
        self, common: Body, batches: Sequence[Held], *,
        claimed: Callable[[Range, int], Awaitable[int]],
        acked: Callable[[Held, int], None], lost: Callable[[Unit, int], None],
    ) -> None:  # fmt: skip
        self._common = common
        self._claimed = claimed
        self._acked = acked
        self._lost = lost
        self._batches = [(held, held.last_seq + 1) for held in batches]
        self._rows = [[held.key, held.token, held.first_seq, held.last_seq + 1] for held in batches]
        self.keys = [held.key for held in batches]

    async def claimed(self, known: Range, node: int, until: float) -> int:
        """Return the node to ask, which then knows what the consumer has."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                return await self._claimed(known, node)
        return node

    async def ask(
        self, cluster: Cluster, known: Range, node: int, batch: "AppendBatch", grant: Body,
        until: float,
    ) -> dict[Any, Any]:  # fmt: skip
        """Make one attempt; return the result of the batch. Raises the error of the attempt."""
        body = {**self._common, "acks": self._rows, "batch": batch.data, **grant}
        answer = await cluster.ask(known, GROUP_APPEND, body, until, node=node)
        rows, tokens = answer["refused"], answer["tokens"]
        refused = set(zip((key for key, *_ in rows), tokens or repeat(0), strict=False))
        for held, _ in self._batches:
            if (held.key, held.token if tokens else 0) in refused:
                self._lost(held.unit, held.token)
        result: dict[Any, Any] = answer["result"]
        if result.get("status") == "error":
            raise from_wire(result.get("error"))
        return result

    def settled(self, batch: "AppendBatch") -> None:
        """Take the outcome of the append."""
        if batch.error is None and batch.reply is not None:
            for held, position in self._batches:
                self._acked(held, position)

    def spans(self) -> LognodeError:
        """Return the error of records and batches that are not in one range."""
        return BatchSpansRanges(
            "the records and the acknowledged batches have keys of several ranges; one range "
            "applies both in one step. Append with a named producer that numbers the records by "
            "the entries, and acknowledge the batches afterwards"
        )
