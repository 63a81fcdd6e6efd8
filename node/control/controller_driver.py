"""Commits the commands that `partitions.change` proposes, on the controller's leader."""

import asyncio
import logging
import time
from collections.abc import Callable

from ...client.protocol.errors import LognodeError, NotLeader, Timeout, Unavailable
from ...partitions import commands, shrinking
from ...partitions.change import next_steps, timers
from ...partitions.facts import Facts
from ..replicas.controller_replica import ControllerReplica

_STEP_S = 0.1
_SHOWN = {
    commands.NODE_STATE: (logging.WARNING, "node state"),
    commands.PLAN: (logging.INFO, "operation planned"),
    commands.SPLIT: (logging.INFO, "operation planned"),
    commands.SEAL_CONTROLLER: (logging.INFO, "controller changes"),
}
"""Steps that are logged for operators, with level and message."""

log = logging.getLogger("lognode.controller")


class ControllerDriver:
    """Runs on every controller member; acts only while the replica leads.

    `wall_ms` gives the time at which operations end.
    `repair_after_s`: how long a node is DEAD before other nodes get its replicas.
    `balanced`: whether replicas move to be spread evenly.
    `merge_after_s`: how long small ranges rest before they are merged.
    """

    def __init__(
        self,
        facts: Facts,
        wall_ms: Callable[[], int],
        repair_after_s: float,
        *,
        balanced: bool = True,
        merge_after_s: float = shrinking.NEVER,
    ) -> None:
        self._merge_after_s = merge_after_s
        self._balanced = balanced
        self._repair_after_s = repair_after_s
        self._facts = facts
        self._wall_ms = wall_ms
        self._wake = asyncio.Event()
        self._settled: object = None
        """The situation in which there was nothing to do, so that the same ranges are not checked
        ten times a second."""

    def wake(self) -> None:
        """Look for steps again: something was reported."""
        self._wake.set()

    async def run(self, replica: ControllerReplica) -> None:
        """Drive for as long as the replica runs."""
        while not replica.stopped:
            if replica.leads and replica.group.ready_to_lead and not replica.is_sealed:
                try:
                    await self._step(replica)
                except LognodeError as error:
                    log.info("controller steps put off", extra={"fields": {"error": str(error)}})
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
        situation = self._situation(replica, now, leads_for_s)
        if situation is not None and situation == self._settled:
            return
        self._settled = None
        steps = next_steps(
            replica.metadata, self._facts, now, leads_for_s, self._repair_after_s,
            balanced=self._balanced, merge_after_s=self._merge_after_s,
        )  # fmt: skip
        if not steps:
            self._settled = situation
        for command in steps:
            shown = _SHOWN.get(command["op"])
            if shown is not None:
                told = {name: value for name, value in command.items() if name != "op"}
                log.log(*shown, extra={"fields": told})
            try:
                await replica.command(commands.dated(command, self._wall_ms()))
            except (NotLeader, Timeout, Unavailable):
                raise  # the other steps would fail too
            except LognodeError as error:
                refused = {"step": command["op"], "error": str(error)}
                log.info("controller step refused", extra={"fields": refused})

    def _situation(self, replica: ControllerReplica, now: float, leads_for_s: float) -> object:
        """Return the input of the steps; None while an operation runs or a replica is damaged."""
        metadata, facts = replica.metadata, self._facts
        if metadata.operations or any(facts.damaged.values()):
            return None
        due = timers(metadata, facts, now, leads_for_s, self._repair_after_s, self._merge_after_s)
        return replica.gid, replica.group.term, metadata.version, due
