"""The segment files that were read back from the disk and matched their names.

Each file has a row in meta. After a stop that was not orderly, only files without a row are hashed,
so that the start does not depend on the amount of data. A row is stored after the file was written
out and read again from the disk, not from memory, so that a power loss does not change the result.
The row is removed with the file, and as soon as the file is in doubt.
"""

from collections.abc import Iterable

from ...statemachine.meta import MetaStore
from ..runtime.sync_thread import SyncThread
from . import meta_keys


class SoundFiles:
    """The set of sound files, kept in meta. All calls on the loop's thread."""

    def __init__(self, meta: MetaStore, sync: SyncThread) -> None:
        self._meta = meta
        self._sync = sync
        self._known: set[str] = set()

    def __contains__(self, content_id: str) -> bool:
        return content_id in self._known

    async def load(self, files: frozenset[str]) -> None:
        """Load the rows of these files, and remove the rows of others."""
        stored = {key.removeprefix(meta_keys.SOUND) for key, _ in self._meta.items(meta_keys.SOUND)}
        self._known = stored
        await self.forget(stored - files)

    async def add(self, content_ids: Iterable[str]) -> None:
        """Note that these files were read from the disk and are sound."""
        new = set(content_ids) - self._known
        if new:
            self._known |= new
            puts = dict.fromkeys(map(meta_keys.sound_key, new), True)
            await self._sync.run(lambda: self._meta.commit(puts))

    async def forget(self, content_ids: Iterable[str]) -> None:
        """Remove the rows of files that are gone or in doubt."""
        gone = self._known.intersection(content_ids)
        if gone:
            self._known -= gone
            keys = list(map(meta_keys.sound_key, gone))
            await self._sync.run(lambda: self._meta.commit({}, keys))
