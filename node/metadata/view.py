"""The cluster as this node knows it: the newest metadata image, and the table of leaders.

On a controller member the image is the replica's own; on other nodes it comes with heartbeats. A
node never takes an image that is older than one it acted on (x3).

A received image holds the changes since the version that this node had. The node stores the image
before it acts on it: the image's own buckets, and the buckets that have changed since the last
image was stored.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial

from ...client.protocol import limits
from ...client.protocol.errors import CorruptData
from ...client.protocol.peers import LEADER
from ...partitions import buckets, received
from ...partitions.levels import Program
from ...partitions.metadata import Metadata
from ...partitions.model import CONTROLLER_RANGE
from ...partitions.planner import Damage
from ...partitions.policy import Policy
from ...partitions.tables import Bucket
from ...raft.types import GroupId
from ...statemachine.meta import MetaStore
from ..directory import feature_level, image_rows, meta_keys
from ..directory.image_rows import ImageRows
from ..runtime.slices import stepped
from ..runtime.sync_thread import SyncThread
from . import image_pages
from .image_pages import Image
from .leaders import NOBODY, Leaders, Told


class View:
    """The image and soft state.

    `on_change` is called after the image was replaced. `present` says whether a node is this node
    or answers pings.
    """

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
        """Generation and version of the last image that was announced to watchers."""
        self.damaged: dict[int, list[Damage]] = {}
        """Damaged replicas per node, as last heard."""
        self.halted: dict[int, list[Damage]] = {}
        """Replicas per node that wait for an upgrade of the node, as last heard."""
        self.insecure: dict[int, bool] = {}
        """Whether each node runs with `--insecure`, as last heard."""
        self.programs: dict[int, Program] = {}
        """The program of each node, as last heard."""
        self.kafka: dict[int, str] = {}
        """Where Kafka clients reach each node that serves them, as last heard."""
        self.leaders = Leaders()
        self._present = present
        self._meta = meta
        self._sync = sync
        self._on_change = on_change
        self._changed: asyncio.Event = asyncio.Event()
        self._rows = ImageRows(meta_keys.IMAGE_BUCKETS)
        self._turn = asyncio.Lock()

    def load(self) -> None:
        """Load the newest image that is stored here. Raises CorruptData.

        A controller member loads its own replica's image, even when that replica is damaged: the
        image names the other nodes, which have a newer image. Old data in it do no harm, since no
        generation is begun here twice (x3).
        """
        known = []
        for _, row in self._meta.items(meta_keys.CONTROLLER):
            stored = ImageRows(meta_keys.controller_buckets(row["descriptor"]["generation"]))
            known.append(stored.load(self._meta.items(stored.prefix), row))
        head = self._meta.get(meta_keys.IMAGE)
        if head is not None:
            known.append(self._rows.load(self._meta.items(self._rows.prefix), head))
        for metadata in known:
            if self._is_newer(metadata.controller.generation, metadata.version):
                self.metadata = metadata

    def policy(self, log_id: int) -> Policy | None:
        """Return the policy of a log, or None when the log is gone."""
        record = self.metadata.logs.get(log_id)
        return None if record is None else record.policy

    @property
    def known(self) -> tuple[int, int]:
        """Generation and version of the image."""
        return self.metadata.controller.generation, self.metadata.version

    def _is_newer(self, generation: int, version: int) -> bool:
        return (generation, version) > self.known

    async def take(self, image: Image) -> None:
        """Act on a received image, once it is checked and stored.

        The image may hold only the changes since a version that this node has had. Raises
        CorruptData and RemoteProtocolError for an invalid image, Conflict for an image that
        contradicts what this node knows.
        """
        async with self._turn:
            if not self._is_newer(image.generation, image.version):
                return
            if image.since > self.metadata.version:
                raise CorruptData("the image contains only changes since a later version")
            metadata = await self._with(image)
            if await self._store(image, metadata.feature_level) and self._is_newer(
                image.generation, image.version
            ):
                self.metadata = metadata
                self.announce()

    async def _store(self, image: Image, level: int) -> bool:
        """Store the image, which has that feature level; return whether it was stored.

        Nothing is stored when a replica here has become as new meanwhile. Stored data are never a
        mixture of two versions.
        """
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
        puts[meta_keys.IMAGE] = head
        await self._sync.run(
            lambda: self._meta.commit(
                {**puts, **feature_level.rows(self._meta.get, level)}, deletes, prefixes
            )
        )
        return True

    def _unstored(self, metadata: Metadata, anew: bool) -> list[Bucket]:
        """Return the buckets to store: all, or those that have changed since the stored version."""
        changes = metadata.changes
        since = 0 if anew else changes.tick_of(self._rows.version)
        return [bucket for _, bucket in changes.after(since) if bucket.table in buckets.PUBLIC]

    async def _with(self, image: Image) -> Metadata:
        """Return new metadata with the image, checked."""
        known = self.metadata
        changed: Collection[Bucket] | None = None
        if image.full:
            metadata = await image_pages.made(image)
        else:
            metadata = buckets.copy(known)
            await image_pages.changed(metadata, image)
            changed = [part.bucket for part in image.parts]
        if metadata.controller.generation != image.generation:
            raise CorruptData("the image is not of the generation that it names")
        await stepped(received.steps(metadata, known, changed))
        return metadata

    def follow_replica(self, metadata: Metadata) -> None:
        """Take the replica's metadata as the image, on a controller member."""
        theirs = (metadata.controller.generation, metadata.version)
        if theirs >= self.known:
            self.metadata = metadata
            if theirs != self._announced:
                self.announce()

    def announce(self) -> None:
        """Tell watchers that something has changed."""
        self._announced = self.known
        self._forget_leaders()
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
        self._on_change()

    def _forget_leaders(self) -> None:
        """Forget the leaders of ranges that are over; keep leaders of ranges not known yet."""
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

    def learn_node(
        self, node: int, damaged: list[Damage], halted: list[Damage], *, insecure: bool | None,
        program: Program | None, kafka: str | None = None,
    ) -> None:  # fmt: skip
        """Take what a node reports of itself. None leaves what was known, except of `kafka`."""
        self.damaged[node], self.halted[node] = damaged, halted
        if insecure is not None:
            self.insecure[node] = insecure
        if program is not None:
            self.programs[node] = program
        if kafka is None:
            self.kafka.pop(node, None)
        else:
            self.kafka[node] = kafka

    def learn_replicas(
        self, damaged: dict[int, list[Damage]], halted: dict[int, list[Damage]]
    ) -> None:
        """Take the replicas of all nodes that take no part, as the controller's leader tells."""
        self.damaged, self.halted = damaged, halted

    def learn_nodes(
        self, insecure: dict[int, bool], programs: dict[int, Program], kafka: dict[int, str]
    ) -> None:
        """Take what the controller's leader tells about all nodes."""
        self.insecure, self.programs, self.kafka = insecure, programs, kafka

    def learn(self, gid: GroupId, term: int, leader: int) -> None:
        """Learn the leader that a replica of this node knows."""
        self.leaders.learn(gid.range_id, Told(gid.generation, term, leader))

    def learn_leaders(self, told: Iterable[Sequence[int]]) -> None:
        """Learn another node's statements on leaders, in rows [range, generation, term, node].

        A statement that cannot be true is left out: the statement of the highest term counts, and
        would count against every true statement.
        """
        deque(self.learning(told), maxlen=0)

    def learning(self, told: Iterable[Sequence[int]]) -> Iterator[None]:
        """Do the same a row at a time, since there may be 50,000 rows. Each row is checked first.

        Raises InvalidArgument at a row of another shape; the rows before it are learnt.
        """
        for each in told:
            range_id, *row = LEADER.check(each, "leaders")
            leader = Told(*row)
            if self._may_lead(range_id, leader):
                self.leaders.learn(range_id, leader)
            yield

    def _may_lead(self, range_id: int, told: Told) -> bool:
        """Whether the statement can be true.

        It must name a member, a generation that the image has, and a term in reach. Metadata comes
        before the statements that need it.
        """
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
        """Forget the controller's leader: it did not answer, or says that it does not lead."""
        self.leaders.forget(CONTROLLER_RANGE)

    def leader(self, range_id: int, generation: int) -> int | None:
        """Return that generation's leader; None when unknown or its node is missing (x2.27)."""
        told = self.leaders[range_id]
        if told is None or told.generation != generation or told.node == NOBODY:
            return None
        return told.node if self._present(told.node) else None

    def elected(self, range_id: int, generation: int) -> int | None:
        """Return the leader as `leader` does, but ignore a hint, which has term 0.

        A node that does not lead the controller may name the leader of the generation before, whose
        successor has begun on no other node yet.
        """
        told = self.leaders[range_id]
        return self.leader(range_id, generation) if told is not None and told.term else None

    def controller_leader(self) -> int | None:
        """Return the controller's leader, as last heard, or None."""
        return self.leader(CONTROLLER_RANGE, self.metadata.controller.generation)
