"""`lognode token recover`: the user of a stopped node gets a token that allows everything."""

import asyncio
import random
import time

from ...client import tokens
from ...client.client import AsyncClient
from ...client.protocol.errors import LognodeError
from ...node.access import token_recovery
from ..verdict import Anomaly
from .nodes import Machines

_WITHIN_S = 20.0
_ANSWER_S = 2.0
_RETRY_S = 0.2


async def recover_token(machines: Machines, rng: random.Random) -> list[Anomaly]:
    """Recover a token at one node; return what is wrong if it allows nothing after a while."""
    machine = machines[rng.choice(machines.numbers)]
    token = tokens.draw()
    await machine.kill()
    token_recovery.ask(machine.data, "recovered", token, time.time_ns() // 1_000_000)
    await machine.start()
    address = machines.credentials.address(machines.hosts)
    until = asyncio.get_running_loop().time() + _WITHIN_S
    why = ""
    async with AsyncClient(address, token=token, timeout=_ANSWER_S) as client:
        while asyncio.get_running_loop().time() < until:
            try:
                await client.admin.tokens()
                return []
            except LognodeError as error:
                why = error.message
            await asyncio.sleep(_RETRY_S)
    told = f"the token that node {machine.number} recovered allows nothing: {why}"
    return [Anomaly("no-recovered-token", told, promise="L2")]
