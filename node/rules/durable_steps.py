"""The steps of which the rules of a replica's life are made, as data.

An executor carries out the steps of one rule in their order. A step is done, and durable where the
step says so, before the next step begins.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from ...client.protocol.levels import LEVEL_MIN
from ...partitions.model import Descriptor
from ...raft.types import GroupId
from ...statemachine.range_state import Base
from ...statemachine.segment_format import SegmentInfo
from ..directory import meta_keys


class Held(Protocol):
    """The entries of a group's log, as far as a rule reads them."""

    @property
    def base_index(self) -> int: ...

    @property
    def last_index(self) -> int: ...

    def term_at(self, index: int) -> int | None: ...


class LogView(Held, Protocol):
    """What a rule reads of a group's log; see `raft.group_log.GroupLog`."""

    @property
    def base_term(self) -> int: ...

    @property
    def commit_index(self) -> int: ...

    @property
    def term(self) -> int: ...


Entry = tuple[int, int]
"""Index and term of an entry."""


class Rows(NamedTuple):
    """The rows of one replica in meta."""

    key: str
    row: Mapping[str, Any]
    """The row with descriptor and applied index, which says that the replica was started here."""
    others: Mapping[str, Any] = {}
    """Further rows, by key: the buckets of a controller's metadata."""
    prefixes: tuple[str, ...] = ()
    """Prefixes of rows that these rows replace."""
    level: int = LEVEL_MIN
    """The feature level of the metadata in the rows."""

    @classmethod
    def of_range(
        cls, descriptor: Descriptor, base: Base, kept: Mapping[str, tuple[int, str]] | None = None
    ) -> "Rows":
        """Return the row of a range's replica with that base.

        `kept`: where the files are that the replica has in the tier only, for a row of their own.
        """
        gid = GroupId(descriptor.range_id, descriptor.generation)
        row = meta_keys.replica_row(descriptor, base)
        others = {meta_keys.kept_key(gid): meta_keys.kept_row(kept)} if kept is not None else {}
        return cls(meta_keys.replica_key(gid), row, others)

    def puts(self, **fields: Any) -> dict[str, Any]:
        """Return all rows; `fields` replace fields of the replica's own row."""
        return {**self.others, self.key: {**self.row, **fields}}


class Commit(NamedTuple):
    """Commit one transaction of meta: first the deletes, then the puts. Durable when done."""

    puts: Mapping[str, Any]
    deletes: Sequence[str] = ()
    prefixes: Sequence[str] = ()
    joint: bool = False
    """The transaction may hold rows of other replicas too. Only for new rows: a deletion of the
    same rows could come before a transaction that is still being collected."""
    level: int = LEVEL_MIN
    """The feature level of the metadata in the puts, which the same transaction notes: a program
    that does not know the level must not start on the directory (`directory.feature_level`)."""


class CreateLog(NamedTuple):
    """Create the group's log in the WAL, behind the entry `base`."""

    gid: GroupId
    base: Entry


class ResetLog(NamedTuple):
    """Let the group's log begin behind the entry `base`.

    A log that holds exactly this entry keeps all later entries (x1).
    """

    gid: GroupId
    base: Entry


class RaiseCommit(NamedTuple):
    """Raise the commit index in the group's log; durability is not needed."""

    gid: GroupId
    commit: int


class CutLog(NamedTuple):
    """Drop the entries up to `last`, which are in a durable base."""

    gid: GroupId
    last: int


class SyncLogs(NamedTuple):
    """Wait until all that was queued in the WAL is durable."""


class RetireLogs(NamedTuple):
    """Record in the WAL that these groups are over, and free their logs."""

    gids: tuple[GroupId, ...]


class Stop(NamedTuple):
    """Let these replicas take no part from now on. Nothing that they store later is committed."""

    gids: tuple[GroupId, ...]


class CheckPresent(NamedTuple):
    """Break off the remaining steps when the group was retired since the first step."""

    gid: GroupId


class Mark(NamedTuple):
    """Remember that the generation was started here; its transaction is durable (x3)."""

    gid: GroupId


class CheckFiles(NamedTuple):
    """Check the files of the replica's base, then do what `recovering.files_checked` returns."""

    gid: GroupId


class Begin(NamedTuple):
    """Make the replica from its log and its rows, and let the replica take part."""

    gid: GroupId
    campaign: bool


class Adopt(NamedTuple):
    """Let the running replica use the base that was stored, and free the memory that it has."""

    gid: GroupId


class SetAside(NamedTuple):
    """Keep the replica out until its damaged files are repaired; its log is whole (x2)."""

    gid: GroupId
    descriptor: Descriptor
    files: Mapping[str, SegmentInfo]
    """The files that the replica needs, by content id."""
    bad: Mapping[str, str]
    """The damage of each damaged file, by content id."""


class Damaged(NamedTuple):
    """Remember that the replica is damaged: it takes no part in this generation again (x2)."""

    gid: GroupId
    reason: str


class CollectFiles(NamedTuple):
    """Remove the segment files that nothing names."""


class Suspend(NamedTuple):
    """Serve nothing of the file until `Resume`."""

    content_id: str


class Distrust(NamedTuple):
    """Forget, durably, that the file was read back from the disk and was sound."""

    content_id: str


class CheckFile(NamedTuple):
    """Compare the file's content with its name, then do what `repairing.checked` returns."""

    content_id: str


class FetchFile(NamedTuple):
    """Put a peer's file of that name in the file's place, durably, as far as a peer has it.

    Ask the `repairing.sources`, then do what `repairing.fetched`, `unneeded` or `lost` returns.
    """

    content_id: str


class Resume(NamedTuple):
    """Serve the file again."""

    content_id: str


class SettleRows(NamedTuple):
    """Wait until all transactions of meta that were begun are committed."""


class CheckAside(NamedTuple):
    """Break off the remaining steps when the replica no longer waits for a file: it was retired,
    was damaged, or has begun again."""

    gid: GroupId


Step = (
    Commit | CreateLog | ResetLog | RaiseCommit | CutLog | SyncLogs | RetireLogs | Stop
    | CheckPresent | Mark | CheckFiles | Begin | Adopt | SetAside | Damaged | CollectFiles
    | Suspend | Distrust | CheckFile | FetchFile | Resume | SettleRows | CheckAside
)  # fmt: skip
Steps = tuple[Step, ...]
