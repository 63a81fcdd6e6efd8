"""Which states a duty takes from peers: from whom, which of them fit, and how long files stay.

The files of a fetched base are pinned before the first of them arrives. They stay until a row of
meta names them, or until nobody wants them any more.
"""

from collections.abc import Collection, Container, Hashable, Iterable
from typing import NamedTuple

from ...partitions import duties
from ...partitions.duties import Duty
from ...partitions.lineage import Gid
from ...partitions.metadata import Metadata
from ...statemachine.range_state import Base
from ..directory import meta_keys
from .generation_ends import End, is_at


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
