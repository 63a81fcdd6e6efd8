"""What should be changed: pure functions from the metadata, and what nodes say, to operations.

A range, and the controller, grow to the largest odd number of members that the policy asks for
and the ACTIVE nodes allow. One of which a member's replica is damaged goes on into its next
generation with the same members: there the damaged one takes part again (executions 1.2).
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from .metadata import Metadata, group_size
from .model import Descriptor
from .moves import OPERATIONS_MAX

CONTROLLER_MEMBERS = 3


@dataclass(frozen=True, slots=True)
class Planned:
    """An operation to be committed: the members that a range should have next, and why."""

    kind: str
    range_id: int
    generation: int
    members: tuple[int, ...]
    reason: str


Damage = tuple[int, int, str]
"""Range, generation, and what is wrong with a node's replica of it."""

Damages = Mapping[int, Collection[Damage]]
"""Per node what it says is damaged there."""


def plan(metadata: Metadata, alive: Collection[int], damaged: Damages) -> list[Planned]:
    """Operations to begin now, repairs before all; `alive` are the nodes heard from lately."""
    room = OPERATIONS_MAX - len(metadata.operations)
    return [*_repairs(metadata, alive, damaged), *_expansions(metadata, alive)][: max(0, room)]


def _repairs(metadata: Metadata, alive: Collection[int], damaged: Damages) -> list[Planned]:
    planned = []
    for range_ in metadata.ranges.values():
        reason = None if range_.operation else _broken(range_, alive, damaged)
        if reason is not None:
            gid = (range_.range_id, range_.generation)
            planned.append(Planned("repair", *gid, range_.members, reason))
    return planned


def _broken(range_: Descriptor, alive: Collection[int], damaged: Damages) -> str | None:
    """Why the range is to be repaired; None when it need not be, or cannot: its seal and the
    state at it take a majority of sound members."""
    said = {
        node: reason
        for node in range_.members
        if node in alive
        for range_id, generation, reason in damaged.get(node, ())
        if (range_id, generation) == (range_.range_id, range_.generation)
    }
    sound = [node for node in range_.members if node in alive and node not in said]
    if not said or len(sound) <= len(range_.members) // 2:
        return None
    return "; ".join(f"the replica of node {node}: {reason}" for node, reason in said.items())


def _expansions(metadata: Metadata, alive: Collection[int]) -> list[Planned]:
    homes = [node.node_id for node in metadata.active_nodes() if node.node_id in alive]
    load = Counter(member for range_ in metadata.ranges.values() for member in range_.members)
    planned: list[Planned] = []
    for range_ in sorted(metadata.ranges.values(), key=lambda r: r.range_id):
        if range_.operation or not set(range_.members) <= set(homes):
            continue
        replicas = metadata.logs[range_.log_id].policy.replicas
        members = _grown(range_, group_size(replicas, len(homes)), homes, load)
        if members is not None:
            load.update(set(members) - set(range_.members))
            reason = f"{replicas} replicas wanted, {len(homes)} nodes active"
            planned.append(Planned("expand", range_.range_id, range_.generation, members, reason))
    return planned


def plan_controller(metadata: Metadata, alive: Collection[int], damaged: Damages) -> Planned | None:
    """The members that the controller should have next, and why; None when all is well. A repair
    has the present ones."""
    controller = metadata.controller
    if metadata.sealed:
        return None
    broken = _broken(controller, alive, damaged)
    gid = (controller.range_id, controller.generation)
    if broken is not None:
        return Planned("repair", *gid, controller.members, broken)
    homes = [node.node_id for node in metadata.active_nodes() if node.node_id in alive]
    if not set(controller.members) <= set(homes):
        return None
    size = group_size(CONTROLLER_MEMBERS, len(homes))
    members = _grown(controller, size, homes, Counter())
    if members is None:
        return None
    reason = f"{CONTROLLER_MEMBERS} members wanted, {len(homes)} nodes active"
    return Planned("expand", *gid, members, reason)


def node_states(metadata: Metadata, heard: Collection[int]) -> list[tuple[int, str]]:
    """Nodes whose state should change: ACTIVE ones not heard are DEAD, DEAD ones heard ACTIVE."""
    changes = []
    for node in metadata.nodes.values():
        if node.state == "ACTIVE" and node.node_id not in heard:
            changes.append((node.node_id, "DEAD"))
        elif node.state == "DEAD" and node.node_id in heard:
            changes.append((node.node_id, "ACTIVE"))
    return changes


def _grown(
    range_: Descriptor, size: int, homes: list[int], load: "Counter[int]"
) -> tuple[int, ...] | None:
    if size <= len(range_.members):
        return None
    others = sorted((n for n in homes if n not in range_.members), key=lambda n: (load[n], n))
    return tuple(sorted((*range_.members, *others[: size - len(range_.members)])))
