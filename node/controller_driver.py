"""Commits what `partitions.change` says, on the controller's leader."""

import asyncio
import logging
import time

from ..client.errors import LognodeError
from ..partitions import commands
from ..partitions.change import next_steps
from ..partitions.facts import Facts
from .controller_replica import ControllerReplica

_STEP_S = 0.1
_SHOWN = {
    commands.NODE_STATE: (logging.WARNING, "node state"),
    commands.PLAN: (logging.INFO, "operation planned"),
    commands.SEAL_CONTROLLER: (logging.INFO, "controller changes"),
}
"""Steps that an operator wants to read of."""

log = logging.getLogger("lognode.controller")


class ControllerDriver:
    """Runs on every controller member; acts only where the replica leads."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """Something was reported."""
        self._wake.set()

    async def run(self, replica: ControllerReplica) -> None:
        """Drive for as long as the replica runs."""
        while not replica.stopped:
            if replica.leads and replica.group.ready_to_lead and not replica.is_sealed:
                try:
                    await self._step(replica)
                except LognodeError as error:
                    log.info("controller step put off", extra={"fields": {"error": str(error)}})
            try:
                async with asyncio.timeout(_STEP_S):
                    await self._wake.wait()
            except TimeoutError:
                continue
            finally:
                self._wake.clear()

    async def _step(self, replica: ControllerReplica) -> None:
        now = time.monotonic()
        leads_for_s = 0.0 if replica.leads_since is None else now - replica.leads_since
        for command in next_steps(replica.metadata, self._facts, now, leads_for_s):
            shown = _SHOWN.get(command["op"])
            if shown is not None:
                told = {name: value for name, value in command.items() if name != "op"}
                log.log(*shown, extra={"fields": told})
            await replica.command(command)
