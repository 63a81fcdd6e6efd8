"""The beginning of a run: nodes found a cluster, one by one or together, and join a cluster."""

import asyncio
import random
from collections.abc import Sequence
from typing import Final

from ...client.client import AsyncClient
from ..watch import healthy
from .additions import Additions
from .nodes import Machines

_START_S: Final = 60.0
_LOOK_S: Final = 0.05
_LATE_S: Final = (0.2, 3.0)


async def found(machines: Machines, additions: Additions) -> None:
    """Start the founders; return once clients can show that they are allowed."""
    for machine in list(machines) if additions.together else [machines[1]]:
        await machine.start()
    while True:
        if machines.credentials.is_ready:
            return
        await asyncio.sleep(_LOOK_S)


async def join(
    machines: Machines, numbers: Sequence[int], admin: AsyncClient, additions: Additions
) -> None:
    """Let these nodes join one by one, so that each gets its own number; invite all nodes."""
    if additions.together:
        await healthy(admin, len(numbers), _START_S)
        return
    await healthy(admin, 1, _START_S)
    for machine in machines:
        if machine.number > 1:
            await machines.credentials.invite(admin, machine.number)
    for number in numbers:
        await machines[number].start()
        await healthy(admin, number, _START_S)


async def join_late(machines: Machines, rng: random.Random) -> None:
    """Start the last machine some time after the faults began."""
    await asyncio.sleep(rng.uniform(*_LATE_S))
    await machines[machines.numbers[-1]].start()
