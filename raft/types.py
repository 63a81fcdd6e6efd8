"""Names that all of raft/ shares: groups, entries, the disk, errors, options."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from ..client.protocol import limits
from ..client.protocol.errors import InvalidArgument
from ..client.protocol.invariants import DiskFailure as DiskFailure

Message = list[Any]
"""A msgpack array `[kind, term, epoch, ...]`; see `messages.py`."""


class GroupId(NamedTuple):
    """One generation of one range. Range 0 is the controller's."""

    range_id: int
    generation: int

    def __str__(self) -> str:
        what = f"range {self.range_id}" if self.range_id else "the controller"
        return f"{what} in generation {self.generation}"


@dataclass(frozen=True, slots=True)
class LogEntry:
    """An entry of a group's Raft log. `command[0]` is the engine's type byte: 0 ours, 1 no-op."""

    index: int
    term: int
    command: bytes


SENTINEL_INDEX = 1
SENTINEL_TERM = 0
"""Each generation's log begins with a sentinel, so that it is never empty (x2.5)."""


@dataclass(frozen=True, slots=True)
class RaftOptions:
    """The options of a group: times in seconds, sizes in bytes.

    Three heartbeats fit into the least election timeout, so that two lost heartbeats depose no
    leader. So do three pings of a node, which replace the heartbeats of groups that were quiet for
    `idle_after_s`. The timeouts have room to differ. A leader sends a newer commit index alone
    after `tell_commit_s`, unless an append or a heartbeat goes before. An append ends with the
    entry that reaches `append_bytes_max`, and must fit a frame with it. Raises InvalidArgument for
    options that cannot work.
    """

    election_timeout_min_s: float = 0.75
    election_timeout_max_s: float = 1.5
    heartbeat_s: float = 0.15
    ping_s: float = 0.2
    idle_after_s: float = 1.0
    append_bytes_max: int = limits.entry_bytes_max
    tell_commit_s: float = 0.025

    def __post_init__(self) -> None:
        if not 0 < 3 * self.heartbeat_s < self.election_timeout_min_s:
            raise InvalidArgument(
                f"heartbeat_s is {self.heartbeat_s} s: give more than 0 and less than a "
                f"third of the least election timeout, {self.election_timeout_min_s} s"
            )
        if not self.tell_commit_s >= 0:
            raise InvalidArgument(f"tell_commit_s is {self.tell_commit_s} s: give 0 or more")
        if not 0 < 3 * self.ping_s < self.election_timeout_min_s:
            raise InvalidArgument(
                f"ping_s is {self.ping_s} s: give more than 0 and less than a third of the "
                f"least election timeout, {self.election_timeout_min_s} s"
            )
        if not self.idle_after_s > 0:
            raise InvalidArgument(f"idle_after_s is {self.idle_after_s} s: give more than 0")
        if not self.election_timeout_min_s < self.election_timeout_max_s:
            raise InvalidArgument(
                f"the election timeouts are {self.election_timeout_min_s} s to "
                f"{self.election_timeout_max_s} s: the first must be smaller than the second"
            )
        if not 0 < self.append_bytes_max <= limits.entry_bytes_max:
            raise InvalidArgument(
                f"append_bytes_max is {self.append_bytes_max}: give 1 to {limits.entry_bytes_max}"
            )


class RefusedMessageError(Exception):
    """A message that no correct member sends: it contradicts committed entries here, or the leader.

    The text is one word, for metrics. The message has changed nothing.
    """


class NotLeaderError(Exception):
    """A proposal to a replica that does not lead; nothing was appended."""


class Disk(Protocol):
    """A flat directory of files, real or simulated. Calls block; errors are OSError.

    A write is durable once `sync` of the file has returned. A created, deleted or renamed name is
    durable after `sync_directory`.
    """

    def names(self) -> list[str]: ...

    def create(self, name: str, size: int) -> None:
        """Create a file of `size` zero bytes, written out but not synced."""

    def size(self, name: str) -> int: ...

    def read(self, name: str, offset: int, length: int) -> bytes: ...

    def write(self, name: str, offset: int, buffers: Sequence[bytes]) -> None: ...

    def truncate(self, name: str, size: int) -> None: ...

    def rename(self, old: str, new: str) -> None: ...

    def delete(self, name: str) -> None: ...

    def sync(self, name: str) -> None:
        """Call fdatasync on the file."""

    def sync_directory(self) -> None: ...
