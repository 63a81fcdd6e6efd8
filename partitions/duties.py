"""What the metadata asks of a node, given what it has: a list of duties, from a pure function.

Whoever runs a node asks `duties` after every change and now and then, and does what it is told;
each duty can be done twice, or broken off anywhere, without harm, and is asked for again until the
metadata or what the node has is different. Seal, prepare, install and retire are told apart here
(docs/design/ranges.md#seal-decide-install); how bytes move is the runner's.
"""

from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from ..client.protocol import limits
from ..statemachine.effects import differ
from . import recovery
from .facts import COPIED, INSTALLED, PREPARED, SEALED
from .lineage import Gid, same_end
from .metadata import Metadata
from .model import Descriptor, Lineage, Operation

LITTLE_BYTES = 128 * limits.KIB
"""What a member leaves in memory for the flush at the seal, while appends wait, if it can."""
TAIL_BYTES = limits.MIB
"""When a member that was ready for the seal, and waits for others, flushes once more."""


_OTHER_HASH: Final = "the state at the seal has another hash than its peers'"
_OTHER_EFFECTS: Final = (
    "the entries of the generation did something else here than with its peers: the hash of their "
    "seqs, replies and changed rows is another one"
)


class Held(NamedTuple):
    """A replica that takes part here."""

    leads: bool
    leader: int | None
    """As far as this member knows."""
    members: tuple[int, ...]
    sealed: bool
    """The generation's last entry is applied."""
    end: Lineage | None
    """How the generation ended, once all of it is durable outside the log."""
    memtable_bytes: int
    base_wanted: bool
    """The leader's log no longer continues this one's."""
    effects: bytes = b""
    """Where `end` is: the hash of what the entries did; see `statemachine.effects`."""
    stopped: bool = False
    """It takes no part any more, until the next start of the node."""


@dataclass(frozen=True, slots=True)
class Local:
    """What this node has."""

    node_id: int
    replicas: Mapping[Gid, Held] = field(default_factory=dict)
    damaged: Collection[Gid] = ()
    """Generations whose replica here takes no part any more."""
    halted: Collection[Gid] = ()
    """Generations whose replica here met a command of a newer program."""
    marks: Mapping[int, int] = field(default_factory=dict)
    """Per range the highest generation that was ever begun here (x3)."""
    copied: Collection[tuple[int, Gid]] = ()
    """Operations and inputs for which `Copy` was done here."""
    prepared: Mapping[tuple[int, Gid], Lineage | None] = field(default_factory=dict)
    """Operations and inputs of which this node, no member itself, has stored the sealed state: how
    it ended."""
    prepared_effects: Mapping[tuple[int, Gid], bytes] = field(default_factory=dict)
    """The same: the hash of what the entries did."""


Source = Literal["own", "recovered", "prepared", "peers"]
"""Where a parent's state at its end is: in the replica here, there too but without what only others
had, where `Prepare` put it, with other nodes."""


@dataclass(frozen=True, slots=True)
class Begin:
    """Begin a generation here.

    Of `late` the parents are over and gone: it begins from any later base of the generation
    itself, in which this node has had no part and is then a follower far behind (x2.16).
    """

    range_: Descriptor
    campaign: bool
    """Ask for the lead."""
    parents: tuple[Source, ...] = ()
    """Where those of the lineage are, in its order; what has none begins with nothing."""
    late: bool = False


@dataclass(frozen=True, slots=True)
class Tell:
    """Report to the controller's leader."""

    operation: int
    kind: str
    lineage: Lineage | None = None
    effects: bytes = b""
    """The hash of what the entries did."""


@dataclass(frozen=True, slots=True)
class Copy:
    """Fetch the files that a generation has now, while it goes on, and keep them. Where it has
    a replica: bring what that holds in memory into files, so that little is left for the seal."""

    gid: Gid
    operation: int


@dataclass(frozen=True, slots=True)
class Flush:
    """Bring what the replica holds in memory into files."""

    gid: Gid


@dataclass(frozen=True, slots=True)
class Seal:
    """As its leader, end the generation."""

    gid: Gid
    operation: int


@dataclass(frozen=True, slots=True)
class Prepare:
    """Fetch the state at the generation's end, once it has ended, and store it durably."""

    gid: Gid
    operation: int


@dataclass(frozen=True, slots=True)
class CatchUp:
    """Install the leader's base, in the same generation (docs/design/ranges.md#bases)."""

    gid: Gid


@dataclass(frozen=True, slots=True)
class Damage:
    """The replica here is wrong: it takes no further part."""

    gid: Gid
    reason: str


@dataclass(frozen=True, slots=True)
class GoAlone:
    """Go on as the generation's only member, to end it and for nothing else (see `recovery`)."""

    gid: Gid
    operation: int


@dataclass(frozen=True, slots=True)
class StandDown:
    """Take no part in the generation: its range goes on from another member alone."""

    gid: Gid


@dataclass(frozen=True, slots=True)
class Retire:
    """Free these generations: the metadata says positively that they are over, and what came of
    them has begun here (x2.17)."""

    gids: tuple[Gid, ...]


Duty = (
    Begin | Tell | Copy | Flush | Seal | Prepare | CatchUp | Damage | GoAlone | StandDown | Retire
)


def name_of(duty: Duty) -> Hashable:
    """Duties of one name are not done at the same time."""
    match duty:
        case Begin(range_):
            return "Begin", (range_.range_id, range_.generation)
        case Tell(operation, kind, lineage, _):
            return "Tell", operation, kind, lineage and lineage[:2]
        case Retire():
            return "Retire"
        case _:
            return type(duty).__name__, duty.gid


def duties(metadata: Metadata, local: Local) -> list[Duty]:
    """All that the node has to do now."""
    found: list[Duty] = []
    for range_ in metadata.ranges.values():
        if local.node_id in range_.members:
            _member_of(range_, metadata, local, found)
    for operation in metadata.operations.values():
        if operation.kind == recovery.KIND and _parts(operation, local, found):
            continue
        if operation.phase == "PLANNED":
            _copy_ahead(operation, local, found)
        elif operation.phase == "SEALING":
            _seal_and_prepare(operation, local, found)
        elif _has_begun(operation, local):
            found.append(Tell(operation.operation_id, INSTALLED))
    found += [
        CatchUp(gid)
        for gid, held in local.replicas.items()
        if held.base_wanted and not held.sealed and not held.stopped
    ]
    parents = {
        (parent.range_id, parent.generation)
        for duty in found
        if isinstance(duty, Begin)
        for parent in duty.range_.lineage
    }
    over = [
        gid
        for gid in (*local.replicas, *local.damaged)
        if metadata.is_done(*gid) and gid not in parents and gid not in local.halted
    ]
    if over:
        found.append(Retire(tuple(over)))
    return found


def _member_of(range_: Descriptor, metadata: Metadata, local: Local, found: list[Duty]) -> None:
    gid = (range_.range_id, range_.generation)
    if gid in local.replicas or local.marks.get(range_.range_id, 0) >= range_.generation:
        return  # what was begun here before and is gone now takes no part again
    if not range_.lineage:
        first = range_.members[range_.range_id % len(range_.members)]  # spreads the leaders
        found.append(Begin(range_, first == local.node_id))
        return
    if any((parent.range_id, parent.generation) in local.halted for parent in range_.lineage):
        return  # this program may not know all that the state at the parents' ends consists of
    operation = metadata.operations.get(range_.operation)
    sources = tuple(_source(*end, operation, local, found) for end in range_.ends())
    first_parent = range_.lineage[0]
    held = local.replicas.get((first_parent.range_id, first_parent.generation))
    campaigns = held is not None and _campaigns(range_, held, local)
    over = all(metadata.is_done(parent.range_id, parent.generation) for parent in range_.lineage)
    late = over and "peers" in sources  # who would have it has let it go
    found.append(Begin(range_, campaigns, () if late else sources, late))


def _source(
    parent: Lineage,
    effects: bytes,
    operation: Operation | None,
    local: Local,
    found: list[Duty],
) -> Source:
    gid = (parent.range_id, parent.generation)
    held = local.replicas.get(gid)
    lost = operation is not None and operation.kind == recovery.KIND
    if operation is not None:
        key = operation.operation_id, gid
        own = local.prepared_effects.get(key, b"")
        if local.prepared.get(key) == parent and not differ(own, effects):
            return "prepared"
    if held is None or held.end is None:
        return "peers"
    wrong = differ(held.effects, effects)
    if held.end == parent and not wrong:
        return "recovered" if lost else "own"
    if same_end(held.end, parent):
        # The same entries gave another state here (x6).
        found.append(Damage(gid, _OTHER_EFFECTS if wrong else _OTHER_HASH))
    return "peers"


def _campaigns(range_: Descriptor, held: Held, local: Local) -> bool:
    """Whoever led the generation that ended leads on, where it is a member of the next one too;
    else one of those who stay asks for the lead at once, and only one: two would split the votes.
    """
    if held.leads or held.leader is None or held.leader in range_.members:
        return held.leads
    staying = [node for node in range_.members if node in held.members]
    return staying[range_.range_id % len(staying)] == local.node_id  # spreads the leaders


def _copy_ahead(operation: Operation, local: Local, found: list[Duty]) -> None:
    """Who leaves flushes too: a new member may copy from it, and its seal waits for less."""
    wanted = _is_wanted(operation, local)
    if not wanted and local.replicas.keys().isdisjoint(operation.inputs):
        return
    ready = wanted
    for gid in operation.inputs:
        done = (operation.operation_id, gid) in local.copied
        held = local.replicas.get(gid)
        tail_bytes = TAIL_BYTES if done else LITTLE_BYTES
        if not done if held is None else held.memtable_bytes > tail_bytes:
            found.append(Copy(gid, operation.operation_id))
            ready &= done  # under load more comes while one flushes: once is enough to go on
    if ready:
        found.append(Tell(operation.operation_id, COPIED))


def _seal_and_prepare(operation: Operation, local: Local, found: list[Duty]) -> None:
    for gid in operation.inputs:
        held = local.replicas.get(gid)
        if held is None:
            if _is_wanted(operation, local):
                end = local.prepared.get((operation.operation_id, gid))
                if end is None:
                    found.append(Prepare(gid, operation.operation_id))
                else:
                    key = operation.operation_id, gid
                    effects = local.prepared_effects.get(key, b"")
                    found.append(Tell(operation.operation_id, PREPARED, end, effects))
        elif not held.sealed:
            if held.leads:
                found.append(Seal(gid, operation.operation_id))
        elif held.end is None:
            found.append(Flush(gid))  # the tail always goes to a file (x8)
        else:
            found.append(Tell(operation.operation_id, SEALED, held.end, held.effects))


def _parts(operation: Operation, local: Local, found: list[Duty]) -> bool:
    """Unsafe recovery: whether the node has still to leave the other members of the generation, or
    has nothing else to do for it. Who is sealed already has left: nothing follows."""
    (gid,) = operation.inputs
    held = local.replicas.get(gid)
    if not _is_wanted(operation, local):
        if held is not None and not held.stopped:
            found.append(StandDown(gid))
        return True
    if held is None:
        return operation.phase == "SEALING"  # it is damaged, or waits for a file: nobody has it
    if not held.stopped and (held.sealed or held.members == (local.node_id,)):
        return False
    found.append(GoAlone(gid, operation.operation_id))
    return True


def _has_begun(operation: Operation, local: Local) -> bool:
    """Whether all that comes out of a decided operation, and is to be here, takes part here."""
    own = {
        (output.range_id, output.generation)
        for output in operation.outputs
        if local.node_id in output.members
    }
    return bool(own) and own <= local.replicas.keys()


def _is_wanted(operation: Operation, local: Local) -> bool:
    """Whether the node is to be a member of what comes out."""
    return any(local.node_id in output.members for output in operation.outputs)
