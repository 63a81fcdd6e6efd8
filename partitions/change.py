"""Choose what the controller's leader commits next: it carries operations on, and begins new ones.

The functions are pure: they depend on the metadata, the reports of members, and the time. Each step
is one metadata command, and the metadata checks its precondition again. A leader that is deposed in
the middle of a step therefore does no harm: the next leader goes on from the record.
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
"""A node is alive when its last heartbeat is not older than this."""
LEAVE_OUT_AFTER_S = 2.0
"""The controller stops waiting this long after the seal for members that are not prepared (x7)."""
ABORT_AFTER_S = 60.0
DONE_AFTER_S = 60.0
"""The controller stops waiting this long after the decision for members that have not installed,
and does not wait at all for dead members. Such members begin later, from a base of the new
generation (x2.16)."""
REPAIR_AGAIN_AFTER_S = 10.0
"""A range whose replicas break repeatedly is repaired at most once in this time."""

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
    """Return the commands to commit now, in order, after `leads_for_s` seconds as the leader.

    A node that is silent for `dead_after_s` is DEAD; its replicas go to other nodes once it has
    been DEAD for `repair_after_s`. With `balanced`, replicas move when nothing else is due. Small
    neighbours are merged when neither was in an operation for `merge_after_s`.

    An empty list means that nothing is due until a report arrives or time passes.
    """
    facts.forget_except(set(metadata.operations))
    facts.forget_gone(metadata.ranges)
    active = {node.node_id for node in metadata.active_nodes()}
    # A draining node goes on in the ranges where it is a member, and gets no new ranges.
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
        return steps  # the leader does not know yet which nodes are alive (x2.23)
    states = _node_states(metadata, facts, now, leads_for_s, dead_after_s)
    if states:
        return states
    leave = leaving(metadata, facts, now, leads_for_s, repair_after_s, dead_after_s)
    steps = _plans(metadata, facts, now, leave)
    if not steps and shrinking.NEVER < merge_after_s <= leads_for_s:
        steps = _merges(metadata, facts, now, merge_after_s)
    if balanced and not steps and leads_for_s >= dead_after_s:  # nodes may still be starting
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
    """Return all inputs of `next_steps` except the metadata, the damage and the reports.

    While the result stays the same, the passing of time alone makes no step due.
    """
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
    """Return, for each generation that the operation holds, the members whose reports count.

    The operation holds its inputs, and after the decision its outputs.
    """
    return {
        (range_.range_id, range_.generation): recovery.witnesses(operation, range_.members)
        for range_ in metadata.ranges.values()
        if range_.operation == operation.operation_id
    }


def _all_of(members: Mapping[Gid, Collection[int]]) -> set[int]:
    return set().union(*members.values())


def _broken_in(operation: Operation, facts: Facts) -> set[int]:
    """Return the nodes whose replica of an output is damaged.

    A damaged replica never takes part again in its generation (x2). Once this operation is over, it
    is repaired into the next generation.
    """
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
    # Operations may wait for the controller's repair, and a drain must not wait for an expansion.
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
    """Return the ranges that were repaired or split recently, and have to rest."""
    return frozenset(r for r, at in facts.repaired.items() if now - at < REPAIR_AGAIN_AFTER_S)


def next_commands(
    operation: Operation,
    facts: OperationFacts,
    now: float,
    active: Collection[int],
    old: Mapping[Gid, Collection[int]],
) -> list[Command]:
    """Return the next commands for an operation, given the reports of its members.

    A range does not stay locked for a node that is not in `active`: a dead new member ends the
    operation, and the operation does not wait for a dead old member (x25). `old` maps each
    generation that ends to its members.
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
    """Whether the operation may end without the members that have not installed.

    The members that have installed are a majority of every output, and hold every acknowledged
    entry.
    """
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
    """Return the decision on sealed inputs, or nothing while waiting is worthwhile.

    The controller waits for new members only. Most old members already hold the sealed state, and
    the range serves nothing while the new members fetch that state. When a new member takes too
    long, the old members begin the next generation (x7). An operation with several inputs is then
    taken apart, and each input goes on alone (x25).
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
    """The end of a generation, and the hash of what its entries did (b"" when unknown)."""

    lineage: Lineage
    effects: bytes

    def is_of(self, lineage: Lineage | None, effects: bytes) -> bool:
        """Whether a member with this lineage and hash may continue from this end."""
        return lineage == self.lineage and not differ(effects, self.effects)


def _agreed(facts: OperationFacts, gid: Gid, old: Collection[int]) -> _End | None:
    """Return the generation's end once a majority of its members reports the same, or None.

    Each member has to report from its own state. A single member may be wrong, and would pass its
    damage on (x6): the report of a repaired member that fetched its state from another member
    counts for nothing.
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
    """Return the end with the hash of what its entries did.

    Where members differ, the majority wins. Hashes of members of different versions cannot be
    compared, and are ignored. When all members have reported and no majority agrees, no member is
    called wrong: the range goes on as in versions without this hash.
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
    """Whether most members hold all ends, and every member that is new to an input does."""
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
