"""How the controller's generations follow each other on the members of the old and of the new one.

The last record of a generation names the members of the next one (x29). A member that has applied
this record holds the state in which the next generation begins. The member begins the generation,
or pushes the state where it is not a member of the next one, since no other node may hold the
state. The members of the next one push it to each other until all have begun. Only then is the old
generation freed.
"""

from collections.abc import Collection, Mapping
from typing import Literal, NamedTuple

from ...partitions import buckets
from ...partitions.metadata import Metadata
from ...partitions.model import Descriptor


class ControllerMember(NamedTuple):
    """The controller's newest replica on this node."""

    descriptor: Descriptor
    next_: Descriptor
    """The generation that the replica's metadata names: its own, or the next one once sealed."""
    sealed: bool
    """Whether the last record of the generation is applied."""
    leads: bool
    needs_base: Collection[int]
    """As leader: the members whose log no longer continues this replica's log."""


class RetireBefore(NamedTuple):
    """Free the controller's generations before this one."""

    generation: int


class BeginNext(NamedTuple):
    """Begin the next generation from the state at the last record."""

    campaign: bool


class PushNext(NamedTuple):
    """Push the state in which the next generation begins, to these members of it."""

    to: frozenset[int]


class Push(NamedTuple):
    """Push the replica's own generation, as applied now, to these members."""

    to: frozenset[int]


Move = RetireBefore | BeginNext | PushNext | Push


def moves(
    node_id: int,
    known: Descriptor,
    known_sealed: bool,
    member: ControllerMember,
    begun: Mapping[int, Collection[int]],
) -> tuple[Move, ...]:
    """Return what a node does now for the generations of the controller.

    `known` is the newest controller that the node knows; `known_sealed`: its last record is known,
    too. `begun` has, per generation, the members that are known to have begun it.

    - A node outside of a later generation frees its replica once it has heard from the
      leader of that generation. A sealed generation may be this replica's own, whose state no other
      node holds yet (x29).
    - The generations before this one are freed when all other members have begun this one.
    """
    own = member.descriptor
    if known.generation > own.generation and node_id not in known.members and not known_sealed:
        return (RetireBefore(known.generation),)
    if member.sealed:
        members = frozenset(member.next_.members)
        if node_id in members:
            return (BeginNext(member.leads),)
        return (PushNext(members - frozenset(begun.get(member.next_.generation, ()))),)
    found: list[Move] = []
    others = frozenset(own.members) - {node_id}
    if own.lineage:
        missing = others - frozenset(begun.get(own.generation, ()))
        found.append(Push(missing) if missing else RetireBefore(own.generation))
    if member.leads and member.needs_base:
        found.append(Push(frozenset(member.needs_base)))
    return tuple(found)


def use_of(
    descriptor: Descriptor, applied: int, mark: int, waits: int | None
) -> Literal["begin", "reinstall"] | None:
    """Return the use of a pushed state at the entry `applied`; None: the push is not wanted.

    `mark` is the highest generation of the controller that was started here (x3). `waits` is the
    applied index of a replica of this generation here that wants a base; None without one.
    """
    if waits is not None:
        return "reinstall" if applied > waits else None
    return "begin" if mark < descriptor.generation else None


def successor(sealed: Metadata) -> Metadata:
    """Return the state in which the next generation begins."""
    metadata = buckets.copy(sealed, buckets.ALL)
    metadata.begin_generation()
    return metadata
