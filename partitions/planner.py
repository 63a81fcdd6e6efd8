"""What should be changed: pure functions from the metadata, and what nodes say, to operations.

A range, and the controller, grow to the largest odd number of members that the policy asks for
and the ACTIVE nodes allow. One of which a member's replica is damaged goes on into its next
generation with the same members: there the damaged one takes part again (x2). Members
whose nodes are gone, or drain, are replaced.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from .locks import OPERATIONS_MAX
from .metadata import Metadata, group_size
from .model import Descriptor
from .placement import Homes, changing, load_of
from .replacing import Leave, replacement
from .spans import printable

CONTROLLER_MEMBERS = 3


@dataclass(frozen=True, slots=True)
class Planned:
    """An operation to be committed: the members that a range should have next, and why."""

    kind: str
    range_id: int
    generation: int
    members: tuple[int, ...]
    reason: str
    at: bytes = b""
    """Of a split: the first key of the new range. Of a merge: that of the range that goes."""


class Large(NamedTuple):
    """What the leader of a range says of it when it has more bytes or load than it should."""

    range_id: int
    generation: int
    size: int
    """Bytes that it has, or how often a second it is asked for something."""
    at: bytes
    """The key that halves that."""
    by_load: bool = False


Damage = tuple[int, int, str]
"""Range, generation, and what is wrong with a node's replica of it."""

Damages = Mapping[int, Collection[Damage]]
"""Per node what it says is damaged there."""


_URGENCY = ("repair", "move", "expand", "split")
"""Kinds of operations, those first that come first."""
AT_ONCE = 2
"""Replicas that come to a node, or leave one that is to be emptied, by operations under way: each
of them makes its range wait for the others' flushes."""
_NOBODY: Mapping[int, Leave] = MappingProxyType({})


def plan(
    metadata: Metadata,
    alive: Collection[int],
    damaged: Damages,
    leave: Mapping[int, Leave] = _NOBODY,
    resting: Collection[int] = (),
    large: Collection[Large] = (),
) -> list[Planned]:
    """Operations to begin now, repairs before all; `alive` are the nodes heard from lately, `leave`
    those that replicas are to leave. Ranges that are `resting` were repaired or split a moment ago;
    `large` are those that leaders find larger, or busier, than the policy of their log wants."""
    homes = _homes(metadata, alive)
    found = {
        planned.range_id: planned
        for planned in (
            *_splits(metadata, alive, resting, large),
            *_expansions(metadata, homes),
            *_replacements(metadata, alive, damaged, leave, resting, homes),
            *_repairs(metadata, alive, damaged, resting),
        )
    }
    first = sorted(found.values(), key=lambda planned: _URGENCY.index(planned.kind))
    return first[: max(0, OPERATIONS_MAX - len(metadata.operations))]


def _homes(metadata: Metadata, alive: Collection[int]) -> Homes:
    """Nodes that may get replicas."""
    nodes = [node for node in metadata.active_nodes() if node.node_id in alive]
    return Homes(nodes, load_of(metadata.ranges, metadata.operations.values()))


def _repairs(
    metadata: Metadata, alive: Collection[int], damaged: Damages, resting: Collection[int]
) -> list[Planned]:
    planned = []
    for range_ in metadata.ranges.values():
        if range_.operation or range_.range_id in resting:
            continue
        reason = _broken(range_, alive, damaged)
        if reason is not None:
            gid = (range_.range_id, range_.generation)
            planned.append(Planned("repair", *gid, range_.members, reason))
    return planned


def _replacements(
    metadata: Metadata,
    alive: Collection[int],
    damaged: Damages,
    leave: Mapping[int, Leave],
    resting: Collection[int],
    homes: Homes,
) -> list[Planned]:
    planned: list[Planned] = []
    changes = changing(metadata.ranges, metadata.operations.values())
    for range_ in metadata.ranges.values() if leave else ():
        if range_.operation or range_.range_id in resting:
            continue
        sound = _sound(range_, alive, damaged)
        found = replacement(range_, metadata.nodes, sound, leave, homes)
        if found is None:
            continue
        why, members = found
        change = {("to", node) for node in set(members) - set(range_.members)}
        if why.kind == "move":  # of what is gone nobody takes anything away
            change |= {("from", node) for node in set(range_.members) - set(members)}
        if all(changes[each] < AT_ONCE for each in change):
            changes.update(change)
            gid = (range_.range_id, range_.generation)
            planned.append(Planned(why.kind, *gid, members, why.reason))
    return planned


def _broken(range_: Descriptor, alive: Collection[int], damaged: Damages) -> str | None:
    """Why the range is to be repaired; None when it need not be, or cannot: its seal and the
    state at it take a majority of sound members."""
    said = _said(range_, alive, damaged)
    if not said or 2 * len(_sound(range_, alive, damaged)) <= len(range_.members):
        return None
    return "; ".join(f"the replica of node {node}: {reason}" for node, reason in said.items())


def _said(range_: Descriptor, alive: Collection[int], damaged: Damages) -> dict[int, str]:
    """The members that are alive and say that their replica is damaged, and how."""
    return {
        node: reason
        for node in range_.members
        if node in alive
        for range_id, generation, reason in damaged.get(node, ())
        if (range_id, generation) == (range_.range_id, range_.generation)
    }


def _sound(range_: Descriptor, alive: Collection[int], damaged: Damages) -> list[int]:
    said = _said(range_, alive, damaged)
    return [node for node in range_.members if node in alive and node not in said]


def _expansions(metadata: Metadata, homes: Homes) -> list[Planned]:
    planned: list[Planned] = []
    for range_ in sorted(metadata.ranges.values(), key=lambda r: r.range_id):
        if range_.operation or not all(member in homes for member in range_.members):
            continue
        replicas = metadata.logs[range_.log_id].policy.replicas
        members = _grown(range_, group_size(replicas, len(homes)), metadata, homes)
        if members is not None:
            reason = f"{replicas} replicas wanted, {len(homes)} nodes active"
            planned.append(Planned("expand", range_.range_id, range_.generation, members, reason))
    return planned


def _splits(
    metadata: Metadata, alive: Collection[int], resting: Collection[int], large: Collection[Large]
) -> list[Planned]:
    """Nothing waits for a split that nobody asks for, so that all members are there for it."""
    planned = []
    for told in large:
        range_ = metadata.ranges.get(told.range_id)
        if range_ is None or range_.generation != told.generation or range_.operation:
            continue
        policy = metadata.logs[range_.log_id].policy
        bound = policy.split_rate if told.by_load else policy.split_bytes
        if bound is None or told.size <= bound or told.range_id in resting:
            continue
        within = told.at in range_.span and told.at != range_.span.start
        if within and set(range_.members) <= set(alive):
            reason = _why_split(told, bound)
            gid = (range_.range_id, range_.generation)
            planned.append(Planned("split", *gid, range_.members, reason, told.at))
    return planned


def _why_split(told: Large, bound: int) -> str:
    if told.by_load:
        return f"load: {told.size:,}/s, more than {bound:,}/s: halves at key {printable(told.at)}"
    return f"{told.size} bytes, more than {bound}: at its half"


def plan_controller(
    metadata: Metadata,
    alive: Collection[int],
    damaged: Damages,
    leave: Mapping[int, Leave] = _NOBODY,
) -> Planned | None:
    """The members that the controller should have next, and why; None when all is well. A repair
    of a damaged one has the present ones."""
    controller = metadata.controller
    if metadata.sealed:
        return None
    broken = _broken(controller, alive, damaged)
    gid = (controller.range_id, controller.generation)
    if broken is not None:
        return Planned("repair", *gid, controller.members, broken)
    nodes = [node for node in metadata.active_nodes() if node.node_id in alive]
    homes = Homes(nodes, {})
    sound = _sound(controller, alive, damaged)
    found = replacement(controller, metadata.nodes, sound, leave, homes)
    if found is not None:
        why, members = found
        return Planned(why.kind, *gid, members, why.reason)
    if not all(member in homes for member in controller.members):
        return None
    grown = _grown(controller, group_size(CONTROLLER_MEMBERS, len(homes)), metadata, homes)
    if grown is None:
        return None
    reason = f"{CONTROLLER_MEMBERS} members wanted, {len(homes)} nodes active"
    return Planned("expand", *gid, grown, reason)


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
    range_: Descriptor, size: int, metadata: Metadata, homes: Homes
) -> tuple[int, ...] | None:
    if size <= len(range_.members):
        return None
    zones = [metadata.nodes[member].zone for member in range_.members]
    more = homes.take(size - len(range_.members), range_.members, zones)
    return tuple(sorted((*range_.members, *more)))
