"""Ranges led here that are larger than the policy of their log wants, and where they halve; and
those that are small.

What is told travels with the heartbeat to the controller's leader, which plans a split. A range is
looked at closely only when its files are large enough, and again only when they have changed: a
file that is shared since a split counts for what the range has of it.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from typing import Final

from ...client.protocol.errors import CorruptData, LognodeError
from ...partitions.planner import Large
from ...partitions.shrinking import Small
from ...raft.types import GroupId
from ...statemachine.segment_writer import SegmentInfo
from ...statemachine.split_key import SplitKey
from ..metadata.view import View
from ..replicas.host import Host
from ..replicas.range_replica import RangeReplica
from ..replicas.read_turns import in_turns
from ..runtime.slices import in_slices
from .small_ranges import small_ranges

_PERIOD_S: Final = 5.0
_LOOKING_SHARE: Final = 20
"""Looks at all ranges take at most such a part of the time."""

log = logging.getLogger("lognode.large")


class LargeRanges:
    """Runs on every node. `on_damaged` is told what a look found."""

    def __init__(
        self,
        *,
        host: Host,
        view: View,
        on_damaged: Callable[[RangeReplica, CorruptData], None],
    ) -> None:
        self._host = host
        self._view = view
        self._on_damaged = on_damaged
        self.told: list[Large] = []
        self.small: list[Small] = []
        """Found at the last look."""
        self._looked: dict[GroupId, tuple[list[SegmentInfo], int, bytes | None]] = {}
        """Per generation the manifest that was looked at, its bytes, and the key that halves
        them; None: one key has it all."""

    async def run(self) -> None:
        """Never returns; cancel it."""
        while True:
            began = time.monotonic()
            await self.look()
            await asyncio.sleep(max(_PERIOD_S, _LOOKING_SHARE * (time.monotonic() - began)))

    async def look(self) -> None:
        """Go over all ranges once."""
        told: list[Large] = []
        looked = {}
        for replica, bound in await in_slices(self._bounds()):
            if bound is None:
                continue
            try:
                found = await self._halved(replica)
            except LognodeError as error:
                log.info("no size", extra={"fields": {"range": replica.gid.range_id,
                                                      "error": str(error)}})  # fmt: skip
                if isinstance(error, CorruptData) and not replica.stopped:
                    self._on_damaged(replica, error)
                continue
            looked[replica.gid] = found
            _, size, at = found
            if size > bound and at is not None:
                told.append(Large(*replica.gid, size, at))
        self.told, self._looked = told, looked
        self.small = await small_ranges(self._host, self._view)

    def _bounds(self) -> Iterator[tuple[RangeReplica, int | None]]:
        for replica in self._host.ranges():
            yield replica, self._bound_of(replica)

    def _bound_of(self, replica: RangeReplica) -> int | None:
        """The bytes that the range should not have more of; None: its files have no more, or it
        is not for this node to say."""
        if not replica.leads or replica.is_sealed:
            return None
        policy = self._view.policy(replica.descriptor.log_id)
        bound = None if policy is None else policy.split_bytes
        if bound is None or sum(info.size for info in replica.state.manifest) <= bound:
            return None
        return bound

    async def _halved(self, replica: RangeReplica) -> tuple[list[SegmentInfo], int, bytes | None]:
        known, manifest = self._looked.get(replica.gid), replica.state.manifest
        if known is not None and known[0] is manifest:
            return known
        search = SplitKey(replica.state)
        while not await in_turns(replica, search.step):  # noqa: ASYNC110  waits for nobody
            await asyncio.sleep(0)
        return manifest, search.size, search.key
