"""A directed case: the leader that a feed follows is cut off from its peers, for good.

The client still reaches the old leader, and appends are acknowledged by the new leader. The feed
must go to another member and deliver them (L1). Random faults end too soon to tell a feed that
waits from one that moves.
"""

import asyncio
import contextlib
from typing import Final

from ...client.client import AsyncClient
from ...client.log import AsyncLog
from ..watch import healthy
from .process import Process
from .stage import Stage, stage
from .trace import Sink, Trace

_NODES: Final = 3
_START_S: Final = 60.0
_APPENDS: Final = 20
_DELIVERED_S: Final = 15.0
"""An election and a timeout of the follow take five seconds at most."""


def cut_off_follow(seed: int, sink: Sink | None = None) -> str | None:
    """Run the case; return what is missing, or None."""
    with stage(seed, _NODES, Trace(sink)) as set_up:
        return set_up.loop.run(_whole(set_up))


async def _whole(set_up: Stage) -> str | None:
    machines, network = set_up.machines, set_up.loop.network
    async with AsyncClient(machines.servers, timeout=_START_S) as client:
        for machine in machines:
            await machine.start()
            await healthy(client, machine.number, _START_S)
        await client.create_log("followed", replicas=_NODES)
        await healthy(client, _NODES, _START_S)
        log, seen = client.log("followed"), _Seen()
        await log.append("k", b"first")
        following = asyncio.create_task(_follow(log, seen))
        await seen.all_of({b"first"})
        ranges = (await client.status())["ranges"]
        leader = next(row["leader"] for row in ranges if row["log"] == "followed")
        for other in machines.numbers:
            if other != leader:
                network.cut(str(leader), str(other))
                network.cut(str(other), str(leader))
        # Clients of their own: the feed keeps its connections and what it knows.
        appender = Process("appender", "appender")
        wanted = await set_up.loop.spawn(appender, _append(machines.servers))
        await seen.all_of(wanted)
        following.cancel()
    missing = len(wanted - seen.values)
    return f"{missing} of {len(wanted)} entries were not delivered" if missing else None


class _Seen:
    """The values that the feed has delivered."""

    def __init__(self) -> None:
        self.values: set[bytes] = set()
        self._came = asyncio.Condition()

    async def add(self, values: set[bytes]) -> None:
        """Note values that were delivered."""
        async with self._came:
            self.values |= values
            self._came.notify_all()

    async def all_of(self, wanted: set[bytes]) -> None:
        """Return when all of these are delivered, or after `_DELIVERED_S`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_DELIVERED_S), self._came:
                await self._came.wait_for(lambda: wanted <= self.values)


async def _append(servers: str) -> set[bytes]:
    async with AsyncClient(servers, timeout=_START_S) as client:
        log = client.log("followed")
        values = {b"%d" % number for number in range(_APPENDS)}
        for value in sorted(values):
            await log.append("k", value)
        return values


async def _follow(log: AsyncLog, seen: _Seen) -> None:
    async with log.follow(keys=["k"], start="earliest") as feed:
        async for batch in feed:
            await seen.add({entry.value for entry in batch if entry.value is not None})
