"""What this node knows of the cluster: the newest metadata image, and who leads what.

On a controller member the image is the replica's own; elsewhere it came with a heartbeat. An
image older than one that was acted on is never taken (executions 1.3).

An image from elsewhere is what has changed since the version that this node had. It is stored
before it is acted on: the buckets in it, and those that have changed since the last one was stored.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from ..client.errors import CorruptData
from ..partitions import buckets
from ..partitions.metadata import Metadata
from ..partitions.model import CONTROLLER_RANGE
from ..partitions.planner import Damage
from ..partitions.policy import Policy
from ..partitions.tables import Bucket
from ..raft.types import GroupId
from ..statemachine.meta import MetaStore
from . import image_pages, image_rows, leaders, rows
from .image_pages import Image
from .image_rows import ImageRows
from .leaders import NOBODY, Leaders, Told
from .sync_thread import SyncThread

_IN_PLACE: Final = 32
"""Buckets that are changed in one turn of the loop."""


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
        self.leaders = Leaders()
        self._present = present
        self._meta = meta
        self._sync = sync
        self._on_change = on_change
        self._changed: asyncio.Event = asyncio.Event()
        self._rows = ImageRows(rows.IMAGE_BUCKETS)
        self._turn = asyncio.Lock()
        self._own = self.metadata
        """The one that nobody else changes; another one is of the controller's replica here."""

    def load(self) -> None:
        """The newest image that is stored here. Raises CorruptData.

        A controller member has its own replica's, also when that replica is damaged: it says
        where the others are, who have a newer one. What is old in it does no harm, since no
        generation is begun here twice (executions 1.3).
        """
        known = []
        for _, row in self._meta.items(rows.CONTROLLER):
            stored = ImageRows(rows.controller_buckets(row["descriptor"]["generation"]))
            known.append(stored.load(self._meta.items(stored.prefix), row))
        head = self._meta.get(rows.IMAGE)
        if head is not None:
            known.append(self._rows.load(self._meta.items(self._rows.prefix), head))
        for metadata in known:
            if self._is_newer(metadata.controller.generation, metadata.version):
                self.metadata = self._own = metadata

    def policy(self, log_id: int) -> Policy | None:
        """The policy of a log, None when it is gone."""
        record = self.metadata.logs.get(log_id)
        return None if record is None else record.policy

    @property
    def known(self) -> tuple[int, int]:
        """Generation and version of the image."""
        return self.metadata.controller.generation, self.metadata.version

    def _is_newer(self, generation: int, version: int) -> bool:
        return (generation, version) > self.known

    async def take(self, image: Image) -> None:
        """Act on an image from elsewhere, once it is stored. It may be one of what has changed
        since a version that this node has had. Raises CorruptData."""
        async with self._turn:
            if not self._is_newer(image.generation, image.version):
                return
            if image.since > self.metadata.version:
                raise CorruptData("an image that says what has changed since a later version")
            if not await self._store(image):
                return
            metadata = await self._with(image)
            if self._is_newer(image.generation, image.version):
                self._apply(image, metadata)
                self.announce()

    async def _store(self, image: Image) -> bool:
        """Make what is stored that image; False, and nothing stored, when a replica here has got as
        far meanwhile. What is stored is never a mixture of two versions."""
        stored, packed = self._rows, image_rows.packed_of(image.parts)
        anew = True
        while not image.full:
            base = self.metadata
            anew = stored.version < base.changes.floor
            wanted = partial(self._unstored, base, anew)
            unstored = await image_pages.packed(base, wanted)
            if not self._is_newer(image.generation, image.version):
                return False
            if base is self.metadata:
                packed = {**unstored, **packed}
                break
        deletes: list[str] = []
        if anew:
            head, puts = stored.all(image.version, packed)
        else:
            head, puts, deletes = stored.changed(image.version, packed)
        prefixes = [stored.prefix] if anew else []
        puts[rows.IMAGE] = head
        await self._sync.run(lambda: self._meta.commit(puts, deletes, prefixes))
        return True

    def _unstored(self, metadata: Metadata, anew: bool) -> list[Bucket]:
        """What is not as it is stored: everything, or what has changed since."""
        changes = metadata.changes
        since = 0 if anew else changes.tick_of(self._rows.version)
        return [bucket for _, bucket in changes.after(since) if bucket.table in buckets.PUBLIC]

    async def _with(self, image: Image) -> Metadata | None:
        """Another metadata, with the image; None where the one here is changed in its place."""
        if image.full:
            return await image_pages.made(image)
        if self.metadata is self._own and len(image.parts) <= _IN_PLACE:
            return None
        metadata = buckets.copy(self.metadata)
        await image_pages.changed(metadata, image)
        return metadata

    def _apply(self, image: Image, metadata: Metadata | None) -> None:
        if metadata is not None:
            self.metadata = self._own = metadata
            return
        for part in image.parts:
            buckets.put(self._own, part, image.version)
        self._own.version = image.version

    def follow_replica(self, metadata: Metadata) -> None:
        """This node is a controller member: its replica's metadata is the image."""
        theirs = (metadata.controller.generation, metadata.version)
        if theirs >= self.known:
            self.metadata = metadata
            if theirs != self._announced:
                self.announce()

    def announce(self) -> None:
        """Something that watchers care about has changed."""
        self._announced = self.known
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

    def learn_leaders(self, told: Mapping[Any, Any]) -> None:
        """What another node says of leaders. Raises InvalidArgument, having learnt nothing."""
        for range_id, leader in leaders.from_wire(told).items():
            self.leaders.learn(range_id, leader)

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
