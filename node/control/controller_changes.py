"""The controller's next generation: members that applied the last record push it to the others.

The last record of a generation names the members of the next one (x29). A member that has applied
this record holds the state in which the next generation begins. The member stores the state, starts
the generation and pushes the state to every other member until all have it. Only then is the old
generation removed. A node that is not a member of the next generation pushes the state as well,
since no other node may hold it. Its own replica is removed when the node hears from the leader of a
later generation. The same push repairs a member whose log no longer continues the leader's log.

A push is one request for each page of the metadata. The last request says at which entry the
metadata was read. The member answers the last request when it has begun.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from ...client.connection import Connection
from ...client.protocol import limits
from ...client.protocol.errors import (
    CorruptData,
    InvalidArgument,
    LognodeError,
    RemoteProtocolError,
    Unavailable,
)
from ...client.protocol.peers import CONTROLLER_INSTALL
from ...partitions import buckets, received
from ...partitions.lifecycle import is_removed
from ...partitions.metadata import Metadata
from ...partitions.model import CONTROLLER_RANGE, Descriptor
from ...raft.types import GroupId
from ..metadata import image_pages
from ..metadata.image_pages import START, Assembly, Position
from ..replicas.controller_replica import ControllerReplica
from ..replicas.host import Host
from ..rules.controller_generations import (
    BeginNext,
    ControllerMember,
    Push,
    PushNext,
    RetireBefore,
    moves,
    successor,
    use_of,
)
from ..rules.ending import before
from ..runtime import unexpected
from ..runtime.slices import stepped
from ..runtime.unexpected import OnBroken

_PERIOD_S = 0.1
_PUSH_TIMEOUT_S = 5.0
_PUSHES_MAX = 4
"""The number of nodes whose pushed pages are kept at the same time."""

log = logging.getLogger("lognode.controller")
Body = dict[str, Any]


class ControllerChanges:
    """Runs on every node; acts where there is a controller replica."""

    def __init__(
        self,
        *,
        node_id: int,
        host: Host,
        connection: Callable[[int], Connection | None],
        image: Callable[[], Metadata],
        began: Callable[[ControllerReplica], None],
        on_broken: OnBroken,
    ) -> None:
        self._node_id = node_id
        self._host = host
        self._connection = connection
        self._image = image
        """Returns the newest metadata that this node knows."""
        self._began = began
        self._have: dict[int, set[int]] = {}
        """Members known to have begun each generation."""
        self._freed_before = 0
        """No generation before this one is left here, and the mark lets none begin again (x3)."""
        self._turn = asyncio.Lock()
        self._on_broken = on_broken
        self._installs: set[asyncio.Task[None]] = set()
        self._coming: dict[int, Assembly] = {}
        """The pages that each node has pushed so far."""
        self._successor: Metadata | None = None
        """The state in which the next generation begins, once this node's replica is sealed. It is
        pushed to the members, when this node is not a member."""

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            replica = self._host.controller
            if replica is not None and not replica.stopped:
                try:
                    await self._look(replica)
                except LognodeError as error:
                    log.debug("push put off", extra={"fields": {"error": str(error)}})
            await asyncio.sleep(_PERIOD_S)

    async def _look(self, replica: ControllerReplica) -> None:
        if not replica.is_sealed and replica.checkpoint_due:
            await self._host.checkpoint_controller(replica)
        begun = -1
        while begun < (now := sum(map(len, self._have.values()))) and not replica.stopped:
            begun = now  # what a push brings about may free earlier generations at once
            await self._move(replica)

    async def _move(self, replica: ControllerReplica) -> None:
        known = self._image()
        member = ControllerMember(
            replica.descriptor,
            replica.metadata.controller,
            replica.is_sealed,
            replica.leads,
            replica.group.needs_base,
        )
        for move in moves(self._node_id, known.controller, known.sealed, member, self._have):
            match move:
                case RetireBefore(generation):
                    await self.retire_before(generation)
                case BeginNext(campaign):
                    await self._begin_next(replica, campaign=campaign)
                case PushNext(to):
                    await self._push_next(replica, to)
                case Push(to):
                    await self._push(replica, to)

    async def _push_next(self, replica: ControllerReplica, to: frozenset[int]) -> None:
        next_ = replica.metadata.controller
        if self._successor is None or self._successor.controller != next_:
            self._successor = successor(replica.metadata)
        await self._send(next_, self._successor, lambda: (1, 0), to)

    async def _begin_next(self, replica: ControllerReplica, *, campaign: bool) -> None:
        async with self._turn:
            metadata = successor(replica.metadata)
            began = await self._host.create_controller(
                metadata.controller, metadata, (1, 0), campaign=campaign
            )
            if began is not None:
                self._began(began)

    async def _push(self, replica: ControllerReplica, peers: frozenset[int]) -> None:
        def applied() -> tuple[int, int]:
            return replica.applied_index, replica.applied_term

        await self._send(replica.descriptor, replica.metadata, applied, peers)

    async def _send(
        self,
        descriptor: Descriptor,
        metadata: Metadata,
        applied: Callable[[], tuple[int, int]],
        peers: frozenset[int],
    ) -> None:
        """Send the state to each peer separately: a peer that hangs delays no other peer."""
        have = self._have.setdefault(descriptor.generation, set())

        async def one(peer: int, connection: Connection) -> None:
            try:
                await self._send_pages(descriptor, metadata, applied, connection)
            except LognodeError as error:
                log.debug("push put off", extra={"fields": {"to": peer, "error": str(error)}})
            else:
                have.add(peer)

        links = [(peer, self._connection(peer)) for peer in peers]
        await asyncio.gather(*(one(peer, link) for peer, link in links if link is not None))

    async def _send_pages(
        self,
        descriptor: Descriptor,
        metadata: Metadata,
        applied: Callable[[], tuple[int, int]],
        connection: Connection,
    ) -> None:
        loop = asyncio.get_running_loop()
        after: Position = None
        while True:
            page = await image_pages.page_of(metadata, START[1], after, tables=buckets.ALL)
            body = {
                "descriptor": descriptor.to_wire(),
                "applied": list(applied()),  # read at the moment when the last page was made
                "page": page,
            }
            deadline = loop.time() + _PUSH_TIMEOUT_S
            answer = await connection.request(CONTROLLER_INSTALL, body, deadline=deadline)
            after = page["next"]
            if after is None or answer["done"]:
                return

    async def retire_before(self, generation: int) -> None:
        """Free the controller's earlier generations here."""
        if generation <= self._freed_before:
            return
        old = before(generation, (*self._host.groups, *self._host.damaged))
        if old:
            await self._host.retire(old)
        elif self._host.marks.get(CONTROLLER_RANGE, 0) >= generation - 1:
            self._freed_before = generation

    async def install(self, sender: int, body: Body) -> Body:
        """Take a page of a push, and with the last page begin that generation or take the base.

        The base is taken when this replica lacks entries. `done`: no further page is wanted. The
        call runs to its end even when the sender is gone, because half-way there is no replica at
        all. Raises InvalidArgument for a push that no controller could make, and Conflict for an
        image that contradicts what this node knows. Raises CorruptData where the replica is
        damaged: only the next generation repairs it. Raises Unavailable where the replica waits for
        an upgrade.
        """
        descriptor, applied = self._announced(body)
        if not self._is_wanted(descriptor, applied):
            self._coming.pop(sender, None)
            self._check_sound(descriptor)
            return {"done": True}
        self._check_not_halted()
        metadata = await self._assembled(sender, body["page"])
        if metadata is None:
            return {"done": False}
        await self._check(sender, descriptor, metadata)
        install = asyncio.ensure_future(self._install(descriptor, metadata, applied))
        self._installs.add(install)
        install.add_done_callback(self._install_ended)
        await asyncio.shield(install)
        return {"done": True}

    def _is_wanted(self, descriptor: Descriptor, applied: tuple[int, int]) -> bool:
        """Whether this node has not begun that generation, or lacks a base that it could take."""
        gid = GroupId(CONTROLLER_RANGE, descriptor.generation)
        replica, waits = self._host.groups.get(gid), None
        if isinstance(replica, ControllerReplica):
            if not replica.group.base_wanted:
                return False
            waits = replica.applied_index
        mark = self._host.marks.get(CONTROLLER_RANGE, 0)
        return use_of(descriptor, applied[0], mark, waits) is not None

    def _check_not_halted(self) -> None:
        """Raise Unavailable while halted: the image may hold data that this program would drop."""
        for gid, reason in self._host.halted.items():
            if gid.range_id == CONTROLLER_RANGE:
                raise Unavailable(f"the replica of {gid} on this node takes no part: {reason}")

    def _check_sound(self, descriptor: Descriptor) -> None:
        gid = GroupId(CONTROLLER_RANGE, descriptor.generation)
        reason = self._host.damaged.get(gid)
        if reason is not None:
            raise CorruptData(f"the replica of {gid} on this node takes no part: {reason}")

    async def _assembled(self, node: int, page: Body) -> Metadata | None:
        """Return the metadata when the page is the last one of the node's push, else None.

        An unfinished push stays until the node's next push, or until other nodes push.
        """
        if node not in self._coming and len(self._coming) >= _PUSHES_MAX:
            del self._coming[next(iter(self._coming))]
        assembly = self._coming.setdefault(node, Assembly())
        try:
            image = await assembly.add(page)
            if image is None:
                return None
            metadata = await image_pages.made(image)
        except CorruptData as error:
            raise InvalidArgument(error.message, what="page") from None
        finally:
            if assembly.after is None:
                self._coming.pop(node, None)
        return metadata

    def _announced(self, body: Body) -> tuple[Descriptor, tuple[int, int]]:
        """Return the generation that is pushed, and the entry after which it continues."""
        try:
            descriptor = received.descriptor(body["descriptor"])
        except RemoteProtocolError as error:
            raise InvalidArgument(error.message, what="descriptor") from None
        members, generation = descriptor.members, descriptor.generation
        if (descriptor.range_id, descriptor.log_id, *descriptor.span) != (0, 0, b"", None):
            raise InvalidArgument("this group is not a controller", what="descriptor")
        if self._node_id not in members or len(set(members)) != len(members):
            raise InvalidArgument("this node has no replica of this controller", what="descriptor")
        if generation - self._image().controller.generation > limits.generation_jump_max:
            raise InvalidArgument(
                f"this node has no controller of generation {generation}", what="descriptor"
            )
        index, term = body["applied"]
        if index < 1 or term > limits.term_jump_max:
            raise InvalidArgument(
                f"entry {index} of term {term} was given; a controller begins behind entry "
                f"1 or later, in a term up to {limits.term_jump_max}", what="applied",
            )  # fmt: skip
        return descriptor, (index, term)

    async def _check(self, sender: int, descriptor: Descriptor, metadata: Metadata) -> None:
        """Check that the pushed state is valid, follows from known state and is of the generation.

        Raises InvalidArgument, Conflict.
        """
        members, generation = descriptor.members, descriptor.generation
        try:
            await stepped(received.steps(metadata, self._image()))
        except RemoteProtocolError as error:
            raise InvalidArgument(error.message, what="page") from None
        if not metadata.nodes.keys() >= {*members, sender} or is_removed(sender, metadata.nodes):
            raise InvalidArgument(
                "the image of the metadata does not contain all members of the controller "
                "as registered nodes",
                what="page",
            )
        next_ = metadata.controller
        if metadata.sealed:  # its last record names the members of the next generation
            sound = next_.generation == generation + 1
        else:
            sound = (next_.generation, next_.members) == (generation, members)
        if not sound:
            raise InvalidArgument("the image is of another generation", what="page")

    async def _install(
        self, descriptor: Descriptor, metadata: Metadata, applied: tuple[int, int]
    ) -> None:
        async with self._turn:
            replica = self._host.groups.get(GroupId(CONTROLLER_RANGE, descriptor.generation))
            if isinstance(replica, ControllerReplica):
                if self._is_wanted(descriptor, applied):
                    await stepped(received.steps(metadata, replica.metadata))
                    begun = await self._host.reinstall_controller(replica, metadata, applied)
                    self._began(begun)
            else:
                began = await self._host.create_controller(
                    descriptor, metadata, applied, campaign=False
                )
                if began is not None:
                    self._began(began)
            self._check_sound(descriptor)

    def _install_ended(self, install: "asyncio.Task[None]") -> None:
        self._installs.discard(install)
        unexpected.ended(install, self._on_broken)
