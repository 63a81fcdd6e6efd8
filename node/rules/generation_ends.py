"""What a node holds of generations and of their ends, as input for `partitions.duties`."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

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
    """What `HeldReplica` reads of a replica's Raft group; see `raft.group.Group`."""

    @property
    def base_wanted(self) -> bool: ...


class Taking(Protocol):
    """What `HeldReplica` reads of a replica."""

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


class HeldReplica:
    """A replica as `partitions.duties` sees it: each property is read when it is looked at.

    A node with 4,096 replicas has duties for a few of them: what all of them hold is not gathered.
    """

    __slots__ = ("_replica", "_state")

    def __init__(self, replica: Taking, state: RangeState) -> None:
        self._replica, self._state = replica, state

    @property
    def leads(self) -> bool:
        """Whether this member believes that it is the leader."""
        return self._replica.leads

    @property
    def leader(self) -> int | None:
        """The leader, as far as this member knows."""
        return self._replica.leader

    @property
    def members(self) -> tuple[int, ...]:
        """The members of the generation, as this member knows them."""
        return self._replica.members

    @property
    def sealed(self) -> bool:
        """Whether the generation's last entry is applied."""
        return self._state.sealed is not None

    @property
    def end(self) -> Lineage | None:
        """How the generation ended, once its whole state is durable outside the log."""
        return end_of(self._replica.gid, self._state.durable_base) if self.sealed else None

    @property
    def effects(self) -> bytes:
        """The hash of what the entries did, where `end` is set."""
        return effects_of(self._state.durable_base.tables)

    @property
    def memtable_bytes(self) -> int:
        """The bytes that a flush would write."""
        return self._state.memtable_bytes

    @property
    def base_wanted(self) -> bool:
        """Whether the leader's log no longer continues this replica's log."""
        return self._replica.group.base_wanted

    @property
    def stopped(self) -> bool:
        """Whether the replica takes no part any more."""
        return self._replica.stopped


# States that are prepared for an operation by a node outside of the generation.


class Prepared(NamedTuple):
    """The ends of generations that are prepared here, by operation and generation."""

    ends: dict[tuple[int, Gid], Lineage | None]
    effects: dict[tuple[int, Gid], bytes]


def prepared_puts(operation: int, gid: Gid, base: Base) -> dict[str, Any]:
    """Return the row that stores a generation's state at its end, by key."""
    row = {"range": gid[0], "generation": gid[1], "base": base.to_wire()}
    return {meta_keys.prepared_key(operation, gid[0]): row}


class PreparedEnd(NamedTuple):
    """How a generation ended of which a row has the state, and the effects of its entries."""

    lineage: Lineage | None
    effects: bytes


def prepared_end(row: Mapping[str, Any]) -> PreparedEnd:
    """Return the end of the generation that a prepared row holds."""
    base = Base.from_wire(row["base"])
    return PreparedEnd(end_of((row["range"], row["generation"]), base), effects_of(base.tables))


def prepared(
    operations: Mapping[int, Operation], read: Callable[[str], PreparedEnd | None]
) -> Prepared:
    """Return what is prepared here; `read` returns the end in the row of a key, or None."""
    found = Prepared({}, {})
    for number, operation in operations.items():
        for gid in operation.inputs:
            end = read(meta_keys.prepared_key(number, gid[0]))
            if end is not None:
                found.ends[number, gid], found.effects[number, gid] = end
    return found
