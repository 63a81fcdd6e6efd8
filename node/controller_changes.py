"""The controller's next generation: begun by who applied the last record, pushed to the others.

The last record of a generation names the members of the next (executions 1.29). Whoever has
applied it holds the state in which the next one begins, stores it, starts, and pushes it to every
other member until each has it; only then does the old generation go. Who is no member of the next
pushes it too: it may be the only one that holds it. Its own replica goes when it hears from the
leader of a later generation. The same push brings a member back whose log no longer continues the
leader's.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from ..client import limits
from ..client.connection import Connection
from ..client.errors import CorruptData, InvalidArgument, LognodeError, RemoteProtocolError
from ..client.protocol.peers import CONTROLLER_INSTALL
from ..partitions import received
from ..partitions.lifecycle import is_removed
from ..partitions.metadata import Metadata
from ..partitions.model import CONTROLLER_RANGE, Descriptor
from ..raft.types import GroupId
from . import bugs
from .bugs import OnBroken
from .controller_replica import ControllerReplica
from .host import Host

_PERIOD_S = 0.1
_PUSH_TIMEOUT_S = 5.0

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
        """The newest that this node knows."""
        self._began = began
        self._have: dict[int, set[int]] = {}
        """Per generation, the members known to have begun it."""
        self._turn = asyncio.Lock()
        self._on_broken = on_broken
        self._installs: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Never returns; cancel it."""
        while True:
            replica = self._host.controller
            if replica is not None and not replica.stopped:
                try:
                    await self._look(replica)
                except LognodeError as error:
                    log.debug("push put off", extra={"fields": {"error": str(error)}})
            await asyncio.sleep(_PERIOD_S)

    async def _look(self, replica: ControllerReplica) -> None:
        known = self._image()
        if (
            known.controller.generation > replica.gid.generation
            and self._node_id not in known.controller.members
            and not known.sealed  # else it may be this replica's own
        ):
            await self.retire_before(known.controller.generation)
            return
        if replica.is_sealed:
            await self._begin_next(replica)
            return
        if replica.checkpoint_due:
            await self._host.checkpoint_controller(replica)
        if replica.descriptor.lineage:
            have = self._have.setdefault(replica.gid.generation, set())
            await self._push(replica, set(replica.members) - {self._node_id} - have)
            await self._retire_old(replica)
        if replica.leads and replica.group.needs_base:
            await self._push(replica, replica.group.needs_base)

    async def _begin_next(self, replica: ControllerReplica) -> None:
        members = set(replica.metadata.controller.members)
        if self._node_id not in members:
            next_ = replica.metadata.controller
            missing = members - self._have.setdefault(next_.generation, set())
            await self._send(next_, (1, 0), lambda: _successor(replica.metadata), missing)
            return
        async with self._turn:
            metadata = _successor(replica.metadata)
            began = await self._host.create_controller(
                metadata.controller, metadata, (1, 0), campaign=replica.leads
            )
            if began is not None:
                self._began(began)

    async def _push(self, replica: ControllerReplica, peers: "set[int] | frozenset[int]") -> None:
        applied = (replica.applied_index, replica.applied_term)
        await self._send(replica.descriptor, applied, lambda: replica.metadata, peers)

    async def _send(
        self,
        descriptor: Descriptor,
        applied: tuple[int, int],
        metadata: Callable[[], Metadata],
        peers: "set[int] | frozenset[int]",
    ) -> None:
        """To each by itself: one that hangs or refuses keeps it from nobody else."""
        peers = {peer for peer in peers if self._connection(peer) is not None}
        if not peers:
            return
        body = {
            "descriptor": descriptor.to_wire(),
            "applied": list(applied),
            "image": metadata().image(),
        }
        have = self._have.setdefault(descriptor.generation, set())
        deadline = asyncio.get_running_loop().time() + _PUSH_TIMEOUT_S

        async def one(peer: int) -> None:
            connection = self._connection(peer)
            if connection is None:
                return
            try:
                await connection.request(CONTROLLER_INSTALL, body, deadline=deadline)
            except LognodeError as error:
                log.debug("push put off", extra={"fields": {"to": peer, "error": str(error)}})
            else:
                have.add(peer)

        await asyncio.gather(*map(one, peers))

    async def _retire_old(self, replica: ControllerReplica) -> None:
        others = set(replica.members) - {self._node_id}
        if others <= self._have.get(replica.gid.generation, set()):
            await self.retire_before(replica.gid.generation)

    async def retire_before(self, generation: int) -> None:
        """Free the controller's earlier generations here."""
        old = [
            gid
            for gid in (*self._host.groups, *self._host.damaged)
            if gid.range_id == CONTROLLER_RANGE and gid.generation < generation
        ]
        if old:
            await self._host.retire(old)

    async def install(self, sender: int, body: Body) -> Body:
        """A push: begin that generation here, or take the base if this replica lacks entries.

        It runs to its end also when who pushed has gone: half-way there is no replica at all.
        Raises InvalidArgument for a push that no controller could make, Conflict for an image that
        contradicts what this node knows, CorruptData where the replica is damaged: only the next
        generation has it again.
        """
        descriptor, metadata = self._checked(sender, body)
        index, term = body["applied"]
        if index < 1 or term > limits.term_jump_max:
            raise InvalidArgument(
                f"a controller begins behind entry 1 or later, in a term up to "
                f"{limits.term_jump_max}; entry {index} of term {term} was given", what="applied",
            )  # fmt: skip
        applied = (index, term)
        install = asyncio.ensure_future(self._install(descriptor, metadata, applied))
        self._installs.add(install)
        install.add_done_callback(self._install_ended)
        await asyncio.shield(install)
        return {}

    def _checked(self, sender: int, body: Body) -> tuple[Descriptor, Metadata]:
        """The generation that is pushed, and the state in which it goes on."""
        known = self._image()
        try:
            descriptor = received.descriptor(body["descriptor"])
            metadata = received.received(body["image"], known)
        except RemoteProtocolError as error:
            raise InvalidArgument(error.message, what="image") from None
        members, generation = descriptor.members, descriptor.generation
        if (descriptor.range_id, descriptor.log_id, *descriptor.span) != (0, 0, b"", None):
            raise InvalidArgument("not a controller", what="descriptor")
        if self._node_id not in members or len(set(members)) != len(members):
            raise InvalidArgument("not a controller of this node", what="descriptor")
        if generation - known.controller.generation > limits.generation_jump_max:
            raise InvalidArgument(f"no controller is at generation {generation}", what="descriptor")
        if not metadata.nodes.keys() >= {*members, sender} or is_removed(sender, metadata.nodes):
            raise InvalidArgument(
                "a controller of nodes that its image does not have as registered", what="image"
            )
        next_ = metadata.controller
        if metadata.sealed:  # its last record names the members of the generation after it
            sound = next_.generation == generation + 1
        else:
            sound = (next_.generation, next_.members) == (generation, members)
        if not sound:
            raise InvalidArgument("an image of another generation", what="image")
        return descriptor, metadata

    async def _install(
        self, descriptor: Descriptor, metadata: Metadata, applied: tuple[int, int]
    ) -> None:
        gid = GroupId(CONTROLLER_RANGE, descriptor.generation)
        async with self._turn:
            replica = self._host.groups.get(gid)
            if isinstance(replica, ControllerReplica):
                if replica.group.base_wanted and applied[0] > replica.applied_index:
                    received.check_follows(replica.metadata, metadata)
                    begun = await self._host.reinstall_controller(replica, metadata, applied)
                    self._began(begun)
            else:
                began = await self._host.create_controller(
                    descriptor, metadata, applied, campaign=False
                )
                if began is not None:
                    self._began(began)
            reason = self._host.damaged.get(gid)
            if reason is not None:
                raise CorruptData(f"the replica of {gid} on this node takes no part: {reason}")

    def _install_ended(self, install: "asyncio.Task[None]") -> None:
        self._installs.discard(install)
        bugs.ended(install, self._on_broken)


def _successor(sealed: Metadata) -> Metadata:
    """The state in which the next generation begins."""
    metadata = Metadata.from_image(sealed.image())
    metadata.begin_generation()
    return metadata
