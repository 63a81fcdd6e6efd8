"""The replicas of this node, as `partitions.duties` sees them: read when they are looked at.

A node with 4,096 replicas has duties for a few of them. What all of them hold is never gathered.
"""

from collections.abc import Iterator, Mapping

from ...partitions.lineage import Gid, effects_of, lineage_of
from ...partitions.model import CONTROLLER_RANGE, Lineage
from ...raft.types import GroupId
from ...statemachine.range_state import Base
from ..replicas.host import Host
from ..replicas.range_replica import RangeReplica


class HeldReplica:
    """One replica, as `partitions.duties.Replica` describes it."""

    __slots__ = ("_replica",)

    def __init__(self, replica: RangeReplica) -> None:
        self._replica = replica

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
        return self._replica.state.sealed is not None

    @property
    def end(self) -> Lineage | None:
        """How the generation ended, once its whole state is durable outside the log."""
        return end_of(self._replica.gid, self._replica.state.durable_base) if self.sealed else None

    @property
    def effects(self) -> bytes:
        """The hash of what the entries did, where `end` is set."""
        return effects_of(self._replica.state.durable_base.tables)

    @property
    def memtable_bytes(self) -> int:
        """The bytes that a flush would write."""
        return self._replica.state.memtable_bytes

    @property
    def base_wanted(self) -> bool:
        """Whether the leader's log no longer continues this replica's log."""
        return self._replica.group.base_wanted

    @property
    def stopped(self) -> bool:
        """Whether the replica takes no part any more."""
        return self._replica.stopped


class HeldReplicas(Mapping[Gid, HeldReplica]):
    """All replicas of ranges, as they are when they are looked at."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def __getitem__(self, gid: Gid) -> HeldReplica:
        replica = self._host.replica(GroupId(*gid))
        if replica is None:
            raise KeyError(gid)
        return HeldReplica(replica)

    def __contains__(self, gid: object) -> bool:
        return isinstance(gid, tuple) and self._host.replica(GroupId(*gid)) is not None

    def __iter__(self) -> Iterator[Gid]:
        return iter([gid for gid in self._host.groups if gid.range_id != CONTROLLER_RANGE])

    def __len__(self) -> int:
        return sum(gid.range_id != CONTROLLER_RANGE for gid in self._host.groups)


def end_of(gid: GroupId, base: Base) -> Lineage | None:
    """Return how the generation ended, from a base at its seal; None for any other base."""
    return lineage_of(gid, (base.applied_index, base.applied_term), base.tables)
