"""Remove from the tier what no manifest needs: files and manifests, after a grace time.

One node sweeps at a time, that of the controller's leader; two sweeps beside each other do no harm.
`coverage.Needs` decides, on the manifests of one moment. What may go is remembered, and removed
when it still may go after the grace time, which is counted by the clock of this process alone.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from ...client.protocol.errors import LognodeError
from ...partitions.metadata import Metadata
from ..runtime.workers import Workers
from . import names
from .coverage import Needs
from .names import Chain
from .tier_progress import TierProgress
from .tier_store import TierStore

_PERIOD_S: Final = 600.0
_PERIOD_MIN_S: Final = 2.0

log = logging.getLogger("lognode.tier")


class Sweep:
    """The looks of one process at one tier. `clock`: monotonic. `look` blocks."""

    def __init__(
        self, store: TierStore, grace_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        self._grace_s = grace_s
        self._clock = clock
        self._since: dict[str, float] = {}
        """When each object was first seen that may go."""

    def look(self, is_gone: Callable[[int], bool]) -> tuple[int, int]:
        """Remove what may go for the grace time; return the objects removed, and their bytes."""
        snapshot = self._store.snapshot()
        needs = Needs(snapshot, is_gone)
        now = self._clock()
        since: dict[str, float] = {}
        with_files: set[Chain] = set()
        count = size = 0

        def goes(name: str) -> bool:
            since[name] = self._since.get(name, now)
            return now - since[name] >= self._grace_s

        objects = self._store.objects
        for listed in objects.objects(names.FILES):
            part = names.part_of(listed.name)
            if part is None:
                continue
            with_files.add(part[0].chain)
            if needs.may_go(part[0]) and goes(listed.name):
                objects.delete(listed.name)
                del since[listed.name]
                count, size = count + 1, size + listed.size
        for name in needs.manifests_that_may_go(with_files.__contains__):
            if goes(name):
                objects.delete(name)
                del since[name]
                count += 1
        self._since = since
        return count, size


class Sweeps:
    """Runs on every node with a tier. `is_chosen`: whether this node is the one that sweeps."""

    def __init__(
        self, *, store: TierStore, cluster: str, grace_s: float, is_chosen: Callable[[], bool],
        metadata: Callable[[], Metadata], progress: TierProgress, workers: Workers,
    ) -> None:  # fmt: skip
        self._store = store
        self._cluster = cluster
        self._sweep = Sweep(store, grace_s)
        self._period_s = max(_PERIOD_MIN_S, min(_PERIOD_S, grace_s / 4))
        self._is_chosen = is_chosen
        self._metadata = metadata
        self._progress = progress
        self._workers = workers

    def stop(self) -> None:
        """Stop. A sweep under way ends by itself, and nobody waits for it."""
        self._workers.leave()

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await asyncio.sleep(self._period_s)
            if not self._is_chosen():
                continue
            try:
                await self._workers.run(partial(self._store.begin, self._cluster))
                count, size = await self._workers.run(partial(self._sweep.look, self._gone()))
            except LognodeError as error:
                self._progress.failed(error)
                fields = {"error": str(error)}
                log.warning("a sweep of the tier failed", extra={"fields": fields})
                continue
            if count:
                self._progress.removed(count, size)
                fields_ = {"objects": count, "bytes": size}
                log.info("removed objects of the tier", extra={"fields": fields_})

    def _gone(self) -> Callable[[int], bool]:
        """Return what tells whether a log was deleted: its id was given, and no log has the id."""
        metadata = self._metadata()
        given, present = metadata.next_ids["log"], frozenset(metadata.logs)
        return lambda log_id: log_id < given and log_id not in present
