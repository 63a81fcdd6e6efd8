"""What policies ask to be removed is proposed by the leaders of ranges, here for all of a node's.

`retention` decides. What is applied hides entries at once; their files go, on each member by
itself, once its meta knows as much (see `merges`). That comes with the next freeze, for which a
range that rests would wait ten minutes: its leader proposes one.
"""

import asyncio
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Final

from ...partitions.policy import Policy
from ...raft.types import GroupId
from ...statemachine.chains import chains
from ...statemachine.floors import Marks
from ...statemachine.range_state import Base
from ..replicas.clocks import Clocks
from ..replicas.host import Host
from ..replicas.range_replica import RangeReplica
from .retention import Proposal, decide, holdings, trimmed

_PERIOD_S: Final = 2.0
_RANGES_A_TURN: Final = 32
"""Looked at before others run."""
_REPEAT_S: Final = 60.0
"""What changed nothing when it was proposed is not proposed again before."""
_FREEZE_S: Final = 5.0
"""So long files that could go wait for a freeze that comes anyway: their tables are in it."""


@dataclass(slots=True)
class _Waiting:
    """Of a range led here: since when a floor that is applied is above that in meta."""

    since: float
    base: Base | None = None
    """The last durable base that was looked at, and the marks in it."""
    marks: Marks = field(default_factory=Marks)


class Removals:
    """Runs on every node. `policy` gives that of a log by its id, None when it is gone."""

    def __init__(
        self,
        *,
        host: Host,
        clocks: Clocks,
        policy: Callable[[int], Policy | None],
    ) -> None:
        self._host = host
        self._clocks = clocks
        self._policy = policy
        self._proposed: dict[tuple[GroupId, Hashable], tuple[Proposal, Marks, float]] = {}
        """By what it is about: what was proposed last, in view of what marks, and when."""
        self._waiting: dict[GroupId, _Waiting] = {}

    async def run(self) -> None:
        """Never returns; cancel it."""
        while True:
            await asyncio.sleep(_PERIOD_S)
            await self.look()

    async def look(self) -> None:
        """One look at all ranges."""
        present = set()
        for at, replica in enumerate(self._host.ranges()):
            if at % _RANGES_A_TURN == 0:
                await asyncio.sleep(0)
            if not replica.stopped:
                present.add(replica.gid)
                self._propose(replica)
                self._hasten(replica)
        self._proposed = {key: was for key, was in self._proposed.items() if key[0] in present}
        self._waiting = {gid: was for gid, was in self._waiting.items() if gid in present}

    def _propose(self, replica: RangeReplica) -> None:
        """As leader, what the policy asks for. A clock that others contradict removes nothing."""
        policy = self._policy(replica.descriptor.log_id)
        if policy is None or not policy.removes:
            return
        if not replica.leads or not self._clocks.is_agreed():
            return
        now = time.monotonic()
        for proposal in decide(policy, holdings(replica.state), self._clocks.stamp_ms()):
            key, marks = (replica.gid, proposal.place), replica.state.removal.marks
            *was, at = self._proposed.get(key, (None, None, 0.0))
            if was == [proposal, marks] and now - at < _REPEAT_S:
                continue
            if replica.propose_in_passing(proposal.kind, proposal.payload):
                self._proposed[key] = (proposal, marks, now)

    def _hasten(self, replica: RangeReplica) -> None:
        """As leader, propose a freeze where files, here or elsewhere, wait for nothing else: those
        of one lineage span, where all of it below a seq was removed."""
        state = replica.state
        base, marks = state.durable_base, state.removal.marks
        if not replica.leads or marks.trims.values == [0]:
            self._waiting.pop(replica.gid, None)
            return
        spans = [chain[:2] for chain in chains(base.manifest, (state.start, state.end))]
        now = time.monotonic()
        waiting = self._waiting.setdefault(replica.gid, _Waiting(now))
        if waiting.base is not base:
            removal = base.tables.get("removal")  # its floors, maybe 100,000, stay as they are
            durable = Marks() if removal is None else Marks.from_wire(removal["marks"])
            waiting.base, waiting.marks = base, durable
        if all(trimmed(waiting.marks, *span) >= trimmed(marks, *span) for span in spans):
            waiting.since = now
        elif now - waiting.since > _FREEZE_S:
            replica.propose_freeze()
