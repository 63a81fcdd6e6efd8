"""What this node knows of the cluster: the newest metadata image, and who leads what.

On a controller member the image is the replica's own; elsewhere it came with a heartbeat. An
image older than one that was acted on is never taken (executions 1.3).
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

from ..client.errors import InvalidArgument
from ..partitions.metadata import Metadata
from ..partitions.model import CONTROLLER_RANGE
from ..partitions.planner import Damage
from ..statemachine.meta import MetaStore
from . import rows
from .host import Host
from .sync_thread import SyncThread

LEADER_KNOWN_S = 4.0
"""A leader not heard of for this long is not told as one; heartbeats come twice a second."""


class View:
    """The image and soft state. `on_change` is called after the image was replaced."""

    def __init__(self, meta: MetaStore, sync: SyncThread, on_change: Callable[[], None]) -> None:
        self.metadata = Metadata()
        self.damaged: dict[int, list[Damage]] = {}
        """Per node, its damaged replicas, as last heard."""
        self._leaders: dict[int, tuple[int, int, int]] = {}
        self._leader_heard_at: dict[int, float] = {}
        self._meta = meta
        self._sync = sync
        self._on_change = on_change
        self._changed: asyncio.Event = asyncio.Event()

    def load(self) -> None:
        """The newest image that is stored here. Raises CorruptData.

        A controller member has its own replica's, also when that replica is damaged: it says
        where the others are, who have a newer one. What is old in it does no harm, since no
        generation is begun here twice (executions 1.3).
        """
        images = [row["image"] for _, row in self._meta.items(rows.CONTROLLER)]
        image = self._meta.get(rows.IMAGE)
        for stored in images if image is None else (image, *images):
            metadata = Metadata.from_image(stored)
            if self._is_newer(metadata):
                self.metadata = metadata

    def _is_newer(self, metadata: Metadata) -> bool:
        mine = (self.metadata.controller.generation, self.metadata.version)
        return (metadata.controller.generation, metadata.version) > mine

    async def take(self, image: dict[str, Any]) -> None:
        """Act on an image from elsewhere, once it is stored."""
        metadata = Metadata.from_image(image)
        if not self._is_newer(metadata):
            return
        await self._sync.run(lambda: self._meta.commit({rows.IMAGE: image}))
        if self._is_newer(metadata):
            self.metadata = metadata
            self.announce()

    def follow_replica(self, metadata: Metadata) -> None:
        """This node is a controller member: its replica's metadata is the image."""
        mine = (self.metadata.controller.generation, self.metadata.version)
        if (metadata.controller.generation, metadata.version) >= mine:
            self.metadata = metadata
            self.announce()

    def announce(self) -> None:
        """Something that watchers care about has changed."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
        self._on_change()

    async def changed(self, timeout_s: float) -> None:
        """Return at the next change, or after the timeout."""
        event = self._changed
        try:
            async with asyncio.timeout(timeout_s):
                await event.wait()
        except TimeoutError:
            return

    @property
    def leaders(self) -> dict[int, tuple[int, int, int]]:
        """Per range: (generation, term, node id) of the leader, if it was heard of lately."""
        horizon = time.monotonic() - LEADER_KNOWN_S
        return {
            range_id: told
            for range_id, told in self._leaders.items()
            if self._leader_heard_at[range_id] >= horizon
        }

    def learn_leaders(self, leaders: Mapping[Any, Any]) -> None:
        """What another node says of leaders; the higher (generation, term) wins.

        Raises InvalidArgument for what is none, having learnt nothing.
        """
        news = {}
        for range_id, told in leaders.items():
            if (
                not isinstance(told, list | tuple)
                or [type(range_id), *map(type, told)] != [int] * 4
            ):
                raise InvalidArgument("leaders that are none", what="leaders")
            news[range_id] = (told[0], told[1], told[2])
        for range_id, leader in news.items():
            self._learn_leader(range_id, leader)

    def learn_own(self, host: Host) -> None:
        """Leaders that this node's replicas know of, the controller's among them."""
        for replica in host.groups.values():
            leader = replica.leader
            if leader is not None:
                told = (replica.gid.generation, replica.group.term, leader)
                self._learn_leader(replica.gid.range_id, told)

    def _learn_leader(self, range_id: int, told: tuple[int, int, int]) -> None:
        known = self._leaders.get(range_id, (0, 0, 0))
        if told[:2] >= known[:2]:
            self._leaders[range_id] = told
            self._leader_heard_at[range_id] = time.monotonic()

    def forget_controller_leader(self) -> None:
        """It did not answer, or says that it does not lead."""
        self._leaders.pop(CONTROLLER_RANGE, None)

    def leader(self, range_id: int, generation: int) -> int | None:
        """The leader of that generation, None when none was heard of lately (executions 2.27)."""
        known = self._leaders.get(range_id)
        if known is None or known[0] != generation:
            return None
        if time.monotonic() - self._leader_heard_at[range_id] > LEADER_KNOWN_S:
            return None
        return known[2]

    def controller_leader(self) -> int | None:
        """The controller's leader, as last heard."""
        return self.leader(CONTROLLER_RANGE, self.metadata.controller.generation)
