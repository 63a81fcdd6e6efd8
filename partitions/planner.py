"""What should be changed: a pure function from the metadata to operations.

Delivered now: a range, and the controller, grow to the largest odd number of members that the
policy asks for and the ACTIVE nodes allow.
"""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

from .metadata import Metadata, group_size
from .model import Descriptor

OPERATIONS_MAX = 4
"""Operations under way at once."""
CONTROLLER_MEMBERS = 3


@dataclass(frozen=True, slots=True)
class Planned:
    """An operation to be committed: the members that a range should have next, and why."""

    kind: str
    range_id: int
    generation: int
    members: tuple[int, ...]
    reason: str


def plan(metadata: Metadata, alive: Collection[int]) -> list[Planned]:
    """Operations to begin now; `alive` are the nodes heard from lately."""
    homes = [node.node_id for node in metadata.active_nodes() if node.node_id in alive]
    load = Counter(member for range_ in metadata.ranges.values() for member in range_.members)
    room = OPERATIONS_MAX - len(metadata.operations)
    planned: list[Planned] = []
    for range_ in sorted(metadata.ranges.values(), key=lambda r: r.range_id):
        if len(planned) >= room:
            break
        if range_.operation or not set(range_.members) <= set(homes):
            continue
        replicas = metadata.logs[range_.log_id].policy.replicas
        members = _grown(range_, group_size(replicas, len(homes)), homes, load)
        if members is not None:
            load.update(set(members) - set(range_.members))
            reason = f"{replicas} replicas wanted, {len(homes)} nodes active"
            planned.append(Planned("expand", range_.range_id, range_.generation, members, reason))
    return planned


def plan_controller(metadata: Metadata, alive: Collection[int]) -> tuple[int, ...] | None:
    """The members that the controller should have next, or None when it has them."""
    homes = [node.node_id for node in metadata.active_nodes() if node.node_id in alive]
    if metadata.sealed or not set(metadata.controller.members) <= set(homes):
        return None
    size = group_size(CONTROLLER_MEMBERS, len(homes))
    return _grown(metadata.controller, size, homes, Counter())


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
