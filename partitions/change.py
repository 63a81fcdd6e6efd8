"""What the controller's leader commits next: carry every operation forward, and begin new ones.

Pure functions of the metadata, what members reported, and the time. Each step is one metadata
command whose precondition the metadata checks again, so that a leader that was deposed in the
middle of a step harms nobody: the next one goes on from the record.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

from ..statemachine.effects import differ
from . import balance, commands, planner, recovery, shrinking
from .facts import Facts, OperationFacts
from .leaving import DEAD_AFTER_S, NEVER, leaving
from .lineage import Gid
from .locks import OPERATIONS_MAX
from .metadata import Metadata
from .model import Lineage, Operation
from .planner import Large, Planned
from .replacing import Leave
from .shrinking import Small

ALIVE_S = 3.0
"""A node heard from within this time is counted on."""
LEAVE_OUT_AFTER_S = 2.0
"""Members that are not prepared this long after the seal are not waited for (x7)."""
ABORT_AFTER_S = 60.0
DONE_AFTER_S = 60.0
"""Members that have not installed this long after the decision are not waited for, and dead ones
not even so long: they begin later, from a base of the new generation (x2.16)."""
REPAIR_AGAIN_AFTER_S = 10.0
"""A range whose replicas break again and again is repaired no more often than this."""

Command = dict[str, Any]


def next_steps(
    metadata: Metadata,
    facts: Facts,
    now: float,
    leads_for_s: float,
    repair_after_s: float = NEVER,
    *,
    balanced: bool = True,
    merge_after_s: float = shrinking.NEVER,
    dead_after_s: float = DEAD_AFTER_S,
) -> list[Command]:
    """What to commit now as the controller's leader for so many seconds, in this order. Nodes that
    are silent for `dead_after_s` are DEAD, and their replicas given to others when they have been
    for `repair_after_s`; where replicas are to be
    `balanced` they move when nothing else is due. Neighbours that are small are merged when
    neither was in an operation for `merge_after_s`.

    Empty: nothing, until something is reported or time passes.
    """
    facts.forget_except(set(metadata.operations))
    facts.forget_gone(metadata.ranges)
    active = {node.node_id for node in metadata.active_nodes()}
    # What drains takes part where it does already, and in nothing new.
    draining = {n.node_id for n in metadata.nodes.values() if n.state == "DRAINING"}
    draining &= facts.alive(now, dead_after_s)
    steps = []
    for operation in metadata.operations.values():
        old = _members_now(operation, metadata)
        told = facts.of(operation.operation_id, now)
        facts.changed.update({output.range_id: now for output in operation.outputs})
        if operation.phase == "DECIDED" and told.decided_at is None:
            told.decided_at = now
        here = active | draining & _all_of(old)
        here -= _broken_in(operation, facts)
        steps += next_commands(operation, told, now, here, old)
    if steps or leads_for_s < ALIVE_S:
        return steps  # who is alive is not known yet (x2.23)
    states = _node_states(metadata, facts, now, leads_for_s, dead_after_s)
    if states:
        return states
    leave = leaving(metadata, facts, now, leads_for_s, repair_after_s, dead_after_s)
    steps = _plans(metadata, facts, now, leave)
    if not steps and shrinking.NEVER < merge_after_s <= leads_for_s:
        steps = _merges(metadata, facts, now, merge_after_s)
    if balanced and not steps and leads_for_s >= dead_after_s:  # nodes may be coming still
        steps = _moves(metadata, facts, now)
    return steps


def timers(
    metadata: Metadata,
    facts: Facts,
    now: float,
    leads_for_s: float,
    repair_after_s: float,
    merge_after_s: float = shrinking.NEVER,
) -> Hashable:
    """What next steps follow from besides the metadata, damage and reports: as long as it is the
    same, time alone makes nothing due."""
    heard = [
        (leads_for_s >= since, frozenset(facts.alive(now, since)))
        for since in (ALIVE_S, DEAD_AFTER_S)
    ]
    leave = leaving(metadata, facts, now, leads_for_s, repair_after_s)
    rests = _resting(facts, now), facts.changed_within(now, balance.RESTS_S)
    told = frozenset(_large(facts)), frozenset(facts.short)
    merges = merge_after_s <= leads_for_s, facts.changed_within(now, merge_after_s)
    return *heard, frozenset(leave.items()), *rests, *told, *merges, frozenset(_small(facts))


def _members_now(operation: Operation, metadata: Metadata) -> dict[Gid, Collection[int]]:
    """Whose word counts of the generations that the operation holds now: its inputs, or once it is
    decided its outputs."""
    return {
        (range_.range_id, range_.generation): recovery.witnesses(operation, range_.members)
        for range_ in metadata.ranges.values()
        if range_.operation == operation.operation_id
    }


def _all_of(members: Mapping[Gid, Collection[int]]) -> set[int]:
    return set().union(*members.values())


def _broken_in(operation: Operation, facts: Facts) -> set[int]:
    """Nodes whose replica of an output is damaged: it never takes part again in that generation
    (x2), and is repaired into the next once this operation is over."""
    outputs = {(output.range_id, output.generation) for output in operation.outputs}
    return {
        node
        for node, damages in facts.damaged.items()
        if any((range_id, generation) in outputs for range_id, generation, _ in damages)
    }


def _node_states(
    metadata: Metadata, facts: Facts, now: float, leads_for_s: float, dead_after_s: float
) -> list[Command]:
    if leads_for_s < dead_after_s:
        return []
    heard = facts.alive(now, dead_after_s)
    return [
        {"op": commands.NODE_STATE, "node": node, "state": state}
        for node, state in planner.node_states(metadata, heard)
    ]


def _plans(
    metadata: Metadata, facts: Facts, now: float, leave: Mapping[int, Leave]
) -> list[Command]:
    alive = facts.alive(now, ALIVE_S)
    own = planner.plan_controller(metadata, alive, facts.damaged, leave)
    # Operations may be waiting for its repair, and what drains is not to wait for what grows.
    if own is not None and (own.kind != "expand" or not metadata.operations):
        members = list(own.members)
        return [{"op": commands.SEAL_CONTROLLER, "members": members, "kind": own.kind,
                 "reason": own.reason}]  # fmt: skip
    planned = planner.plan(
        metadata, alive, facts.damaged, leave, _resting(facts, now), _large(facts)
    )
    facts.repaired.update({plan.range_id: now for plan in planned if plan.kind != "expand"})
    return [_command(metadata, plan) for plan in planned]


def _merges(metadata: Metadata, facts: Facts, now: float, merge_after_s: float) -> list[Command]:
    room = OPERATIONS_MAX - len(metadata.operations)
    resting = facts.changed_within(now, merge_after_s) - facts.gathered
    planned = shrinking.merges(metadata, facts.alive(now, ALIVE_S), resting, _small(facts))[:room]
    for plan in planned:
        if plan.kind == shrinking.GATHER:
            facts.gathered.add(plan.range_id)
    return [_command(metadata, plan) for plan in planned]


def _moves(metadata: Metadata, facts: Facts, now: float) -> list[Command]:
    resting = _resting(facts, now) | facts.changed_within(now, balance.RESTS_S)
    planned = balance.moves(
        metadata, facts.alive(now, ALIVE_S), facts.damaged, resting, facts.short, facts.leader
    )
    return [_command(metadata, plan) for plan in planned]


def _command(metadata: Metadata, plan: Planned) -> Command:
    if plan.kind == "split":
        log = metadata.logs[metadata.ranges[plan.range_id].log_id]
        return {"op": commands.SPLIT, "log": log.name, "at": plan.at, "reason": plan.reason}
    if plan.kind == "merge":
        log = metadata.logs[metadata.ranges[plan.range_id].log_id]
        return {"op": commands.MERGE, "log": log.name, "at": plan.at, "reason": plan.reason}
    return {
        "op": commands.PLAN,
        "kind": plan.kind,
        "inputs": [[plan.range_id, plan.generation]],
        "outputs": [{"range": plan.range_id, "members": list(plan.members)}],
        "reason": plan.reason,
    }


def _small(facts: Facts) -> list[Small]:
    return [told for node in facts.small.values() for told in node]


def _large(facts: Facts) -> list[Large]:
    return [told for node in facts.large.values() for told in node]


def _resting(facts: Facts, now: float) -> frozenset[int]:
    """Ranges that were repaired or split a moment ago, and are not again."""
    return frozenset(r for r, at in facts.repaired.items() if now - at < REPAIR_AGAIN_AFTER_S)


def next_commands(
    operation: Operation,
    facts: OperationFacts,
    now: float,
    active: Collection[int],
    old: Mapping[Gid, Collection[int]],
) -> list[Command]:
    """What to commit next for an operation, given what its members reported.

    A range is not kept locked for a node that is not in `active`: a new member that is dead ends
    the operation, an old one is not waited for (x25). `old` are the members of each
    generation that ends.
    """
    number = operation.operation_id
    wanted = {member for output in operation.outputs for member in output.members}
    if operation.phase == "PLANNED":
        dead, staying = wanted - set(active), _all_of(old)
        if wanted - facts.copied <= dead & staying:
            return [{"op": commands.SEALING, "operation": number}]
        if dead - staying or now - facts.planned_at > ABORT_AFTER_S:
            return [{"op": commands.ABORT, "operation": number}]
    elif operation.phase == "SEALING":
        return _decision(operation, facts, now, old)
    elif operation.phase == "DECIDED":
        steps: list[Command] = [
            {"op": commands.INSTALLED, "operation": number, "node": node}
            for node in sorted(facts.installed & wanted - set(operation.installed))
        ]
        if not steps and _is_over(operation, facts, now, active):
            steps.append({"op": commands.DONE, "operation": number})
        return steps
    return []


def _is_over(
    operation: Operation, facts: OperationFacts, now: float, active: Collection[int]
) -> bool:
    """Whether those who have not installed need not be waited for any longer: the others are a
    majority of every output, and hold all that was acknowledged."""
    if not operation.is_held_by_majorities:
        return False
    missing = {member for output in operation.outputs for member in output.members}
    missing -= set(operation.installed)
    waited_s = 0.0 if facts.decided_at is None else now - facts.decided_at
    return missing.isdisjoint(active) or waited_s > DONE_AFTER_S


def _decision(
    operation: Operation,
    facts: OperationFacts,
    now: float,
    old: Mapping[Gid, Collection[int]],
) -> list[Command]:
    """What is decided of inputs that are sealed: nothing, while it is worth to wait.

    That is for new members: of the old ones most hold the sealed state, and the range serves
    nothing while the others fetch it. When a new one takes too long the old members begin the next
    generation (x7), and of several inputs each goes on alone (x25).
    """
    number = operation.operation_id
    wanted = [set(output.members) for output in operation.outputs]
    ends = [_agreed(facts, gid, old[gid]) for gid in operation.inputs]
    agreed = [end for end in ends if end is not None]
    lineage = [list(end.lineage) for end in agreed]
    decide = {"op": commands.DECIDE, "operation": number, "lineage": lineage}
    if any(end.effects for end in agreed):
        decide["effects"] = [end.effects for end in agreed]
    if len(agreed) == len(ends) and all(_are_ready(each, facts, agreed, old) for each in wanted):
        return [{**decide, "members": list(map(sorted, wanted))}]
    waits = bool(facts.prepared) and now - facts.sealed_at > LEAVE_OUT_AFTER_S
    if len(ends) > 1 and (waits or now - facts.planned_at > ABORT_AFTER_S):
        return [{"op": commands.APART, "operation": number}]
    if not waits or not agreed:
        return []
    return [{**decide, "members": [sorted(_all_of(old)) for _ in wanted]}]


class _End(NamedTuple):
    """How a generation ended, and the hash of what its entries did, b"" where it is not known."""

    lineage: Lineage
    effects: bytes

    def is_of(self, lineage: Lineage | None, effects: bytes) -> bool:
        """Whether a member that ended like this may go on with this end."""
        return lineage == self.lineage and not differ(effects, self.effects)


def _agreed(facts: OperationFacts, gid: Gid, old: Collection[int]) -> _End | None:
    """How the generation ended, once a majority of its members says so, each from its own state.

    One member alone may be wrong, and would hand its damage on (x6): what a member
    that is being repaired has fetched from another says nothing.
    """
    told = [
        _End(facts.sealed[member][gid], facts.effects.get(member, {}).get(gid, b""))
        for member in old
        if gid in facts.sealed.get(member, ())
    ]
    for lineage, count in Counter(end.lineage for end in told).items():
        if count > len(old) // 2:
            same = [end.effects for end in told if end.lineage == lineage]
            return _effects_of(lineage, same, len(old), all_told=len(told) == len(old))
    return None


def _effects_of(
    lineage: Lineage, told: Sequence[bytes], members: int, *, all_told: bool
) -> _End | None:
    """The end with what its entries did: as most members have it, where members differ.

    Members of different versions cannot be compared, and bear no witness. When all have told and no
    majority is right, none is called wrong: the range goes on as in versions without this hash.
    """
    known = Counter(filter(None, told))
    if not any(differ(one, other) for one in known for other in known):
        return _End(lineage, next(iter(known), b""))
    effects, count = known.most_common(1)[0]
    if count > members // 2:
        return _End(lineage, effects)
    return _End(lineage, b"") if all_told else None


def _are_ready(
    members: set[int],
    facts: OperationFacts,
    ends: Collection[_End],
    old: Mapping[Gid, Collection[int]],
) -> bool:
    """Whether most of them hold all ends, and so do all who were not in every generation."""
    holding = {
        node
        for node, told in facts.prepared.items()
        if all(
            end.is_of(
                told.get(end.lineage[:2]), facts.effects.get(node, {}).get(end.lineage[:2], b"")
            )
            for end in ends
        )
    }
    staying = set.intersection(*map(set, old.values()))
    return members - staying <= holding and 2 * len(members & holding) > len(members)
