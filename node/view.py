"""What this node knows of the cluster: the newest metadata image, and who leads what.

On a controller member the image is the replica's own; elsewhere it came with a heartbeat. An
image older than one that was acted on is never taken (executions 1.3).
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..client import limits
from ..partitions.metadata import Metadata
from ..partitions.model import CONTROLLER_RANGE
from ..partitions.planner import Damage
from ..partitions.policy import Policy
from ..partitions.received import received
from ..raft.types import GroupId
from ..statemachine.meta import MetaStore
from . import rows
from .leaders import NOBODY, Leaders, Told
from .sync_thread import SyncThread


class View:
    """The image and soft state. `on_change` is called after the image was replaced; `present`
    says whether a node is this one or pings."""

    def __init__(
        self,
        meta: MetaStore,
        sync: SyncThread,
        *,
        on_change: Callable[[], None],
        present: Callable[[int], bool],
    ) -> None:
        self.metadata = Metadata()
        self._announced = (0, 0)
        """Generation and version of the image that watchers were last told of."""
        self.damaged: dict[int, list[Damage]] = {}
        """Per node, its damaged replicas, as last heard."""
        self.insecure: dict[int, bool] = {}
        """Per node, whether it runs with `--insecure`, as last heard."""
        self.leaders = Leaders()
        self._present = present
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

    def policy(self, log_id: int) -> Policy | None:
        """The policy of a log, None when it is gone."""
        record = self.metadata.logs.get(log_id)
        return None if record is None else record.policy

    def _is_newer(self, metadata: Metadata) -> bool:
        mine = (self.metadata.controller.generation, self.metadata.version)
        return (metadata.controller.generation, metadata.version) > mine

    async def take(self, image: Any) -> None:
        """Act on an image from elsewhere, once it is stored.

        Raises RemoteProtocolError for what is no image, Conflict for one that contradicts what this
        node knows.
        """
        metadata = received(image, self.metadata)
        if not self._is_newer(metadata):
            return
        await self._sync.run(lambda: self._meta.commit({rows.IMAGE: image}))
        if self._is_newer(metadata):
            self.metadata = metadata
            self.announce()

    def follow_replica(self, metadata: Metadata) -> None:
        """This node is a controller member: its replica's metadata is the image."""
        mine = (self.metadata.controller.generation, self.metadata.version)
        theirs = (metadata.controller.generation, metadata.version)
        if theirs >= mine:
            self.metadata = metadata
            if theirs != self._announced:
                self.announce()

    def announce(self) -> None:
        """Something that watchers care about has changed."""
        self._announced = (self.metadata.controller.generation, self.metadata.version)
        self._forget_leaders()
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
        self._on_change()

    def _forget_leaders(self) -> None:
        """Of ranges that are over. What is said of one that the image does not know yet stays."""
        metadata = self.metadata
        for range_id in self.leaders.range_ids() - metadata.ranges.keys() - {CONTROLLER_RANGE}:
            told = self.leaders[range_id]
            if told is not None and metadata.is_done(range_id, told.generation):
                self.leaders.forget(range_id)

    async def changed(self, timeout_s: float) -> None:
        """Return at the next change, or after the timeout."""
        event = self._changed
        try:
            async with asyncio.timeout(timeout_s):
                await event.wait()
        except TimeoutError:
            return

    def learn(self, gid: GroupId, term: int, leader: int) -> None:
        """What a replica of this node knows of its leader."""
        self.leaders.learn(gid.range_id, Told(gid.generation, term, leader))

    def learn_leaders(self, told: Mapping[int, Sequence[int]]) -> None:
        """Learn what another node says of leaders: generation, term, node by range.

        A statement that cannot be true is left out: the statement of the highest term holds, and
        would hold against every true statement.
        """
        for range_id, row in told.items():
            leader = Told(*row)
            if self._may_lead(range_id, leader):
                self.leaders.learn(range_id, leader)

    def _may_lead(self, range_id: int, told: Told) -> bool:
        """Whether the statement can be true: of a member, of a generation that the image has, and
        of a term in reach. Metadata comes before the statements that need the metadata."""
        metadata = self.metadata
        range_ = metadata.ranges.get(range_id)
        if range_id == CONTROLLER_RANGE:
            range_ = metadata.controller
        if range_ is None or told.generation > range_.generation:
            return False
        known = self.leaders[range_id]
        term = known.term if known is not None and known.generation == told.generation else 0
        if told.term - term > limits.term_jump_max:
            return False
        return told.generation < range_.generation or told.node in (NOBODY, *range_.members)

    def forget_controller_leader(self) -> None:
        """It did not answer, or says that it does not lead."""
        self.leaders.forget(CONTROLLER_RANGE)

    def leader(self, range_id: int, generation: int) -> int | None:
        """The leader of that generation; None when none is known, or its node is missing
        (executions 2.27)."""
        told = self.leaders[range_id]
        if told is None or told.generation != generation or told.node == NOBODY:
            return None
        return told.node if self._present(told.node) else None

    def elected(self, range_id: int, generation: int) -> int | None:
        """As `leader`, but not by hearsay: whom a node names that does not lead the controller
        itself may lead the generation before, of which the next has begun nowhere else."""
        told = self.leaders[range_id]
        return self.leader(range_id, generation) if told is not None and told.term else None

    def controller_leader(self) -> int | None:
        """The controller's leader, as last heard."""
        return self.leader(CONTROLLER_RANGE, self.metadata.controller.generation)
