"""A replica of the controller group: the metadata, replicated like any other range."""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

from ...client.protocol.errors import LognodeError, NotLeader, Timeout, Unavailable, from_wire
from ...partitions import commands, overtaken, proposals
from ...partitions.metadata import Metadata
from ...partitions.model import Descriptor
from ...raft.group_log import GroupLog
from ...raft.types import LogEntry
from ..directory.image_rows import ImageRows
from .replica import Replica, Services

_CHECKPOINT_ENTRIES = 512
_PREPARE_S = 0.002
"""Time in a turn for preparing a command. A log of 4,096 ranges in seven zones takes 80 ms."""


OnCommand = Callable[[dict[str, Any], LognodeError | None], None]


class ControllerReplica(Replica):
    """The metadata on this node. `on_change` is called after entries were applied."""

    def __init__(
        self,
        *,
        descriptor: Descriptor,
        raft_log: GroupLog,
        metadata: Metadata,
        applied: tuple[int, int],
        services: Services,
        on_change: Callable[[], None],
        stored: ImageRows,
    ) -> None:
        super().__init__(
            descriptor=descriptor,
            raft_log=raft_log,
            applied_index=applied[0],
            services=services,
        )
        self.metadata = metadata
        self.applied_term = applied[1]
        self.stored = stored
        """The rows of the last checkpoint."""
        self.stored_tick = metadata.changes.tick
        """The tick of the last change of the metadata that `stored` has."""
        self._checkpointed_index = applied[0]
        self.leads_since: float | None = None
        self._on_change = on_change
        self._on_command: OnCommand = lambda command, error: None
        self._version_told = metadata.version
        self._next: _Next | None = None
        """The next entry to apply."""

    @property
    def is_sealed(self) -> bool:
        return self.metadata.sealed

    @property
    def checkpoint_due(self) -> bool:
        """Whether the log since the last checkpoint is long enough for another checkpoint."""
        return self.applied_index - self._checkpointed_index >= _CHECKPOINT_ENTRIES

    def packed(self) -> tuple[int, int]:
        """Note that a checkpoint has all changes so far; return their index and term."""
        self.stored_tick = self.metadata.changes.tick
        return self.applied_index, self.applied_term

    def checkpointed(self, index: int) -> None:
        """Note that the checkpoint up to this index is durable."""
        self._checkpointed_index = index

    def tell_commands(self, on_command: OnCommand) -> None:
        """Pass on each command that is proposed here from now on, with the error that refused it.

        The error of a command that was not refused is None.
        """
        self._on_command = on_command

    async def command(self, command: dict[str, Any], *, timeout_s: float = 5.0) -> dict[str, Any]:
        """Propose a metadata command and return its answer.

        A command that would be refused, or would change nothing, is not proposed but answered at
        once. The field `since` of the command is compared here and not proposed. Raises
        InvalidArgument or Unsupported for a command that nobody may propose, NotLeader, the error
        with which the metadata refused the command, Conflict for a late attempt of a command
        (`partitions.overtaken`), or Timeout with outcome unknown.
        """
        command = proposals.checked(command, self.metadata.nodes)
        proposals.check_alike(command, self.metadata.feature_level)
        since: int | None = command.pop("since", None)
        await self.lead_settled()
        if not self.leads:
            raise self.not_leader()
        error: LognodeError | None = None
        try:
            return _told(await self._answer(command, since, timeout_s))
        except LognodeError as refusal:
            error = refusal
            raise
        except asyncio.CancelledError:
            error = Unavailable(
                "the client left before the answer", reason="left", outcome="unknown"
            )
            raise
        finally:
            self._on_command(command, error)

    async def _answer(
        self, command: dict[str, Any], since: int | None, timeout_s: float
    ) -> dict[str, Any]:
        data = commands.encode(command)
        if since is not None or self._rehearsed(data) is not None:
            await self.ready(timeout_s=timeout_s)
            answer = self._rehearsed(data)
            if answer is not None:
                return answer
            if since is not None:
                overtaken.check(self.metadata, command, since)
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self.propose(data, (future,))
        try:
            async with asyncio.timeout(timeout_s):
                try:
                    return await future
                finally:
                    del future  # the error of a future refers to this frame: break the cycle
        except TimeoutError:
            raise Timeout("the controller did not commit the command in time") from None

    def _rehearsed(self, data: bytes) -> dict[str, Any] | None:
        """Return the answer to a packed command that would change nothing, or None.

        The command is unpacked, to be exactly as in an entry of the log.
        """
        decoded = commands.decode(data)
        if decoded is None or self.is_sealed:
            return None
        return self.metadata.rehearse(self.applied_index + 1, self.applied_term, decoded)

    async def ready(self, *, timeout_s: float = 5.0) -> None:
        """Return when this member leads and a quorum confirms that (x29)."""
        if not self.leads:
            raise self.not_leader()
        try:
            async with asyncio.timeout(timeout_s):
                await self.read_barrier()
        except TimeoutError:
            raise NotLeader("the leader of the controller has no quorum", hint=None) from None

    # Replica.

    def may_apply(self, entry: LogEntry) -> bool:
        """Whether the next command is prepared, which takes as many turns as the command needs."""
        if self._next is None or self._next.index != entry.index:
            self._next = _Next(entry, self.metadata)
        return self._next.prepare()

    def apply(self, entry: LogEntry) -> Sequence[dict[str, Any]] | None:
        self.applied_term = entry.term
        following, self._next = self._next, None
        command = commands.decode(entry.command) if following is None else following.command
        if command is None:
            return ()
        return (self.metadata.apply(entry.index, entry.term, command),)

    def role_changed(self, *, leads: bool) -> None:
        self.leads_since = time.monotonic() if leads else None
        self._on_change()

    def pumped(self) -> None:
        if self.metadata.version != self._version_told:
            self._version_told = self.metadata.version
            self._on_change()


class _Next:
    """An entry that is prepared before it is applied. Raises CorruptData for no command."""

    def __init__(self, entry: LogEntry, metadata: Metadata) -> None:
        self.index = entry.index
        self.command = commands.decode(entry.command)
        self._steps = None if self.command is None else metadata.prepare(self.command)

    def prepare(self) -> bool:
        """Work for a slice of a turn; return whether there is nothing left to prepare."""
        until = time.perf_counter() + _PREPARE_S
        while self._steps is not None:
            if time.perf_counter() > until:
                return False
            if next(self._steps, self) is self:
                self._steps = None
        return True


def _told(answer: dict[str, Any]) -> dict[str, Any]:
    if "error" in answer:
        raise from_wire(answer["error"])
    ok: dict[str, Any] = answer["ok"]
    return ok
