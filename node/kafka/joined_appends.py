"""Appends to one range, joined in few requests.

Some Kafka clients send the batch of each partition in a request of its own, so a hundred batches
come for the partitions of a range. A request to the range, and the Raft entry that comes of it,
costs more than such a batch. So batches for a range under the same grant go together: those of a
turn of the loop, and, while `_UNDER_WAY_BYTES` of earlier ones are under way, those that come until
one of them is answered. This is group commit (Gray and Reuter 1993, 11.4), clocked by the answers
as Nagle's algorithm is (RFC 896): under a small load no batch waits for an answer. Batches keep
their order, and each has a result of its own.

A request that fails may have appended some of its batches. Each batch then goes alone: the range
may have split meanwhile, and the numbers of the producer make a repetition safe (S8).
"""

import asyncio
from collections import Counter
from copy import copy
from dataclasses import dataclass, field
from typing import Any, Final

from ...client.cluster import Cluster
from ...client.durations import milliseconds
from ...client.protocol import limits
from ...client.protocol.appends import APPEND
from ...client.protocol.errors import LognodeError, RemoteProtocolError, bare
from ...client.routing import Range

BYTES_MAX: Final = 512 * limits.KIB
"""Bytes of a request, packed or unpacked."""
_UNDER_WAY_BYTES: Final = 64 * limits.KIB
"""Bytes of the requests under way to a range from which on further batches wait for an answer."""
_WAIT_S: Final = 0.25
"""How long batches wait for an answer at most: a range that does not answer, or a leader that is
gone, costs the batches behind it no more of their time."""

Outcome = dict[str, Any] | LognodeError
"""The result of a batch, or the error of its request."""
_Key = tuple[Range, bytes | None]
"""A range and a grant."""


@dataclass(slots=True)
class _Joined:
    """Batches that go together. `timer` sends them, at the end of the turn or later."""

    deadline: float
    timer: asyncio.Handle
    batches: list[bytes] = field(default_factory=list)
    waiting: list["asyncio.Future[Outcome]"] = field(default_factory=list)
    size: int = 0
    records: int = 0

    def has_room(self, size: int, records: int) -> bool:
        """Return whether a batch of so many bytes and records may join."""
        return (
            self.size + size <= BYTES_MAX
            and self.records + records <= limits.request_records_max
            and len(self.batches) < limits.request_batches_max
        )


class JoinedAppends:
    """Joins the appends of one client of the cluster. All calls run on the loop's thread."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._open: dict[_Key, _Joined] = {}
        """The batches that are not sent yet."""
        self._under_way: Counter[_Key] = Counter()
        """Bytes of the requests that are not answered yet."""
        self._requests: set[asyncio.Task[None]] = set()

    def append(
        self, known: Range, data: bytes, size: int, records: int, grant: bytes | None,
        deadline: float,
    ) -> "asyncio.Future[Outcome]":  # fmt: skip
        """Send a batch of at most `BYTES_MAX` bytes to a range with the next request; return its
        outcome. The request ends at the first deadline of its batches."""
        loop, key = asyncio.get_running_loop(), (known, grant)
        joined = self._open.get(key)
        if joined is not None and not joined.has_room(size, records):
            self._send(key, joined)
            joined = None
        if joined is None:
            joined = self._open[key] = _Joined(deadline, self._later(loop, key))
        outcome: asyncio.Future[Outcome] = loop.create_future()
        joined.deadline = min(joined.deadline, deadline)
        joined.batches.append(data)
        joined.waiting.append(outcome)
        joined.size += size
        joined.records += records
        return outcome

    def _later(self, loop: asyncio.AbstractEventLoop, key: _Key) -> asyncio.Handle:
        if self._under_way[key] >= _UNDER_WAY_BYTES:
            return loop.call_later(_WAIT_S, self._send_open, key)
        return loop.call_soon(self._send_open, key)

    def _send_open(self, key: _Key) -> None:
        joined = self._open.get(key)
        if joined is not None:
            self._send(key, joined)

    def _send(self, key: _Key, joined: _Joined) -> None:
        del self._open[key]
        joined.timer.cancel()
        self._under_way[key] += joined.size
        task = asyncio.create_task(self._request(key, joined))
        self._requests.add(task)
        task.add_done_callback(self._requests.discard)

    def _answered(self, key: _Key, size: int) -> None:
        """Note that a request is no longer under way; send what waited for this."""
        self._under_way[key] -= size
        if self._under_way[key] < _UNDER_WAY_BYTES:
            self._send_open(key)
        if not self._under_way[key]:
            del self._under_way[key]

    async def _request(self, key: _Key, joined: _Joined) -> None:
        """Make one attempt, and tell all who wait."""
        known, grant = key
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
        except asyncio.CancelledError:
            self._open.pop(key, None)  # the node stops: nothing more is sent
            raise
        finally:
            for each, outcome in zip(joined.waiting, outcomes, strict=False):
                if not each.done():
                    each.set_result(outcome)
            for each in joined.waiting:
                each.cancel()  # after an error of the program, nothing was told
            # Now: those who were told of a new leader look for it before the next request goes.
            self._answered(key, joined.size)
