"""Plan changes: pure functions from the metadata, and the reports of nodes, to operations.

A range, and the controller, grow to the largest odd number of members that the policy asks for and
the ACTIVE nodes allow. A range with a damaged replica goes on into its next generation with the
same members: the damaged member takes part again there (x2). Members are replaced when their nodes
are gone or draining.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from ..client.protocol import key_partitions
from .locks import OPERATIONS_MAX
from .metadata import Metadata
from .model import Descriptor
from .placement import Homes, changing, group_size, load_of
from .replacing import Leave, replacement
from .spans import printable

CONTROLLER_MEMBERS = 3


@dataclass(frozen=True, slots=True)
class Planned:
    """An operation to commit: the next members of a range, and the reason."""

    kind: str
    range_id: int
    generation: int
    members: tuple[int, ...]
    reason: str
    at: bytes = b""
    """For a split, the first key of the new range; for a merge, the first key of the range that
    ends."""


class Large(NamedTuple):
    """The report of a range's leader that the range has more bytes or load than allowed."""

    range_id: int
    generation: int
    size: int
    """The range's bytes, or its requests per second."""
    at: bytes
    """The key that halves the bytes or the load."""
    by_load: bool = False


Damage = tuple[int, int, str]
"""Range, generation, and the description of the damage of a node's replica."""

Damages = Mapping[int, Collection[Damage]]
"""The damages that each node reports."""


_URGENCY = ("repair", "move", "expand", "split")
"""Kinds of operations, the most urgent first."""
AT_ONCE = 2
"""The most replicas that may come to a node, or leave a node that is to be emptied, by operations
under way: each of these operations makes its range wait for the flushes of the others."""
_NOBODY: Mapping[int, Leave] = MappingProxyType({})


def plan(
    metadata: Metadata,
    alive: Collection[int],
    damaged: Damages,
    leave: Mapping[int, Leave] = _NOBODY,
    resting: Collection[int] = (),
    large: Collection[Large] = (),
) -> list[Planned]:
    """Return the operations to begin now, repairs first.

    `alive` are the nodes heard from recently; `leave` are the nodes that replicas have to leave.
    `resting` are the ranges that were repaired or split recently; `large` are the ranges that their
    leaders find larger, or busier, than the policy of their log allows.
    """
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
    """Return the nodes that may get replicas."""
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
        if why.kind == "move":  # no replica is read from a node that is gone
            change |= {("from", node) for node in set(range_.members) - set(members)}
        if all(changes[each] < AT_ONCE for each in change):
            changes.update(change)
            gid = (range_.range_id, range_.generation)
            planned.append(Planned(why.kind, *gid, members, why.reason))
    return planned


def _broken(range_: Descriptor, alive: Collection[int], damaged: Damages) -> str | None:
    """Return why the range is to be repaired, or None if it needs no repair or cannot be repaired.

    A repair takes a majority of sound members, for the seal and for the state at the seal.
    """
    said = _said(range_, alive, damaged)
    if not said or 2 * len(_sound(range_, alive, damaged)) <= len(range_.members):
        return None
    return "; ".join(f"the replica of node {node}: {reason}" for node, reason in said.items())


def _said(range_: Descriptor, alive: Collection[int], damaged: Damages) -> dict[int, str]:
    """Return the live members that report a damaged replica, each with the damage."""
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
            reason = f"the range needs {replicas} replicas, and {len(homes)} nodes are active"
            planned.append(Planned("expand", range_.range_id, range_.generation, members, reason))
    return planned


def _splits(
    metadata: Metadata, alive: Collection[int], resting: Collection[int], large: Collection[Large]
) -> list[Planned]:
    """Plan splits of ranges whose members are all alive: an automatic split is never urgent."""
    planned = []
    for told in large:
        range_ = metadata.ranges.get(told.range_id)
        if range_ is None or range_.generation != told.generation or range_.operation:
            continue
        policy = metadata.logs[range_.log_id].policy
        bound = policy.split_rate if told.by_load else policy.split_bytes
        if bound is None or told.size <= bound or told.range_id in resting:
            continue
        at: bytes | None = told.at
        if policy.kafka_partitions is not None:
            at = key_partitions.bound_near(told.at, *range_.span, policy.kafka_partitions)
        if at is None or at not in range_.span or at == range_.span.start:
            continue
        if set(range_.members) <= set(alive):
            reason = _why_split(told, bound, at)
            gid = (range_.range_id, range_.generation)
            planned.append(Planned("split", *gid, range_.members, reason, at))
    return planned


def _why_split(told: Large, bound: int, at: bytes) -> str:
    if told.by_load:
        return f"load: {told.size:,}/s, more than {bound:,}/s: split at key {printable(at)}"
    return f"{told.size} bytes, more than {bound}: split in the middle"


def plan_controller(
    metadata: Metadata,
    alive: Collection[int],
    damaged: Damages,
    leave: Mapping[int, Leave] = _NOBODY,
) -> Planned | None:
    """Plan the next members of the controller; None when nothing is to change.

    A repair of a damaged member keeps the present members.
    """
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
    reason = f"the controller needs {CONTROLLER_MEMBERS} members, and {len(homes)} nodes are active"
    return Planned("expand", *gid, grown, reason)


def node_states(metadata: Metadata, heard: Collection[int]) -> list[tuple[int, str]]:
    """Return the nodes whose state changes: silent ones to DEAD, heard ones to ACTIVE."""
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
