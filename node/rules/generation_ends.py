"""What a node holds of generations and of their ends, as input for `partitions.duties`."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from ...partitions.duties import Held
from ...partitions.lineage import Gid, effects_of, lineage_of
from ...partitions.model import Lineage, Operation
from ...statemachine.effects import differ
from ...statemachine.range_state import Base, RangeState
from ..directory import meta_keys

End = tuple[Lineage, bytes]
"""How a generation ended, and the hash of the effects of its entries."""


def end_of(gid: Gid, base: Base) -> Lineage | None:
    """Return the end of a generation if the base is at its seal, else None."""
    return lineage_of(gid, (base.applied_index, base.applied_term), base.tables)


def is_at(gid: Gid, base: Base, end: End) -> bool:
    """Whether the base is the state at that end: the same entries, which did the same (x6)."""
    lineage, effects = end
    return end_of(gid, base) == lineage and not differ(effects_of(base.tables), effects)


class RaftState(Protocol):
    """What `held` reads of a replica's Raft group; see `raft.group.Group`."""

    @property
    def base_wanted(self) -> bool: ...


class Taking(Protocol):
    """What `held` reads of a replica."""

    gid: Any
    stopped: bool

    @property
    def leads(self) -> bool: ...

    @property
    def leader(self) -> int | None: ...

    @property
    def members(self) -> tuple[int, ...]: ...

    @property
    def group(self) -> RaftState: ...


def held(replica: Taking, state: RangeState) -> Held:
    """Return what a node has in a replica. The end counts once it is durable outside the log."""
    base = state.durable_base
    return Held(
        leads=replica.leads,
        leader=replica.leader,
        members=replica.members,
        sealed=state.sealed is not None,
        end=None if state.sealed is None else end_of(replica.gid, base),
        memtable_bytes=state.memtable_bytes,
        base_wanted=replica.group.base_wanted,
        effects=effects_of(base.tables),
        stopped=replica.stopped,
    )


# States that are prepared for an operation by a node that is no member of the generation.


class Prepared(NamedTuple):
    """The ends of generations that are prepared here, by operation and generation."""

    ends: dict[tuple[int, Gid], Lineage | None]
    effects: dict[tuple[int, Gid], bytes]


def prepared_puts(operation: int, gid: Gid, base: Base) -> dict[str, Any]:
    """Return the row that stores a generation's state at its end, by key."""
    row = {"range": gid[0], "generation": gid[1], "base": base.to_wire()}
    return {meta_keys.prepared_key(operation, gid[0]): row}


def prepared_end(row: Mapping[str, Any]) -> Lineage | None:
    """Return the end of the generation that a prepared row holds."""
    return end_of((row["range"], row["generation"]), Base.from_wire(row["base"]))


def prepared(operations: Mapping[int, Operation], get: Callable[[str], Any]) -> Prepared:
    """Return what is prepared here; `get` returns the row of a key of meta, or None."""
    found = Prepared({}, {})
    for number, operation in operations.items():
        for gid in operation.inputs:
            row = get(meta_keys.prepared_key(number, gid[0]))
            if row is not None:
                base = Base.from_wire(row["base"])
                found.ends[number, gid] = end_of(gid, base)
                found.effects[number, gid] = effects_of(base.tables)
    return found
