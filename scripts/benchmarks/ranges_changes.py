"""Operations on the ranges of a log under load, one after the other."""

import asyncio
import time
from bisect import bisect_left
from collections.abc import Awaitable, Callable
from typing import Any

import lognode
from lognode.node.local.dev import LocalCluster, LocalNode

from . import nodes, spans
from .pauses import Operation
from .ranges_clients import Clients

NODES = 4
"""One node more than a range has members, so that there is always a node to move to."""
_CALM_S = 0.5
_DOWN_S = 2.0
"""How long a killed node stays away once other nodes lead."""
_LED_S = 60.0

Act = Callable[[], Awaitable[None]]


class Changes:
    """Operations on one log; each begins when the cluster is healthy again after the last."""

    def __init__(
        self, cluster: LocalCluster, client: lognode.AsyncClient, log: str, clients: Clients
    ) -> None:
        self._cluster = cluster
        self._client = client
        self._log = log
        self._clients = clients
        self._turn = 0
        self.done: list[Operation] = []

    async def nothing(self) -> None:
        """Do nothing for as long as an operation takes, for comparison."""
        await self.measured("nothing", lambda: asyncio.sleep(_CALM_S))

    async def split(self, keys: list[bytes]) -> None:
        """Split the range with the most of these sorted keys, in their middle."""
        found = []
        for span in await spans.of_log(self._client, self._log):
            end = len(keys) if span.end is None else bisect_left(keys, span.end)
            found.append((bisect_left(keys, span.start), end))
        first, end = max(found, key=lambda each: each[1] - each[0])
        await self.split_at("split", keys[(first + end) // 2])

    async def split_at(self, kind: str, key: bytes) -> None:
        await self.measured(kind, lambda: self._client.admin.split(self._log, at=key))

    async def merge(self, keys: list[bytes]) -> None:
        """Merge the neighbours that have the fewest of these sorted keys together."""
        found = await spans.of_log(self._client, self._log)
        begins = [bisect_left(keys, span.start) for span in found] + [len(keys)]
        pairs = [(begins[n + 2] - begins[n], found[n + 1].start) for n in range(len(found) - 1)]
        _, at = min(pairs)
        await self.measured("merge", lambda: self._client.admin.merge(self._log, at=at))

    async def transfer(self) -> None:
        """Transfer the lead of a range to another member."""
        range_ = await self._next_range()
        members = range_["members"]
        to = members[(members.index(range_["leader"]) + 1) % len(members)]
        await self.measured(
            "transfer", lambda: self._client.admin.transfer(range_["id"], to_node=to)
        )

    async def move(self, *, leader: bool) -> None:
        """Move the replica of a range's leader, or of a follower, to the node without one."""
        range_ = await self._next_range()
        leaves = next(n for n in range_["members"] if (n == range_["leader"]) == leader)
        comes = next(n for n in range(1, NODES + 1) if n not in range_["members"])
        await self.measured(
            f"move of {'the leader' if leader else 'a follower'}",
            lambda: self._client.admin.move(range_["id"], from_node=leaves, to_node=comes),
        )

    async def kill(self) -> None:
        """Kill the node that leads a range, wait until others lead, then start the node."""
        node = self._cluster.nodes[(await self._next_range())["leader"] - 1]

        async def act() -> None:
            await asyncio.to_thread(node.kill)
            await self._led(without=node.number)

        await self.measured("kill -9 of a leader", act, lambda: _started(node))

    async def measured(
        self, kind: str, act: Callable[[], Awaitable[Any]], after: Act | None = None
    ) -> None:
        """Run and measure an operation.

        Clients may notice `after` too, but its time does not count.
        """
        await nodes.healthy(self._client, NODES)
        self._clients.check()
        await asyncio.sleep(_CALM_S)
        began, given_up = time.perf_counter(), False
        try:
            await act()
        except lognode.Conflict:
            given_up = True  # a move whose new member was not ready in time
        took_s = time.perf_counter() - began
        if after is not None:
            await after()
            await nodes.healthy(self._client, NODES)
        await asyncio.sleep(_CALM_S)
        until = time.perf_counter()
        self.done.append(Operation(kind, began, until, took_s, given_up))

    async def _next_range(self) -> dict[str, Any]:
        """Return the log's ranges in turn."""
        ranges = await self._led()
        self._turn += 1
        return ranges[self._turn % len(ranges)]

    async def _led(self, without: int | None = None) -> list[dict[str, Any]]:
        """Return the log's ranges once all have leaders, none of which is the node `without`."""
        deadline = time.perf_counter() + _LED_S
        while time.perf_counter() < deadline:
            status = await self._client.status()
            ranges = [each for each in status["ranges"] if each["log"] == self._log]
            if all(each["leader"] not in (None, without) for each in ranges):
                return ranges
            await asyncio.sleep(0.02)
        raise lognode.Unavailable(f"not all ranges have leaders after {_LED_S:g} s")


async def _started(node: LocalNode) -> None:
    await asyncio.sleep(_DOWN_S)
    node.start()
    await asyncio.to_thread(node.wait_ready)
