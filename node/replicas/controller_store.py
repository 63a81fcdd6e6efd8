"""Stores a controller replica's metadata in meta.

The metadata is stored whole when a generation begins. Each checkpoint stores what has changed
since.
"""

from collections.abc import Collection
from typing import Any

from ...partitions.metadata import Metadata
from ...partitions.model import Descriptor
from ...statemachine.meta import MetaStore
from ..directory import feature_level, meta_keys
from ..directory.image_rows import ImageRows
from ..metadata import image_pages
from ..rules.durable_steps import Rows
from ..runtime.sync_thread import SyncThread
from .controller_replica import ControllerReplica


class ControllerStore:
    """Stores metadata. All calls on the loop's thread. Raises DiskFailure, which ends the node."""

    def __init__(self, meta: MetaStore, sync: SyncThread) -> None:
        self._meta = meta
        self._sync = sync

    async def whole(
        self, descriptor: Descriptor, metadata: Metadata, applied: tuple[int, int]
    ) -> tuple[Rows, ImageRows]:
        """Return the rows of a metadata that no longer changes.

        The rows replace the stored rows of its generation.
        """
        stored = ImageRows(meta_keys.controller_buckets(descriptor.generation))
        changes = metadata.changes
        packed = await image_pages.packed(metadata, lambda: [b for _, b in changes.after(0)])
        head, puts = stored.all(metadata.version, packed)
        key = meta_keys.controller_key(descriptor.generation)
        row = {**_row(descriptor, applied), **head}
        rows = Rows(key, row, puts, (stored.prefix,), metadata.feature_level)
        return rows, stored

    async def checkpoint(self, replica: ControllerReplica) -> int | None:
        """Store what has changed since the last checkpoint.

        Return the applied index that is stored then, or None when the replica has ended meanwhile.
        """
        changes, stored = replica.metadata.changes, replica.stored
        since = 0 if stored.version < 0 else replica.stored_tick  # a row of an earlier version
        packed = await image_pages.packed(
            replica.metadata, lambda: [b for _, b in changes.after(since)]
        )
        if replica.stopped:
            return None
        applied = replica.packed()
        head, puts, deletes = stored.changed(replica.metadata.version, packed)
        row = {**_row(replica.descriptor, applied), **head}
        puts[meta_keys.controller_key(replica.gid.generation)] = row
        await self._commit(replica.metadata, puts, deletes)
        return applied[0]

    async def _commit(
        self, metadata: Metadata, puts: dict[str, Any], deletes: Collection[str]
    ) -> None:
        level = metadata.feature_level
        await self._sync.run(
            lambda: self._meta.commit(
                {**puts, **feature_level.rows(self._meta.get, level)}, deletes
            )
        )


def _row(descriptor: Descriptor, applied: tuple[int, int]) -> dict[str, Any]:
    return {"descriptor": descriptor.to_wire(), "applied": list(applied), "damaged": None}
