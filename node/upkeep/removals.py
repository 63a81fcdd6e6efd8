"""Proposes the removals that policies ask for, for all ranges led by this node.

`retention` decides. An applied removal hides entries at once. Each member removes their files by
itself, once its meta knows of the removal (see `merges`). Meta learns of it with the next freeze,
for which an idle range would wait ten minutes, so its leader proposes a freeze.
"""

import asyncio
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from ...client.protocol.errors import LognodeError
from ...client.protocol.key_spans import Span
from ...partitions.policy import Policy
from ...raft.types import GroupId
from ...statemachine.chains import chains
from ...statemachine.floors import Marks
from ...statemachine.range_state import Base
from ..replicas.clocks import Clocks
from ..replicas.host import Host
from ..replicas.range_replica import RangeReplica
from ..replicas.read_turns import in_turns
from ..runtime.slices import one_by_one
from .retention import Proposal, cutoff_ms, decide, holdings, trimmed

_PERIOD_S: Final = 2.0
_REPEAT_S: Final = 60.0
"""A proposal that changed nothing is not repeated within this time."""
_FREEZE_S: Final = 5.0
"""How long removable files wait for a freeze that comes anyway and stores their tables."""


@dataclass(slots=True)
class _Waiting:
    """Since when a range led here has an applied floor that is above the floor in meta."""

    since: float
    base: Base | None = None
    """The last durable base that was checked, and the marks in it."""
    marks: Marks = field(default_factory=Marks)


class Removals:
    """Runs on every node. `policy` returns the policy of a log by its id, None when it is gone."""

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
        """The last proposal about each subject: the proposal, the marks then, and when."""
        self._waiting: dict[GroupId, _Waiting] = {}
        self._old: dict[GroupId, tuple[int, Mapping[Span, int]]] = {}
        """The last cutoff of each compacted range with a retention, and what was found by it."""

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await asyncio.sleep(_PERIOD_S)
            await self.look()

    async def look(self) -> None:
        """Check all ranges once."""
        present = set()
        async for replica in one_by_one(self._host.ranges()):
            if not replica.stopped:
                present.add(replica.gid)
                await self._propose(replica)
                self._hasten(replica)
        self._proposed = {key: was for key, was in self._proposed.items() if key[0] in present}
        self._waiting = {gid: was for gid, was in self._waiting.items() if gid in present}
        self._old = {gid: was for gid, was in self._old.items() if gid in present}

    async def _propose(self, replica: RangeReplica) -> None:
        """As leader, propose what the policy asks for; remove nothing while clocks disagree."""
        policy = self._policy(replica.descriptor.log_id)
        if policy is None or not policy.removes:
            return
        old = await self._old_entries(replica, policy)
        if policy != self._policy(replica.descriptor.log_id):
            return  # changed meanwhile
        if not replica.leads or not self._clocks.is_agreed():
            return
        now, now_ms = time.monotonic(), self._clocks.stamp_ms()
        found = [
            replace(each, old=old.get((each.start, each.end), 0))
            for each in holdings(replica.state)
        ]
        for proposal in decide(policy, found, now_ms):
            key, marks = (replica.gid, proposal.place), replica.state.removal.marks
            *was, at = self._proposed.get(key, (None, None, 0.0))
            if was == [proposal, marks] and now - at < _REPEAT_S:
                continue
            if replica.propose_in_passing(proposal.kind, proposal.payload):
                self._proposed[key] = (proposal, marks, now)

    async def _old_entries(self, replica: RangeReplica, policy: Policy) -> Mapping[Span, int]:
        """As leader, return where the entries of a compacted log end in each lineage span that are
        older than its retention, by a clock that agrees with others now. The time moves in steps,
        and the leader looks once in each."""
        cutoff = cutoff_ms(policy, replica.gid.range_id, self._clocks.stamp_ms())
        if cutoff is None or not replica.leads or not self._clocks.is_agreed():
            return {}
        was = self._old.get(replica.gid)
        if was is not None and was[0] == cutoff:
            return was[1]
        found: dict[Span, int] = {}
        self._old[replica.gid] = cutoff, found
        for each in holdings(replica.state):
            span = each.start, each.end
            search = partial(replica.state.seq_at_timestamp, cutoff, *span)
            try:
                seq, behind = await in_turns(replica, search)
            except LognodeError:  # a file is damaged, or the replica has stopped: in the next step
                return {}
            if behind is None or behind == each.end:
                found[span] = seq
        return found

    def _hasten(self, replica: RangeReplica) -> None:
        """As leader, propose a freeze where files wait for nothing else, here or on other members.

        These are files of a lineage span of which all below a seq was removed.
        """
        state = replica.state
        base, marks = state.durable_base, state.removal.marks
        if not replica.leads or marks.trims.values == [0]:
            self._waiting.pop(replica.gid, None)
            return
        spans = [chain[:2] for chain in chains(base.manifest, (state.start, state.end))]
        now = time.monotonic()
        waiting = self._waiting.setdefault(replica.gid, _Waiting(now))
        if waiting.base is not base:
            removal = base.tables.get("removal")  # its floors, maybe 100,000, stay packed
            durable = Marks() if removal is None else Marks.from_wire(removal["marks"])
            waiting.base, waiting.marks = base, durable
        if all(trimmed(waiting.marks, *span) >= trimmed(marks, *span) for span in spans):
            waiting.since = now
        elif now - waiting.since > _FREEZE_S:
            replica.propose_freeze()
