"""An operator's last resort: the nodes beyond three are lost for good, and some ranges with them.

The lost nodes are not members of the controller. With five nodes, two of the three members of a
range are lost, so that the operator recovers the range from the third. The cluster is at rest
before, so that the third has every acknowledged entry, and the recovery may lose none. Then the
operator removes the dead nodes, and the cluster heals without them.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection
from typing import Any, Final

from ...client.client import AsyncClient
from ...client.protocol.errors import LognodeError
from ..verdict import Anomaly
from ..watch import healthy
from .nodes import Machines

LEFT: Final = 3
_LOG: Final = "of-three"
_APPENDS: Final = 10
_RETRY_S: Final = 0.5
_REST_S: Final = 3.0
"""The followers of a range have synced and applied everything within this time."""
_WITHIN_S: Final = 90.0


async def lose_nodes(admin: AsyncClient, machines: Machines) -> list[Anomaly]:
    """Lose all machines but three; return what is wrong afterwards."""
    try:
        async with asyncio.timeout(_WITHIN_S):
            lost = set(machines.numbers) - set(await _controller(admin))
            acked = await _prepare(admin, lost)
            await asyncio.sleep(_REST_S)
            for number in sorted(lost):
                machines[number].is_lost = True
                await machines[number].kill()
            await _recover(admin, lost)
            for number in sorted(lost):
                await _until_done(admin.admin.remove, number, dead=True)
            log = admin.log(_LOG)
            found = {entry.seq async for entry in log.scan("k")}
            await log.append("k", b"after the recovery")
    except TimeoutError:
        told = f"the cluster did not recover within {_WITHIN_S:.0f} s after the loss of nodes"
        return [Anomaly("no-recovery", told, promise="L2")]
    if missing := sorted(acked - found):
        return [Anomaly("lost-write", f"the recovery lost entries {missing[:5]}", promise="S2")]
    why = await healthy(admin, len(machines.numbers), _WITHIN_S)
    if why is not None:
        return [Anomaly("not-converged", f"without the lost nodes: {why}", promise="L2")]
    return []


async def _controller(admin: AsyncClient) -> list[int]:
    """Return the members of the controller, once there are three."""
    while True:
        members: list[int] = (await admin.status())["cluster"]["controller"]
        if len(members) == LEFT:
            return members
        await asyncio.sleep(_RETRY_S)


async def _prepare(admin: AsyncClient, lost: Collection[int]) -> set[int]:
    """Return the seqs of entries in a range that has all nodes that will be lost as members."""
    log = await admin.create_log(_LOG, replicas=LEFT)
    while True:
        (range_,) = await admin.admin.ranges(_LOG)
        members = set(range_["members"])
        if len(members) == LEFT:  # a range with fewer members grows by itself
            if members.issuperset(lost):
                break
            leaves, comes = min(members - set(lost)), min(set(lost) - members)
            with contextlib.suppress(LognodeError):
                await admin.admin.move(range_["id"], from_node=leaves, to_node=comes)
        await asyncio.sleep(_RETRY_S)
    acks = [await log.append("k", b"%d" % number) for number in range(_APPENDS)]
    return {ack.seq for ack in acks if ack.seq is not None}


async def _recover(admin: AsyncClient, lost: Collection[int]) -> None:
    """Recover every range that has lost its majority."""
    for range_ in await admin.admin.ranges():
        left = sorted(set(range_["members"]) - set(lost))
        if 2 * len(left) <= len(range_["members"]):
            await _until_done(admin.admin.recovery, range_["id"])
            await _until_done(
                admin.admin.recover, range_["id"], from_node=left[0], accept_loss=True
            )


async def _until_done(call: Callable[..., Awaitable[Any]], *args: Any, **named: Any) -> None:
    """Call until the cluster does not refuse any more."""
    while True:
        with contextlib.suppress(LognodeError):
            await call(*args, **named)
            return
        await asyncio.sleep(_RETRY_S)
