"""Which states a duty takes from peers: from whom, which of them fit, and how long files stay.

The files of a fetched base are pinned before the first of them arrives. They stay until a row of
meta names them, or until nobody wants them any more.
"""

from collections.abc import Collection, Container, Hashable, Iterable, Mapping
from typing import Any, NamedTuple

from ...partitions import duties
from ...partitions.duties import Duty
from ...partitions.lineage import Gid
from ...partitions.metadata import Metadata
from ...partitions.model import Descriptor
from ...statemachine.range_state import Base
from ..directory import meta_keys
from .generation_ends import End, is_at, prepared_puts


class Own(NamedTuple):
    """The parent's state is that of the replica here."""

    gid: Gid


class Stored(NamedTuple):
    """The parent's state is in the row of meta with this key."""

    gid: Gid
    key: str


class Fetch(NamedTuple):
    """The parent's state comes from a peer that holds exactly this end."""

    gid: Gid
    end: End


Parent = Own | Stored | Fetch


def parents_of(duty: duties.Begin) -> list[Parent]:
    """Return where the state of each parent is, in the order of the lineage.

    Not for a late begin, whose parents are gone.
    """
    found: list[Parent] = []
    for end, source in zip(duty.range_.ends(), duty.parents, strict=True):
        gid = end[0][:2]
        match source:
            case "own" | "recovered":
                found.append(Own(gid))
            case "prepared":
                found.append(Stored(gid, meta_keys.prepared_key(duty.range_.operation, gid[0])))
            case "peers":
                found.append(Fetch(gid, end))
    return found


def fits(duty: Duty, gid: Gid, base: Base, applied: int = 0) -> bool:
    """Whether a peer's base of the generation is what the duty needs.

    `applied`: what the replica here has applied, for a `CatchUp`. A base at the end of a parent is
    used only when it is exactly the end that was decided (x6).
    """
    match duty:
        case duties.CatchUp():
            return base.applied_index > applied
        case duties.Prepare():
            return bool(base.tables.get("sealed"))
        case duties.Begin(range_, late=False):
            return any(is_at(gid, base, end) for end in range_.ends())
    return True


def peers_to_ask(metadata: Metadata, node_id: int, gid: Gid) -> list[int]:
    """Return the other nodes, beginning with the last known members of the range."""
    range_ = metadata.ranges.get(gid[0])
    members: Collection[int] = range_.members if range_ is not None else ()
    nodes = [
        node.node_id
        for node in metadata.nodes.values()
        if node.node_id != node_id and node.state != "REMOVED"
    ]
    return sorted(nodes, key=lambda node: node not in members)


def sources_of(
    duty: Duty, gid: Gid, metadata: Metadata, node_id: int, first: int | None
) -> list[int]:
    """Return the nodes to ask for a base of the generation, in order; empty: nobody for now.

    `first` is the leader of the generation, as far as it is known, or another node to ask first.
    Only the leader's base is known to lie where the leader's log continues
    (docs/design/ranges.md#bases), so a `CatchUp` asks nobody else.
    """
    match duty:
        case duties.CatchUp():
            return [] if first in (None, node_id) else [first]
    nodes = peers_to_ask(metadata, node_id, gid)
    return sorted(nodes, key=lambda node: node != first)


class Reinstall(NamedTuple):
    """The replica here continues from the base."""

    base: Base


class Copied(NamedTuple):
    """The files were what the duty needs; they stay for the operation."""

    operation: int
    gid: Gid


class Store(NamedTuple):
    """These rows of meta store the state: it is the parent's, at its end."""

    puts: Mapping[str, Any]


class BeginLate(NamedTuple):
    """The generation begins here from the base."""

    range_: Descriptor
    base: Base


class KeepEnd(NamedTuple):
    """The base is the state of a parent at its end."""

    base: Base


Use = Reinstall | Copied | Store | BeginLate | KeepEnd


def use_of(duty: Duty, gid: Gid, base: Base) -> Use:
    """Return the use of a peer's base that fits the duty and whose files are here."""
    match duty:
        case duties.CatchUp():
            return Reinstall(base)
        case duties.Copy(_, operation):
            return Copied(operation, gid)
        case duties.Prepare(_, operation):
            return Store(prepared_puts(operation, gid, base))
        case duties.Begin(range_, late=True):
            return BeginLate(range_, base)
    return KeepEnd(base)


class Pin(NamedTuple):
    """The name under which the files of a generation are pinned for a duty."""

    operation: int | None
    """The files stay until this operation is over; None: while the duty `name` exists."""
    name: Hashable
    gid: Gid


def pin_of(duty: Duty, gid: Gid) -> Pin:
    """Return the pin of a generation's files.

    What was copied ahead must be there at the seal, and what was prepared until the next generation
    begins. A peer's base for another duty is used at once.
    """
    match duty:
        case duties.Copy(_, operation) | duties.Prepare(_, operation):
            return Pin(operation, None, gid)
    return Pin(None, duties.name_of(duty), gid)


def unpinned(
    pins: Iterable[Pin], operations: Container[int], names: Container[Hashable]
) -> list[Pin]:
    """Return the pins that are over: `names` are the duties that exist or are under way."""
    return [
        pin
        for pin in pins
        if (pin.name not in names if pin.operation is None else pin.operation not in operations)
    ]


def prepared_over(
    keys: Iterable[str], operations: Container[int], found: Iterable[Duty]
) -> list[str]:
    """Return the keys of prepared states that were used, or never will be.

    While a generation is still to begin, all stay: it may begin from one of them.
    """
    if any(isinstance(duty, duties.Begin) for duty in found):
        return []
    return [key for key in keys if meta_keys.prepared_operation(key) not in operations]
