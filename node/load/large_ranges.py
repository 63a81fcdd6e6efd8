"""Finds ranges led here that are larger than their log's policy allows, and the small ones.

Large ranges are sent with the heartbeat to the controller's leader, which plans a split at the key
that halves the bytes. A range is measured only when its files are large enough, and again only when
they have changed. A file that is shared since a split counts with the range's part of it.
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
from ...statemachine.segment_format import SegmentInfo
from ...statemachine.split_key import SplitKey
from ..metadata.view import View
from ..replicas.host import Host
from ..replicas.range_replica import RangeReplica
from ..replicas.read_turns import in_turns
from ..runtime.slices import in_slices
from .small_ranges import small_ranges

_PERIOD_S: Final = 5.0
_LOOKING_SHARE: Final = 20
"""Checks of all ranges take at most one part in this many of the time."""

log = logging.getLogger("lognode.large")


class LargeRanges:
    """Runs on every node. `on_damaged` is called with damage that a check found."""

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
        """Small ranges that the last check found."""
        self._looked: dict[GroupId, tuple[list[SegmentInfo], int, bytes | None]] = {}
        """Per generation: the measured manifest, its bytes, and the key that halves them; None: one
        key has them all."""

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            began = time.monotonic()
            await self.look()
            await asyncio.sleep(max(_PERIOD_S, _LOOKING_SHARE * (time.monotonic() - began)))

    async def look(self) -> None:
        """Check all ranges once."""
        told: list[Large] = []
        looked = {}
        for replica, bound in await in_slices(self._bounds()):
            if bound is None:
                continue
            try:
                found = await self._halved(replica)
            except LognodeError as error:
                log.info("range size is not valid", extra={"fields": {"range": replica.gid.range_id,
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
        """Return the range's limit of bytes; None: its files are smaller, or it is not led here."""
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
        while not await in_turns(replica, search.step):  # noqa: ASYNC110  works, and does not poll
            await asyncio.sleep(0)
        return manifest, search.size, search.key
