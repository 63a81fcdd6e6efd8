"""The tier of a node: opened by the settings, and its parts together."""

from collections.abc import Callable, Container, Coroutine, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

from ...client.protocol.errors import CorruptData, InvalidArgument
from ...client.protocol.limits import MIB
from ...raft.types import GroupId
from ...statemachine.range_state import Base
from ...statemachine.segments import SegmentStore
from ..config import Config
from ..directory.data_directory import DataDirectory, Identity
from ..metadata.view import View
from ..metrics import Metrics
from ..replicas.host import Host
from ..runtime.surroundings import Surroundings
from ..runtime.sync_thread import SyncThread
from .arrivals import THREADS, Arrivals, TierSource
from .chunk_cache import ChunkCache
from .far_files import MEMORY_BYTES, READERS, FarFiles
from .keeping import Keeping
from .sweeps import Sweeps
from .tier_progress import TierProgress
from .tier_store import TierStore
from .uploads import AT_ONCE, Uploads

_CACHE_BYTES: Final = 256 * MIB
"""The most bytes of the cache on the disk, which begins empty."""
_PATIENCE_S: Final = 30.0
"""How long a request and its repetitions take. The node itself tries again afterwards."""


def opened(config: Config, around: Surroundings) -> TierStore | None:
    """Return the tier of the settings, None without one. Nothing is read or written yet.

    Raises InvalidArgument for settings that contradict each other, and for a place that no tier can
    have.
    """
    place = config.tier
    is_s3 = place.startswith("s3://")
    for name in ("tier_endpoint", "tier_region"):
        if getattr(config, name) and not is_s3:
            raise InvalidArgument(
                f"{name} was given ({config.sources.get(name)}), and tier is {place or 'not set'}; "
                "the setting is for s3://BUCKET/PREFIX. Leave the setting out, or give such a tier",
                what=name,
            )
    if not place:
        return None
    if not is_s3 and "://" not in place:
        data, tier = config.data.resolve(), Path(place).resolve()
        if tier.is_relative_to(data) or data.is_relative_to(tier):
            raise InvalidArgument(
                f"tier is {place} ({config.sources.get('tier')}), and the data directory is "
                f"{config.data}; neither may contain the other. Give --tier a directory of another "
                "disk",
                what="tier",
            )
    try:
        objects = around.objects(
            place, endpoint=config.tier_endpoint or None, region=config.tier_region or None,
            patience_s=_PATIENCE_S if is_s3 else None,
        )  # fmt: skip
    except InvalidArgument as error:
        raise InvalidArgument(f"tier: {error.message}", what="tier") from None
    return TierStore(objects)


class Repair(Protocol):
    """What repairs files of this node."""

    def doubt(self, gid: GroupId, content_id: str | None, error: CorruptData) -> None:
        """See `upkeep.segment_repair`."""

    def ask_members(self, content_id: str) -> None:
        """See `upkeep.segment_repair`."""


class NodeTier:
    """Uploads, sweeps, and files in the tier only, of a node."""

    def __init__(
        self, store: TierStore, *, config: Config, identity: Identity, host: Host,
        files: SegmentStore, view: View, wall_ms: Callable[[], int],
        repair: Repair, metrics: Metrics, around: Surroundings, sync: SyncThread,
    ) -> None:  # fmt: skip
        node_id, cluster = identity.node_id, identity.cluster_id
        self._progress = TierProgress(store.place, metrics)
        self._uploads = Uploads(
            node_id=node_id, cluster=cluster, host=host, files=files, store=store,
            bytes_per_s=config.tier_bytes_per_s, metadata=lambda: view.metadata, wall_ms=wall_ms,
            doubt=repair.doubt, progress=self._progress,
            workers=around.workers("lognode-tier", AT_ONCE),
        )  # fmt: skip
        places = DataDirectory(config.data)
        cache = ChunkCache(
            places.tmp / "tier-cache", memory_bytes_max=MEMORY_BYTES, disk_bytes_max=_CACHE_BYTES
        )
        self._far = FarFiles(
            store, cache, host.kept, files, directory=places.files, tmp=places.tmp, sync=sync,
            workers=around.workers("lognode-tier-read", READERS), metrics=metrics,
            ask=repair.ask_members,
        )  # fmt: skip
        self._keeping = Keeping(
            node_id=node_id, cluster=cluster, host=host, files=files, store=store, far=self._far,
            metadata=lambda: view.metadata, wall_ms=wall_ms, progress=self._progress,
            grace_s=config.tier_grace, upload=self._uploads.upload,
            workers=around.workers("lognode-tier-keep", 1),
        )  # fmt: skip
        self._arrivals = Arrivals(
            store, metadata=lambda: view.metadata, progress=self._progress, metrics=metrics,
            workers=around.workers("lognode-tier-fetch", THREADS),
        )  # fmt: skip
        host.kept.use(self)
        self._sweeps = Sweeps(
            store=store, cluster=cluster, grace_s=config.tier_grace,
            is_chosen=lambda: view.controller_leader() == node_id,
            metadata=lambda: view.metadata, progress=self._progress,
            workers=around.workers("lognode-tier-sweep", 1),
        )  # fmt: skip

    def parts(self) -> list[tuple[str, Callable[[], Coroutine[Any, Any, None]]]]:
        """Return the parts that run until the node stops, by name."""
        return [
            ("tier", self._uploads.run),
            ("tier_only", self._keeping.run),
            ("tier_sweeps", self._sweeps.run),
        ]

    async def bring_back(self, content_id: str) -> bool:
        """Fetch a file from the tier to the disk: see `KeptFiles.bring_back`."""
        return await self._far.bring_back(content_id)

    @property
    def gives_files(self) -> bool:
        """Whether the tier may be asked for files: see `KeptFiles.gives_files`."""
        return self._arrivals.gives_files

    async def source(self, gid: GroupId, sizes: Mapping[str, int]) -> TierSource:
        """Look which files may come from the tier: see `KeptFiles.source`."""
        return await self._arrivals.source(gid, sizes)

    async def join(self, gid: GroupId, base: Base) -> None:
        """Claim old files of a base that comes from a peer: see `KeptFiles.join`."""
        await self._keeping.join(gid, base)

    def leaving(self, log_id: int, base: Base) -> Container[str]:
        """Return the files that a policy leaves in the tier only: see `KeptFiles.leaving`."""
        return self._keeping.leaving(log_id, base)

    def row(self) -> dict[str, Any]:
        """Return the part of the node's status."""
        return {**self._progress.row(), **self._far.row(), **self._arrivals.row()}

    def stop(self) -> None:
        """Stop, without a wait for the store."""
        self._uploads.stop()
        self._keeping.stop()
        self._far.stop()
        self._arrivals.stop()
        self._sweeps.stop()
