"""Files that this node has in a tier only, and where: a row of meta for each replica.

The row of a replica is durable before the node deletes its copy of a file that the row names. Each
replica has a place of its own for a file: the tier keeps the file at this place for the sake of
this replica (the docstring of `node.tier` has the contract). A row without places says that the
node has claimed files in this generation or before: it must say in the next one that it needs none.
A file that is on the disk as well
counts as a file of the disk: a node that was killed between the row and the deletion has both.
"""

from collections.abc import AsyncGenerator, Container, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from ...client.protocol.errors import InvalidArgument, LognodeError, Unavailable
from ...raft.types import GroupId
from ...statemachine.meta import MetaStore
from ...statemachine.range_state import Base
from ..runtime.rate import TokenBucket
from ..runtime.sync_thread import SyncThread
from . import meta_keys


class Place(NamedTuple):
    """Where a file is in the tier."""

    size: int
    path: str


Places = Mapping[str, Place]
"""The places of files, by content id."""


class Source(Protocol):
    """Files of a base that this node may fetch from a tier, after a look at the tier."""

    def has(self, content_id: str) -> bool:
        """Whether the tier has the file, as far as a look at the tier has shown."""

    def pieces(
        self, content_id: str, offset: int, bucket: TokenBucket
    ) -> AsyncGenerator[bytes, None]:
        """Yield the bytes of a file from `offset` on, in order. `bucket` limits their rate.

        Close the generator. Raises LognodeError: the rest of the file must come from a member.
        """

    def took(self, content_id: str) -> None:
        """Note that a file from the tier has the content of its name."""

    def spoiled(self, content_id: str) -> LognodeError:
        """Note that a file from the tier had another content; return the error."""


class Tier(Protocol):
    """What the tier of a node does for its files."""

    @property
    def gives_files(self) -> bool:
        """See `KeptFiles.gives_files`."""

    async def source(self, gid: GroupId, sizes: Mapping[str, int]) -> Source:
        """See `KeptFiles.source`."""

    async def bring_back(self, content_id: str) -> bool:
        """See `KeptFiles.bring_back`."""

    async def join(self, gid: GroupId, base: Base) -> None:
        """See `KeptFiles.join`."""

    def leaving(self, log_id: int, base: Base) -> Container[str]:
        """See `KeptFiles.leaving`."""


class KeptFiles:
    """The places of all replicas. All calls on the loop's thread, but `place`."""

    def __init__(self, meta: MetaStore, sync: SyncThread) -> None:
        self._meta = meta
        self._sync = sync
        self._of: dict[GroupId, Places] = {}
        self._tier: Tier | None = None
        self._token = ""
        self.by_id: Places = {}
        """The place of the newest generation. Another thread may read it: it never changes, another
        one replaces it."""

    def use(self, tier: Tier) -> None:
        """Use the tier of this node."""
        self._tier = tier

    @property
    def has_tier(self) -> bool:
        """Whether the node has a tier."""
        return self._tier is not None

    def load(self) -> None:
        """Read the rows. Raises InvalidArgument if files have places and the node has no tier."""
        for key, row in self._meta.items(meta_keys.KEPT):
            self._of[meta_keys.kept_gid(key)] = from_row(row)
        self._token = self._meta.get(meta_keys.TIER) or ""
        self._index()
        if self.by_id and self._tier is None:
            raise InvalidArgument(
                f"{len(self.by_id)} segments of this node are in its tier only, and tier is not "
                "set. Start the node with the --tier that it had",
                what="tier",
            )

    async def check(self, token: str) -> None:
        """Remember the tier with this token as the one that has the files.

        Raises Unavailable if the files are in another tier: an empty place may have been mounted.
        """
        if self.by_id and self._token != token:
            raise Unavailable(
                f"the place of --tier has another tier than the one that has {len(self.by_id)} "
                "segments of this node; mount that one there, or name its place"
            )
        if self._token != token:
            self._token = token
            await self._sync.run(lambda: self._meta.commit({meta_keys.TIER: token}))

    @property
    def token(self) -> str:
        """What tells the tier apart that has the files: see `check`. Any thread."""
        return self._token

    def __len__(self) -> int:
        """Return how many files have a place."""
        return len(self.by_id)

    @property
    def names(self) -> frozenset[str]:
        """The content ids of the files with a place."""
        return frozenset(self.by_id)

    async def bring_back(self, content_id: str) -> bool:
        """Fetch a file from the tier to the disk; False: the file has no place.

        Raises Unavailable while the tier gives no answer, and CorruptData for a damaged file.
        """
        return self._tier is not None and await self._tier.bring_back(content_id)

    @property
    def gives_files(self) -> bool:
        """Whether files may come from a tier, which has not failed lately."""
        return self._tier is not None and self._tier.gives_files

    async def source(self, gid: GroupId, sizes: Mapping[str, int]) -> Source | None:
        """Look which files of a generation this node may fetch from the tier; None: it has no tier.

        `sizes`: the bytes of the files that the caller needs. Raises LognodeError while the tier
        gives no answer, or is too slow.
        """
        return None if self._tier is None else await self._tier.source(gid, sizes)

    async def join(self, gid: GroupId, base: Base) -> None:
        """Claim old files of a base that comes from a peer: they need not come to the disk.

        Their places are then those of the generation `gid`, whether it has a replica here or not.
        """
        if self._tier is not None:
            await self._tier.join(gid, base)

    def leaving(self, log_id: int, base: Base) -> Container[str]:
        """Return the files of a base that the policy of the log leaves in the tier only.

        They follow from the base and the policy, wherever the files are now. So all members merge
        the same files, and leave the same files.
        """
        return () if self._tier is None else self._tier.leaving(log_id, base)

    @property
    def gids(self) -> list[GroupId]:
        """The generations with places."""
        return list(self._of)

    def place(self, content_id: str) -> Place | None:
        """Return where the file is, None without a place. Any thread."""
        return self.by_id.get(content_id)

    def of(self, gid: GroupId) -> Places:
        """Return the places that a replica remembers."""
        return self._of.get(gid, {})

    def knows(self, gid: GroupId) -> bool:
        """Whether the generation has a row, maybe without places: this node may have claimed files
        in its chain, or in a chain before."""
        return gid in self._of

    def has(self, gid: GroupId, content_id: str) -> bool:
        """Whether the replica remembers a place of the file."""
        return content_id in self.of(gid)

    def of_any(self, gids: Iterable[GroupId], content_ids: Iterable[str]) -> dict[str, Place]:
        """Return places of these files that some of these replicas remember."""
        rows = [self.of(gid) for gid in gids]
        found = {}
        for content_id in content_ids:
            place = next((row[content_id] for row in rows if content_id in row), None)
            if place is not None:
                found[content_id] = place
        return found

    async def store(self, gid: GroupId, places: Places) -> None:
        """Let these be the places of a replica; returns when meta has them.

        A reader may use a place before meta has the place, never after it is gone from the row.
        """
        self.take(gid, places)
        puts = {meta_keys.kept_key(gid): meta_keys.kept_row(places)}
        await self._sync.run(lambda: self._meta.commit(puts))

    async def drop(self, gid: GroupId) -> None:
        """Remove the row of a generation; returns when meta has removed the row."""
        self.forget([gid])
        keys = [meta_keys.kept_key(gid)]
        await self._sync.run(lambda: self._meta.commit({}, keys))

    def take(self, gid: GroupId, places: Places) -> None:
        """Let these be the places of a replica; the caller's transaction has the row."""
        self._of[gid] = dict(places)
        self._index()

    def forget(self, gids: Iterable[GroupId]) -> None:
        """Forget replicas whose rows are gone."""
        gone = [gid for gid in gids if self._of.pop(gid, None) is not None]
        if gone:
            self._index()

    def _index(self) -> None:
        ordered = sorted(self._of, key=lambda gid: gid.generation)
        self.by_id = {name: place for gid in ordered for name, place in self._of[gid].items()}


def from_row(row: Any) -> dict[str, Place]:
    """Undo `meta_keys.kept_row`. Raises ValueError and TypeError for another row."""
    found = {}
    for name, size, path in row:
        if (type(name), type(size), type(path)) != (str, int, str):
            raise ValueError(f"{(name, size, path)!r} is not the place of a file")
        found[name] = Place(size, path)
    return found
