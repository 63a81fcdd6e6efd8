"""Nodes get new certificates for their keys, and a SIGHUP to use them."""

import asyncio
import random
import signal
from typing import Final

from ...client.client import AsyncClient
from ..verdict import Anomaly
from .nodes import Machines

_EVERY_S: Final = 1.5


class Renewals:
    """Implements `sides.Side`."""

    def __init__(self, machines: Machines, rng: random.Random) -> None:
        self.anomalies: list[Anomaly] = []
        self._machines = machines
        self._rng = rng

    async def prepare(self, admin: AsyncClient) -> None:
        """Do nothing: the first certificates exist."""

    async def run(self) -> None:
        """Renew the certificate of a node now and then, until cancelled."""
        renewals = 0
        while True:
            await asyncio.sleep(_EVERY_S)
            renewals += 1
            number = self._rng.choice(self._machines.numbers)
            self._machines.credentials.renew(number, renewals)
            self._machines[number].tell(signal.SIGHUP)

    async def finish(self, admin: AsyncClient) -> None:
        """Do nothing: the cluster is healthy, so its nodes accept each other's certificates."""
