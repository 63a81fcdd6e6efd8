"""The controller leader's work: carry every operation forward, and plan new ones.

Each step is one metadata command whose precondition the metadata checks again, so that a leader
that was deposed in the middle of a step harms nobody: the next one goes on from the record.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Collection
from typing import Any

from ..client.errors import LognodeError
from ..partitions import commands, planner
from ..partitions.model import Lineage, Operation
from .controller_replica import ControllerReplica
from .facts import Facts, OperationFacts

_STEP_S = 0.1
ALIVE_S = 3.0
DEAD_AFTER_S = 10.0
"""A node not heard from for this long is DEAD until it is heard again (ranges.md section 3)."""
LEAVE_OUT_AFTER_S = 2.0
"""Members that are not prepared this long after the seal are not waited for (executions 1.7)."""
ABORT_AFTER_S = 60.0

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
        metadata, now = replica.metadata, time.monotonic()
        self._facts.forget_except(set(metadata.operations))
        for operation in list(metadata.operations.values()):
            facts = self._facts.of(operation.operation_id, now)
            active = {node.node_id for node in metadata.active_nodes()}
            old = metadata.ranges[operation.inputs[0][0]].members
            for command in next_commands(operation, facts, now, active, old):
                await replica.command(command)
        if replica.leads_since is None or now - replica.leads_since < ALIVE_S:
            return  # who is alive is not known yet (executions 2.23)
        if now - replica.leads_since >= DEAD_AFTER_S:
            heard = self._facts.alive(now, DEAD_AFTER_S)
            for node, state in planner.node_states(metadata, heard):
                log.warning("node state", extra={"fields": {"node": node, "state": state}})
                await replica.command({"op": commands.NODE_STATE, "node": node, "state": state})
        alive = self._facts.alive(now, ALIVE_S)
        members = planner.plan_controller(metadata, alive)
        if members is not None and not metadata.operations:
            log.info("controller grows", extra={"fields": {"members": members}})
            await replica.command({"op": commands.SEAL_CONTROLLER, "members": list(members)})
            return
        for planned in planner.plan(metadata, alive):
            await replica.command(
                {
                    "op": commands.PLAN,
                    "kind": planned.kind,
                    "inputs": [[planned.range_id, planned.generation]],
                    "outputs": [{"range": planned.range_id, "members": list(planned.members)}],
                    "reason": planned.reason,
                }
            )


def next_commands(
    operation: Operation,
    facts: OperationFacts,
    now: float,
    active: Collection[int],
    old: Collection[int],
) -> list[dict[str, Any]]:
    """What to commit next for an operation, given what its members reported.

    A range is not kept locked for a member that is not in `active` (executions 1.25). `old` are
    the members of the generation that ends.
    """
    number = operation.operation_id
    wanted = {member for output in operation.outputs for member in output.members}
    if operation.phase == "PLANNED":
        if wanted <= facts.copied:
            return [{"op": commands.SEALING, "operation": number}]
        if not wanted <= set(active) or now - facts.planned_at > ABORT_AFTER_S:
            return [{"op": commands.ABORT, "operation": number}]
    elif operation.phase == "SEALING":
        sealed = _agreed(facts, old)
        members = None if sealed is None else _members(operation, facts, now, old, sealed)
        if sealed is not None and members is not None:
            return [
                {
                    "op": commands.DECIDE,
                    "operation": number,
                    "lineage": [list(sealed)],
                    "members": members,
                }
            ]
    elif operation.phase == "DECIDED":
        return [
            {"op": commands.INSTALLED, "operation": number, "node": node}
            for node in sorted(facts.installed & wanted - set(operation.installed))
        ]
    return []


def _agreed(facts: OperationFacts, old: Collection[int]) -> Lineage | None:
    """How the generation ended, once a majority of its members says so, each from its own state.

    One member alone may be wrong, and would hand its damage on (executions 1.6).
    """
    told = Counter(facts.prepared[member] for member in old if member in facts.prepared)
    for lineage, count in told.items():
        if count > len(old) // 2:
            return lineage
    return None


def _members(
    operation: Operation,
    facts: OperationFacts,
    now: float,
    old: Collection[int],
    sealed: Lineage,
) -> list[list[int]] | None:
    """The members of each output; None: wait for those who do not hold the sealed state yet.

    When one of them takes too long the old members begin the next generation: most of them hold
    the sealed state (executions 1.7).
    """
    prepared = {node for node, told in facts.prepared.items() if told == sealed}
    if all(set(output.members) <= prepared for output in operation.outputs):
        return [list(output.members) for output in operation.outputs]
    if now - facts.sealed_at > LEAVE_OUT_AFTER_S:
        return [sorted(old) for _ in operation.outputs]
    return None
