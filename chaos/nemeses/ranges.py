"""Range operations under load: a busy operator, and a controller whose leader is killed.

The possible operations depend on the cluster: a move needs a node without a replica, a drain enough
other nodes, a merge two ranges. One possible operation is drawn. It runs in the background until
the fault ends. A planned operation goes on after that, too: the controller finishes it before the
cluster is healthy again.
"""

import asyncio
import contextlib
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from ...client.protocol import key_partitions
from ...client.protocol.errors import Conflict, LognodeError
from ...client.retry import ClientClosed
from .package import Begun, Target
from .victims import status_of

PHASES: Final = ("PLANNED", "SEALING", "DECIDED")
"""The phases of an operation, in order."""
_OPERATION_S: Final = 60.0
_PHASE_S: Final = 5.0
_LOOK_S: Final = 0.005
_AGAIN_S: Final = 0.2
_KEYS_MAX: Final = 50
_COUNTED_MAX: Final = 8
_ANSWER_S: Final = 2.0
_CONTROLLER: Final = 0
_LATE_S: Final = 1.0
"""The time between two looks for drains that began late."""


@dataclass(frozen=True, slots=True)
class Step:
    """One operation; the given numbers depend on `kind`."""

    kind: str
    range_id: int = 0
    node: int = 0
    to_node: int = 0
    at: bytes = b""
    log: str = ""

    def in_words(self) -> str:
        """Return a description for the history."""
        if self.kind in ("split", "merge"):
            of = f" of {self.log}" if self.log else ""
            return f"{self.kind}{of} at {self.at.decode(errors='backslashreplace')}"
        if self.kind == "move":
            return f"move of range {self.range_id} from node {self.node} to node {self.to_node}"
        if self.kind == "transfer":
            return f"transfer of range {self.range_id} to node {self.to_node}"
        return f"drain of node {self.node}"


def draw(
    rng: random.Random, ranges: Sequence[Mapping[str, Any]], nodes: Sequence[int],
    keys: Mapping[bytes, int],
) -> Step | None:  # fmt: skip
    """Return a possible step, or None when there is none.

    `ranges` are rows of the status, of one log and the controller's, which has id 0; `nodes` are
    the ACTIVE nodes; `keys` maps keys to their number of entries.
    """
    own = sorted((row for row in ranges if row["id"] != _CONTROLLER), key=lambda r: r["start"])
    split = [key for key in keys if all(row["start"] != key for row in own)]
    merges = [row["start"] for row in own[1:]]
    moves = [row for row in own if set(nodes) - set(row["members"])]
    largest = max((len(row["members"]) for row in ranges), default=0)
    possible = [
        *["split", "split at a hot key"][: 2 if split else 0], *(["merge"] if merges else []),
        *(["move"] if moves else []), *(["transfer"] if ranges else []),
        *(["drain"] if own and len(nodes) > largest else []),
    ]  # fmt: skip
    if not possible:
        return None
    kind = rng.choice(possible)
    if kind.startswith("split"):
        hot = max(sorted(split), key=lambda key: keys[key])
        return Step("split", at=rng.choice(sorted(split)) if kind == "split" else hot)
    if kind == "merge":
        return Step("merge", at=rng.choice(merges))
    if kind == "move":
        row = rng.choice(moves)
        to_node = rng.choice(sorted(set(nodes) - set(row["members"])))
        return Step("move", row["id"], rng.choice(sorted(row["members"])), to_node)
    if kind == "transfer":
        row = rng.choice(sorted(ranges, key=lambda r: r["id"]))
        return Step("transfer", row["id"], to_node=rng.choice(sorted(row["members"])))
    return Step("drain", node=rng.choice(sorted(nodes)))


class Range:
    """Splits, merges, moves, transfers and drains.

    Sometimes the controller's leader is killed in a phase that was chosen before.
    """

    name = "range"

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []
        self._killed: list[int] = []
        self._drained: set[int] = set()
        self._undoing: asyncio.Task[None] | None = None
        self._unsure: set[int] = set()
        """Nodes whose drain had no answer: the request may arrive at any later time."""
        self._looking: asyncio.Task[None] | None = None

    def missing(self) -> str | None:
        """Return None: nothing is missing."""
        return None

    async def begin(self, target: Target) -> Begun | None:
        """Begin one step; None while a drain is still to be undone or no node answers."""
        if self._undoing is not None and not self._undoing.done():
            return None
        status = await status_of(target)
        log = target.rng.choice((target.log, *target.more_logs)) if target.more_logs else target.log
        ranges = [row for row in status["ranges"] if row["log"] == log or not row["id"]]
        active = [row["id"] for row in status["nodes"] if row["state"] == "ACTIVE"]
        step = draw(target.rng, ranges, active, await _keys(target, log, ranges))
        if step is None:
            return None
        if log != target.log:
            step = replace(step, log=log)
        kills = step.kind in ("split", "merge", "move") and target.rng.random() < 0.5
        return await self.take(target, step, target.rng.choice(PHASES) if kills else None)

    async def take(self, target: Target, step: Step, phase: str | None) -> Begun:
        """Take this step; with a phase, kill the controller's leader in that phase."""
        if step.kind == "drain":
            self._drained.add(step.node)
            was_unsure = step.node in self._unsure
            self._unsure.add(step.node)
            await target.client.admin.drain(step.node, wait=False, timeout=_PHASE_S)
            if not was_unsure:
                self._unsure.discard(step.node)
            return step.in_words(), [step.node]
        self._tasks.append(asyncio.create_task(self._run(target, step)))
        if phase is None:
            return step.in_words(), []
        killed = await self._kill_in(target, phase)
        if killed is None:
            return step.in_words(), []
        return f"{step.in_words()}; the controller's leader is killed in {phase}", [killed]

    async def end(self, target: Target) -> None:
        """End the fault: operations go on by themselves; a drained node gets its replicas back."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._tasks = []
        for number in self._killed:
            await target.nodes[number].start()
        self._killed = []
        if self._drained and (self._undoing is None or self._undoing.done()):
            # No node may be able to answer until other faults have ended.
            self._undoing = asyncio.create_task(self._undo(target))
        if self._unsure and self._looking is None:
            self._looking = asyncio.create_task(self._undo_late(target))

    async def _run(self, target: Target, step: Step) -> None:
        # A node that is busy, gave up, or could not be asked is expected under faults.
        with contextlib.suppress(LognodeError):
            await self._go(target, step)

    async def _go(self, target: Target, step: Step) -> None:
        admin, log = target.client.admin, step.log or target.log
        if step.kind == "split":
            await admin.split(log, at=step.at, timeout=_OPERATION_S)
        elif step.kind == "merge":
            await admin.merge(log, at=step.at, timeout=_OPERATION_S)
        elif step.kind == "move":
            await admin.move(
                step.range_id, from_node=step.node, to_node=step.to_node, timeout=_OPERATION_S
            )
        else:
            await admin.transfer(step.range_id, to_node=step.to_node, timeout=_OPERATION_S)

    async def _kill_in(self, target: Target, phase: str) -> int | None:
        """Kill the controller's leader as soon as an operation is in the phase, or past it."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _PHASE_S
        wanted = PHASES[PHASES.index(phase) :]
        while loop.time() < deadline and not all(task.done() for task in self._tasks):
            status = await status_of(target)
            leader = status["cluster"]["controller_leader"]
            if leader and any(row["phase"] in wanted for row in status["operations"]):
                self._killed.append(leader)
                await target.nodes[leader].kill()
                return int(leader)
            await asyncio.sleep(_LOOK_S)
        return None

    async def _undo(self, target: Target) -> None:
        for number in sorted(self._drained):
            while number in self._drained:
                with contextlib.suppress(LognodeError):
                    with contextlib.suppress(Conflict):  # the node was never drained
                        await target.client.admin.drain(number, undo=True, timeout=_PHASE_S)
                    self._drained.discard(number)
                await asyncio.sleep(_AGAIN_S)

    async def _undo_late(self, target: Target) -> None:
        """Undo drains that begin after they were undone, as an operator does who sees them.

        A request without an answer may be executed at any later time (S11). An undo that comes
        first finds an ACTIVE node and changes nothing, so it does not hold off the drain.
        """
        admin = target.client.admin
        while True:
            await asyncio.sleep(_LATE_S)
            try:
                for node in await admin.nodes(timeout=_ANSWER_S):
                    number, drains = node["id"], node["state"] == "DRAINING"
                    if drains and number in self._unsure and number not in self._drained:
                        await admin.drain(number, undo=True, timeout=_PHASE_S)
            except ClientClosed:
                return  # the test is over
            except LognodeError:
                continue  # faults


async def _keys(target: Target, name: str, ranges: Sequence[Mapping[str, Any]]) -> dict[bytes, int]:
    """Return some keys of every range of a log, and the number of entries of a few of them; in a
    test of Kafka clients, whose logs have partitions, the first key of each partition."""
    log, found = target.client.log(name), {}
    with contextlib.suppress(LognodeError):
        if target.more_logs:
            policy = (await log.describe(timeout=_ANSWER_S))["policy"]
            return {key_partitions.prefix(at): 0 for at in range(1, policy["kafka_partitions"])}
    with contextlib.suppress(LognodeError):
        for row in ranges:
            if row["id"] != _CONTROLLER:
                async for key in log.keys(
                    start_after=row["start"] or None, limit=_KEYS_MAX, consistency="prefix",
                    timeout=_ANSWER_S,
                ):  # fmt: skip
                    found[key] = 0
        for key in target.rng.sample(sorted(found), min(_COUNTED_MAX, len(found))):
            found[key] = await log.count(key, consistency="prefix", timeout=_ANSWER_S)
    return found
