"""Appends to one range, joined in few requests.

Some Kafka clients send the batch of each partition in a request of its own, so a hundred batches
come for the partitions of a range. A request to the range, and the Raft entry of the request, cost
more than such a batch. So the batches for a range that come in one turn of the loop, under one
grant, go together. While many bytes are under way to the range, the next batches wait, and then go
together. This is group commit (Gray and Reuter 1993, 11.4), clocked by the answers as Nagle's
algorithm is (RFC 896). The batches of a range keep their order, and each batch has a result of its
own.

A batch under a grant does not wait: a grant is for one producer and one partition, and such a batch
would wait for its own predecessors alone. A batch that is large, or has little time left, goes
alone, behind the batches that wait.

A request that fails may have appended some of its batches. Each batch then goes alone: the range
may have split meanwhile, and the numbers of the producer make a repetition safe (S8).
"""

import asyncio
from collections import Counter
from copy import copy
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from ...client.cluster import Cluster, LogRoutes
from ...client.durations import milliseconds
from ...client.protocol import limits
from ...client.protocol.appends import APPEND
from ...client.protocol.errors import LognodeError, RemoteProtocolError, bare
from ...client.routing import Range

_BYTES_MAX: Final = limits.MIB
"""Bytes of the batches of a request, packed or unpacked: as many as one batch may have."""
_SMALL_BYTES: Final = 64 * limits.KIB
"""With this many bytes under way to a range, further batches wait. A request up to this size may
have any number of batches: the range takes such a request in one step."""
_WAIT_S: Final = 0.25
"""The longest time that a batch waits before it is sent."""
_LEAST_S: Final = 1.0
"""A batch with less time than this goes alone: its deadline would end the request of others."""

Outcome = dict[str, Any] | LognodeError
"""The result of a batch, or the error of its request."""
_Line = tuple[int, int, bytes | None]
"""A range, its generation, and a grant."""


class Attempt(NamedTuple):
    """The outcome of a batch, and the range as it was known when the batch was sent."""

    outcome: Outcome
    asked: Range


class NumberedBatch(NamedTuple):
    """A batch of a producer, packed."""

    data: bytes
    size: int
    """Bytes of the batch, packed or unpacked: the greater number."""
    records: int
    grant: bytes | None


@dataclass(slots=True)
class _Joined:
    """Batches that go together to the range of a key."""

    routes: LogRoutes
    known: Range
    deadline: float
    timer: asyncio.Handle | None = None
    """Sends the batches at the end of the turn, or later."""
    batches: list[bytes] = field(default_factory=list)
    waiting: list["asyncio.Future[Attempt]"] = field(default_factory=list)
    size: int = 0
    records: int = 0

    def has_room(self, batch: NumberedBatch) -> bool:
        """Return whether a batch may join."""
        size = self.size + batch.size
        is_small = size <= _SMALL_BYTES
        most = limits.request_batches_max if is_small else limits.ordered_batches_max
        return (
            size <= _BYTES_MAX
            and self.records + batch.records <= limits.request_records_max
            and len(self.batches) < most
        )

    def add(self, batch: NumberedBatch, deadline: float) -> "asyncio.Future[Attempt]":
        """Add a batch; return what has its outcome."""
        attempt: asyncio.Future[Attempt] = asyncio.get_running_loop().create_future()
        self.deadline = min(self.deadline, deadline)
        self.batches.append(batch.data)
        self.waiting.append(attempt)
        self.size += batch.size
        self.records += batch.records
        return attempt

    def asked(self) -> Range:
        """Return the range as it is known by now: it may have another leader."""
        found = self.routes.table.find(self.known.start)
        return found if found is not None and _same(found, self.known) else self.known


class JoinedAppends:
    """Joins the appends of one client of the cluster. All calls run on the loop's thread."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._open: dict[_Line, _Joined] = {}
        """The batches that are not sent yet."""
        self._under_way: Counter[_Line] = Counter()
        """Bytes of the requests that are not answered yet."""
        self._requests: set[asyncio.Task[None]] = set()

    def append(
        self, routes: LogRoutes, known: Range, batch: NumberedBatch, deadline: float
    ) -> "asyncio.Future[Attempt]":
        """Send a batch to a range of a log with the next request; return its outcome. The request
        ends at the first deadline of its batches."""
        line = known.range_id, known.generation, batch.grant
        is_alone = batch.size > _BYTES_MAX or deadline - self._cluster.now() < _LEAST_S
        joined = self._open.get(line)
        if joined is not None and (is_alone or not joined.has_room(batch)):
            self._send_open(line)
            joined = None
        if is_alone:
            alone = _Joined(routes, known, deadline)
            attempt = alone.add(batch, deadline)
            self._send(line, alone)
            return attempt
        if joined is None:
            joined = self._open[line] = _Joined(routes, known, deadline, self._later(line))
        return joined.add(batch, deadline)

    def _later(self, line: _Line) -> asyncio.Handle:
        loop, (*_, grant) = asyncio.get_running_loop(), line
        if grant is None and self._under_way[line] >= _SMALL_BYTES:
            return loop.call_later(_WAIT_S, self._send_open, line)
        return loop.call_soon(self._send_open, line)

    def _send_open(self, line: _Line) -> None:
        """Send the batches that wait."""
        joined = self._open.pop(line, None)
        if joined is not None:
            assert joined.timer is not None
            joined.timer.cancel()
            self._send(line, joined)

    def _send(self, line: _Line, joined: _Joined) -> None:
        self._under_way[line] += joined.size
        task = asyncio.create_task(self._request(line, joined))
        self._requests.add(task)
        task.add_done_callback(self._requests.discard)

    def _answered(self, line: _Line, size: int) -> None:
        """Note that a request is no longer under way; send what waits, if that was much."""
        self._under_way[line] -= size
        if self._under_way[line] < _SMALL_BYTES:
            self._send_open(line)
        if not self._under_way[line]:
            del self._under_way[line]

    async def _request(self, line: _Line, joined: _Joined) -> None:
        """Make one attempt, and tell all who wait."""
        *_, grant = line
        asked = joined.asked()
        left_s = max(0.001, joined.deadline - self._cluster.now())
        body = {"batches": joined.batches, "timeout_ms": milliseconds(left_s), "grant": grant}
        outcomes: list[Outcome] = []
        try:
            answer = await self._cluster.ask(
                asked, APPEND, body, joined.deadline, node=self._cluster.target(asked)
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
        except asyncio.CancelledError:
            self._drop(line)  # the node stops
            raise
        finally:
            for each, outcome in zip(joined.waiting, outcomes, strict=False):
                if not each.done():
                    each.set_result(Attempt(outcome, asked))
            for each in joined.waiting:
                each.cancel()  # after an error of the program, nothing was told
            # Last: a caller that is told of another leader notes the leader before more is sent.
            self._answered(line, joined.size)

    def _drop(self, line: _Line) -> None:
        """Send nothing of what waits."""
        joined = self._open.pop(line, None)
        if joined is not None:
            assert joined.timer is not None
            joined.timer.cancel()
            for each in joined.waiting:
                each.cancel()


def _same(one: Range, other: Range) -> bool:
    return (one.range_id, one.generation) == (other.range_id, other.generation)
