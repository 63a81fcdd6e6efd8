"""Small appends of a turn of the loop to one range, in one request.

Some Kafka clients send the batch of each partition in a request of its own, so a hundred small
batches come for the partitions of a range. A request to the range costs more than such a batch. The
batches that a turn of the loop gives for a range, under the same grant, go in one request. Batches
keep their order, and each has a result of its own.

A request that fails may have appended some of its batches. Each batch then goes alone: the range
may have split meanwhile, and the numbers of the producer make a repetition safe (S8).
"""

import asyncio
from copy import copy
from dataclasses import dataclass, field
from typing import Any, Final

from ...client.cluster import Cluster
from ...client.durations import milliseconds
from ...client.protocol import limits
from ...client.protocol.appends import APPEND
from ...client.protocol.errors import LognodeError, RemoteProtocolError, bare
from ...client.routing import Range

BYTES_MAX: Final = 64 * limits.KIB
"""Bytes of a request, packed or unpacked: the range checks as many at once."""

Outcome = dict[str, Any] | LognodeError
"""The result of a batch, or the error of its request."""


@dataclass(slots=True)
class _Joined:
    """Batches that go together."""

    deadline: float
    batches: list[bytes] = field(default_factory=list)
    waiting: list["asyncio.Future[Outcome]"] = field(default_factory=list)
    size: int = 0


class JoinedAppends:
    """Joins the appends of one client of the cluster. All calls run on the loop's thread."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._open: dict[tuple[Range, bytes | None], _Joined] = {}
        """The batches of this turn."""
        self._requests: set[asyncio.Task[None]] = set()

    def append(
        self, known: Range, data: bytes, size: int, grant: bytes | None, deadline: float
    ) -> "asyncio.Future[Outcome]":
        """Send a batch of at most `BYTES_MAX` bytes to a range with the next request; return its
        outcome. The request ends at the first deadline of its batches."""
        loop, key = asyncio.get_running_loop(), (known, grant)
        joined = self._open.get(key)
        if (
            joined is None
            or joined.size + size > BYTES_MAX
            or len(joined.batches) == limits.request_batches_max
        ):
            joined = self._open[key] = _Joined(deadline)
            loop.call_soon(self._send, key, joined)
        outcome: asyncio.Future[Outcome] = loop.create_future()
        joined.deadline = min(joined.deadline, deadline)
        joined.batches.append(data)
        joined.waiting.append(outcome)
        joined.size += size
        return outcome

    def _send(self, key: tuple[Range, bytes | None], joined: _Joined) -> None:
        if self._open.get(key) is joined:
            del self._open[key]
        task = asyncio.create_task(self._request(*key, joined))
        self._requests.add(task)
        task.add_done_callback(self._requests.discard)

    async def _request(self, known: Range, grant: bytes | None, joined: _Joined) -> None:
        """Make one attempt, and tell all who wait."""
        left_s = max(0.001, joined.deadline - self._cluster.now())
        body = {"batches": joined.batches, "timeout_ms": milliseconds(left_s), "grant": grant}
        outcomes: list[Outcome] = []
        try:
            answer = await self._cluster.ask(
                known, APPEND, body, joined.deadline, node=self._cluster.target(known)
            )
            outcomes = list(answer["results"])
            if len(outcomes) != len(joined.waiting):
                raise RemoteProtocolError(
                    f"an append of {len(joined.waiting)} batches has {len(outcomes)} results",
                    outcome="unknown",
                )
        except LognodeError as error:
            # Each caller may change the outcome of its own error.
            outcomes = [bare(copy(error)) for _ in joined.waiting]
        finally:
            for each, outcome in zip(joined.waiting, outcomes, strict=False):
                if not each.done():
                    each.set_result(outcome)
            for each in joined.waiting:
                each.cancel()  # after an error of the program, nothing was told
