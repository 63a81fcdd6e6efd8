"""Derive what a node has to do, from the metadata and from what the node has, by a pure function.

The node's host calls `duties` after every change and at intervals, and runs the duties that it
returns. A duty can be run twice, or broken off anywhere, without harm; it is returned again until
the metadata or the node's state differs. `steps` finds the same duties in steps, for nodes with
thousands of replicas. Seal, prepare, install and retire are separate duties
(docs/design/ranges.md#seal-decide-install). The host decides how bytes move.
"""

from collections.abc import Collection, Generator, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, Protocol

from ..client.protocol import limits
from ..statemachine.effects import differ
from . import recovery
from .facts import COPIED, INSTALLED, PREPARED, SEALED, Report
from .lineage import Gid, same_end
from .metadata import Metadata
from .model import Descriptor, Lineage, Operation

LITTLE_BYTES = 128 * limits.KIB
"""The most that a member should leave in memory for the flush at the seal, while appends wait.

The start of a builder process takes much longer than a small file. So a member without such a
process flushes before the seal, even a single byte."""
TAIL_BYTES = limits.MIB
"""A member that is ready for the seal and waits for other members flushes again above this size."""


_OTHER_HASH: Final = (
    "the state of this replica at the seal has another hash than the state of its peers"
)
_OTHER_EFFECTS: Final = (
    "the entries of the generation had another effect on this replica than on its peers: "
    "the hashes of their seqs, replies and changed rows differ"
)


class Replica(Protocol):
    """A replica on this node that takes part in its generation."""

    @property
    def leads(self) -> bool: ...

    @property
    def leader(self) -> int | None:
        """The leader, as far as this member knows."""

    @property
    def members(self) -> tuple[int, ...]: ...

    @property
    def sealed(self) -> bool:
        """Whether the generation's last entry is applied."""

    @property
    def end(self) -> Lineage | None:
        """How the generation ended, once its whole state is durable outside the log."""

    @property
    def memtable_bytes(self) -> int: ...

    @property
    def base_wanted(self) -> bool:
        """Whether the leader's log no longer continues this replica's log."""

    @property
    def effects(self) -> bytes:
        """The hash of what the entries did, where `end` is set; see `statemachine.effects`."""

    @property
    def stopped(self) -> bool:
        """The replica takes no part any more, until the next start of the node."""


class Held(NamedTuple):
    """A `Replica` as it was at one moment."""

    leads: bool
    leader: int | None
    members: tuple[int, ...]
    sealed: bool
    end: Lineage | None
    memtable_bytes: int
    base_wanted: bool
    effects: bytes = b""
    stopped: bool = False


@dataclass(frozen=True, slots=True)
class Local:
    """The state of this node."""

    node_id: int
    replicas: Mapping[Gid, Replica] = field(default_factory=dict)
    damaged: Collection[Gid] = ()
    """Generations whose replica on this node is damaged and takes no part any more."""
    halted: Collection[Gid] = ()
    """Generations whose replica on this node met a command of a newer program."""
    marks: Mapping[int, int] = field(default_factory=dict)
    """The highest generation of each range that ever began on this node (x3)."""
    copied: Collection[tuple[int, Gid]] = ()
    """Operations and inputs for which this node has done `Copy`."""
    prepared: Mapping[tuple[int, Gid], Lineage | None] = field(default_factory=dict)
    """Operations and inputs whose sealed state this node has stored without being a member, with
    how each input ended."""
    prepared_effects: Mapping[tuple[int, Gid], bytes] = field(default_factory=dict)
    """The hash of what the entries did, for the same operations and inputs."""
    builds_at_once: bool = True
    """Whether a builder process of this node waits for work."""


Source = Literal["own", "recovered", "prepared", "peers"]
"""Where a parent's state at its end is: "own": in the replica here; "recovered": in the replica
here, without entries that only other members had; "prepared": where `Prepare` put it; "peers": on
other nodes."""


@dataclass(frozen=True, slots=True)
class Begin:
    """Begin a generation on this node.

    With `late` the parents are retired and gone. The generation then begins from any later base of
    its own. This node has had no part in it, and is a follower far behind (x2.16).
    """

    range_: Descriptor
    campaign: bool
    """Whether to campaign for the leadership."""
    parents: tuple[Source, ...] = ()
    """Where the state of each parent is, in the order of the lineage; a generation without parents
    begins empty."""
    late: bool = False


@dataclass(frozen=True, slots=True)
class Tell:
    """Report to the controller's leader."""

    operation: int
    kind: str
    lineage: Lineage | None = None
    effects: bytes = b""
    """The hash of what the entries did."""

    def report(self) -> Report:
        """Return what is reported."""
        end = {} if self.lineage is None else {
            "lineage": list(self.lineage), "effects": self.effects
        }  # fmt: skip
        return {"operation": self.operation, "kind": self.kind, **end}


@dataclass(frozen=True, slots=True)
class Copy:
    """Fetch the current files of a generation, while it goes on, and keep them.

    Where this node has a replica, flush its memtable instead, so that little is left for the seal.
    """

    gid: Gid
    operation: int


@dataclass(frozen=True, slots=True)
class Flush:
    """Flush the replica's memtable into files."""

    gid: Gid


@dataclass(frozen=True, slots=True)
class Seal:
    """End the generation, as its leader."""

    gid: Gid
    operation: int


@dataclass(frozen=True, slots=True)
class LearnEnd:
    """Take the generation's entries up to its last one, of this index and term, for committed.

    A decided operation says so. The replica here may be the only one left that has these entries,
    and then has no leader that could tell.
    """

    gid: Gid
    index: int
    term: int


@dataclass(frozen=True, slots=True)
class Prepare:
    """Fetch the state at the end of a sealed generation, and store it durably."""

    gid: Gid
    operation: int


@dataclass(frozen=True, slots=True)
class CatchUp:
    """Install the leader's base, in the same generation (docs/design/ranges.md#bases)."""

    gid: Gid


@dataclass(frozen=True, slots=True)
class Damage:
    """Stop the replica here, because its state is wrong."""

    gid: Gid
    reason: str


@dataclass(frozen=True, slots=True)
class GoAlone:
    """Go on as the generation's only member, only to end the generation (see `recovery`)."""

    gid: Gid
    operation: int


@dataclass(frozen=True, slots=True)
class StandDown:
    """Take no part in the generation: its range goes on from another member alone."""

    gid: Gid


@dataclass(frozen=True, slots=True)
class Retire:
    """Free these generations.

    The metadata says explicitly that they are over, and their successors have begun here (x2.17).
    """

    gids: tuple[Gid, ...]


Duty = (
    Begin
    | Tell
    | Copy
    | Flush
    | Seal
    | LearnEnd
    | Prepare
    | CatchUp
    | Damage
    | GoAlone
    | StandDown
    | Retire
)


def name_of(duty: Duty) -> Hashable:
    """Return the name of a duty; duties of the same name never run at the same time."""
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
    """Return all duties that the node has now."""
    finding = steps(metadata, local)
    while True:
        try:
            next(finding)
        except StopIteration as done:
            found: list[Duty] = done.value
            return found


def steps(metadata: Metadata, local: Local) -> Generator[None, None, list[Duty]]:
    """Return all duties that the node has, found in steps of a few microseconds.

    The metadata and the node may change between two steps. Each step looks at one range, operation
    or replica at one moment, and each duty but `Retire` depends on one of these alone. A duty that
    a change makes due behind the steps is found the next time.

    `Retire` frees a generation unless a `Begin` needs the generation. Generations that are over are
    therefore found first: once a generation is over, the metadata have had its successors, and no
    later change makes a successor that needs the generation.
    """
    done: list[Gid] = []
    for gid in (*local.replicas, *local.damaged):
        if metadata.is_done(*gid):
            done.append(gid)
        yield
    found: list[Duty] = []
    for range_id in list(metadata.ranges):
        range_ = metadata.ranges.get(range_id)
        if range_ is not None and local.node_id in range_.members:
            _member_of(range_, metadata, local, found)
        yield
    parents = {
        (parent.range_id, parent.generation)
        for duty in found
        if isinstance(duty, Begin)
        for parent in duty.range_.lineage
    }
    for operation in list(metadata.operations.values()):
        _part_in(operation, metadata, local, found)
        yield
    for gid in list(local.replicas):
        held = local.replicas.get(gid)
        if held is not None and held.base_wanted and not held.sealed and not held.stopped:
            found.append(CatchUp(gid))
        yield
    over = [gid for gid in done if gid not in parents and gid not in local.halted]
    if over:
        found.append(Retire(tuple(over)))
    return found


def _part_in(operation: Operation, metadata: Metadata, local: Local, found: list[Duty]) -> None:
    """Find the node's part in an operation."""
    if operation.kind == recovery.KIND and _parts(operation, local, found):
        return
    if operation.phase == "PLANNED":
        _copy_ahead(operation, local, found)
    elif operation.phase == "SEALING":
        _seal_and_prepare(operation, local, found)
    else:
        _end_alone(operation, metadata, local, found)
    if operation.phase == "DECIDED" and _has_begun(operation, local):
        found.append(Tell(operation.operation_id, INSTALLED))


def _member_of(range_: Descriptor, metadata: Metadata, local: Local, found: list[Duty]) -> None:
    gid = (range_.range_id, range_.generation)
    if gid in local.replicas or local.marks.get(range_.range_id, 0) >= range_.generation:
        return  # a generation that began here before and is gone takes no part again
    if not range_.lineage:
        first = range_.members[range_.range_id % len(range_.members)]  # spreads the leaders
        found.append(Begin(range_, first == local.node_id))
        return
    if any((parent.range_id, parent.generation) in local.halted for parent in range_.lineage):
        return  # this program may not know all parts of the parents' final states
    operation = metadata.operations.get(range_.operation)
    sources = tuple(_source(*end, operation, local, found) for end in range_.ends())
    first_parent = range_.lineage[0]
    held = local.replicas.get((first_parent.range_id, first_parent.generation))
    campaigns = held is not None and _campaigns(range_, held, local)
    over = all(metadata.is_done(parent.range_id, parent.generation) for parent in range_.lineage)
    late = over and "peers" in sources  # the other members have deleted the parents' states
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
        # The same entries produced a different state here (x6).
        found.append(Damage(gid, _OTHER_EFFECTS if wrong else _OTHER_HASH))
    return "peers"


def _campaigns(range_: Descriptor, held: Replica, local: Local) -> bool:
    """Whether this node campaigns for the next generation.

    The leader of the ended generation leads the next one if it is a member. Otherwise exactly one
    of the staying members campaigns at once: two candidates would split the votes.
    """
    if held.leads or held.leader is None or held.leader in range_.members:
        return held.leads
    staying = [node for node in range_.members if node in held.members]
    return staying[range_.range_id % len(staying)] == local.node_id  # spreads the leaders


def _copy_ahead(operation: Operation, local: Local, found: list[Duty]) -> None:
    """Let leaving members flush too: new members may copy from them, and seals are shorter."""
    wanted = _is_wanted(operation, local)
    if not wanted and local.replicas.keys().isdisjoint(operation.inputs):
        return
    ready = wanted
    for gid in operation.inputs:
        done = (operation.operation_id, gid) in local.copied
        held = local.replicas.get(gid)
        little_bytes = LITTLE_BYTES if local.builds_at_once else 0
        tail_bytes = TAIL_BYTES if done else little_bytes
        if not done if held is None else held.memtable_bytes > tail_bytes:
            found.append(Copy(gid, operation.operation_id))
            ready &= done  # one is enough: under load the memtable grows during a flush
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


def _end_alone(operation: Operation, metadata: Metadata, local: Local, found: list[Duty]) -> None:
    """Let each input end here, also where no leader is left: others may need its state."""
    ends = {end[:2]: end for end in _lineage_of(operation, metadata)}
    for gid in operation.inputs:
        held = local.replicas.get(gid)
        if held is None or held.stopped or held.end is not None:
            continue
        if held.sealed:
            found.append(Flush(gid))
        elif gid in ends:
            found.append(LearnEnd(gid, ends[gid].final_index, ends[gid].final_term))


def _lineage_of(operation: Operation, metadata: Metadata) -> tuple[Lineage, ...]:
    """Return how the inputs of a decided operation ended."""
    for output in operation.outputs:
        range_ = metadata.ranges.get(output.range_id)
        if range_ is not None and range_.operation == operation.operation_id:
            return range_.lineage
    return ()


def _parts(operation: Operation, local: Local, found: list[Duty]) -> bool:
    """Whether the node, in an unsafe recovery, must still leave the others or has no other duty.

    A node whose replica is sealed has left already: this adds no duty for it.
    """
    (gid,) = operation.inputs
    held = local.replicas.get(gid)
    if not _is_wanted(operation, local):
        if held is not None and not held.stopped:
            found.append(StandDown(gid))
        return True
    if held is None:
        return operation.phase == "SEALING"  # the replica is damaged, or lacks a file
    if not held.stopped and (held.sealed or held.members == (local.node_id,)):
        return False
    found.append(GoAlone(gid, operation.operation_id))
    return True


def _has_begun(operation: Operation, local: Local) -> bool:
    """Whether every output of a decided operation that belongs on this node has begun here."""
    own = {
        (output.range_id, output.generation)
        for output in operation.outputs
        if local.node_id in output.members
    }
    return bool(own) and all(gid in local.replicas for gid in own)


def _is_wanted(operation: Operation, local: Local) -> bool:
    """Whether the node is to be a member of an output."""
    return any(local.node_id in output.members for output in operation.outputs)
