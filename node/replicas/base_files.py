"""Whether this node has the files of a base: on its disk, or in the tier for a replica of it."""

import asyncio
from collections.abc import Iterable

from ...client.protocol.errors import CorruptData, Unavailable
from ...partitions.model import Descriptor
from ...raft.types import GroupId
from ...statemachine.range_state import Base
from ...statemachine.segments import SegmentStore
from ..directory.kept_files import KeptFiles, Place
from ..directory.sound_files import SoundFiles


class BaseFiles:
    """See the module. `hash_files`: the last stop was not orderly, so a start hashes the files that
    were never read back."""

    def __init__(
        self, store: SegmentStore, kept: KeptFiles, sound: SoundFiles, *, hash_files: bool
    ) -> None:
        self._store = store
        self._kept = kept
        self._sound = sound
        self._hash_files = hash_files
        self.hashed: set[str] = set()
        """Files that the start has hashed."""

    async def bad(self, gid: GroupId, base: Base) -> dict[str, str]:
        """Return what is wrong with each damaged file of a replica's base.

        A file that the replica has in the tier only is not damaged. After a stop that was not
        orderly, files that were never hashed since they were built are hashed (x28): data that the
        kernel had not written when the machine died is not always zero bytes.
        """
        bad = {}
        for info in base.manifest:
            name = info.content_id
            path = self._store.path(name)
            if self._kept.has(gid, name) and not path.exists():
                continue
            if not path.exists() or path.stat().st_size != info.size:
                bad[name] = f"segment {name} is missing or too short"
            elif self._hash_files and not (name in self.hashed or name in self._sound):
                try:
                    # In a thread, and before the file is opened.
                    await asyncio.to_thread(self._store.verify, name, from_disk=True)
                except CorruptData as error:
                    bad[name] = error.message
                else:
                    self.hashed.add(name)
        return bad

    def lacking(self, base: Base) -> list[str]:
        """Return the content ids of the base's files that are not on the disk."""
        names = dict.fromkeys(info.content_id for info in base.manifest)
        return [name for name in names if not self._store.has(name)]

    def places(self, descriptor: Descriptor, base: Base) -> dict[str, Place] | None:
        """Return where the files of a base are that a new generation has in the tier only.

        None: this node never had such files of the generations before. The files are where these
        have them: the tier keeps the files there until this node has spoken in the chain of the new
        generation. Raises Unavailable if a file is nowhere.
        """
        own = GroupId(descriptor.range_id, descriptor.generation)  # of a base of this generation
        before = [GroupId(each.range_id, each.generation) for each in descriptor.lineage]
        lacking = self.lacking(base)
        found = self._kept.of_any([own, *before], lacking)
        self._check(lacking, found)
        return found if any(map(self._kept.knows, (own, *before))) else None

    def check_has(self, gid: GroupId, base: Base) -> None:
        """Raise Unavailable unless the replica has each file of a later base of its generation."""
        self._check(self.lacking(base), self._kept.of(gid))

    def _check(self, lacking: Iterable[str], known: Iterable[str]) -> None:
        """A file that should be on the disk and is missing is damage, which its readers repair: a
        base with such a file begins as it always did."""
        listed = self._store.is_listed
        gone = sorted(name for name in set(lacking).difference(known) if not listed(name))
        if gone and self._kept.has_tier:
            raise Unavailable(
                f"segment {gone[0]} of the base is not on this node any more, and not in the tier "
                "for this node; the node fetches the base again"
            )
