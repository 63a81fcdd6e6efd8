"""Which segment files have been read back from the disk and were what their names say.

A row of meta a file. After a stop that was not orderly only files without one are hashed, so that
the start does not depend on how much data there is. A row is stored after the file was written out
and read again from the disk, not from memory: what a power loss does not undo is true after it as
well. It goes with the file, and as soon as something speaks against it.
"""

from collections.abc import Iterable

from ...statemachine.meta import MetaStore
from ..runtime.sync_thread import SyncThread
from . import meta_keys


class SoundFiles:
    """All calls on the loop's thread."""

    def __init__(self, meta: MetaStore, sync: SyncThread) -> None:
        self._meta = meta
        self._sync = sync
        self._known: set[str] = set()

    def __contains__(self, content_id: str) -> bool:
        return content_id in self._known

    async def load(self, files: frozenset[str]) -> None:
        """What is stored of these files; what is stored of others goes."""
        stored = {key.removeprefix(meta_keys.SOUND) for key, _ in self._meta.items(meta_keys.SOUND)}
        self._known = stored
        await self.forget(stored - files)

    async def add(self, content_ids: Iterable[str]) -> None:
        """These were read from the disk, and are sound."""
        new = set(content_ids) - self._known
        if new:
            self._known |= new
            puts = dict.fromkeys(map(meta_keys.sound_key, new), True)
            await self._sync.run(lambda: self._meta.commit(puts))

    async def forget(self, content_ids: Iterable[str]) -> None:
        """These are gone, or in doubt."""
        gone = self._known.intersection(content_ids)
        if gone:
            self._known -= gone
            keys = list(map(meta_keys.sound_key, gone))
            await self._sync.run(lambda: self._meta.commit({}, keys))
