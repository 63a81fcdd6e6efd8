"""The replicas of this node, as `partitions.duties` sees them: read when they are looked at."""

from collections.abc import Iterator, Mapping

from ...partitions.lineage import Gid
from ...partitions.model import CONTROLLER_RANGE
from ...raft.types import GroupId
from ..replicas.host import Host
from ..rules.generation_ends import HeldReplica


class HeldReplicas(Mapping[Gid, HeldReplica]):
    """All replicas of ranges, as they are when they are looked at."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def __getitem__(self, gid: Gid) -> HeldReplica:
        replica = self._host.replica(GroupId(*gid))
        if replica is None:
            raise KeyError(gid)
        return HeldReplica(replica, replica.state)

    def __contains__(self, gid: object) -> bool:
        return isinstance(gid, tuple) and self._host.replica(GroupId(*gid)) is not None

    def __iter__(self) -> Iterator[Gid]:
        return iter([gid for gid in self._host.groups if gid.range_id != CONTROLLER_RANGE])

    def __len__(self) -> int:
        return sum(gid.range_id != CONTROLLER_RANGE for gid in self._host.groups)
