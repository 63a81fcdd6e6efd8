"""Which logs and ranges the tier has now: looks at the manifests, again and again.

A look lists the manifests in a thread, and reads those that are new. The process answers from the
last look that succeeded. All other calls are on the loop.
"""

import asyncio
import contextlib
import logging
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from ...client.protocol import log_names
from ...client.protocol.errors import LognodeError, Unavailable
from ...raft.types import GroupId
from ...statemachine.segments import SegmentStore
from ...statemachine.spans import Span
from ..lifecycle import base_pieces
from ..runtime.workers import Workers
from ..tier import coverage
from ..tier.coverage import LogPieces
from ..tier.manifest import Held, LogFacts, Manifest
from ..tier.names import Chain
from ..tier.tier_store import TierStore
from .served_range import ServedRange, Source, source_of

_AGAIN_S: Final = 1.0
"""The least time between two looks."""

log = logging.getLogger("lognode.serve_tier")


@dataclass(frozen=True, slots=True)
class ServedLog:
    """A log: its facts, and its ranges in the order of keys, maybe with gaps."""

    facts: LogFacts
    ranges: Sequence[ServedRange]

    def of_span(self, span: Span) -> list[ServedRange]:
        """Return the ranges with keys of the span, in order."""
        begin = max(0, bisect_right(self.ranges, span[0], key=lambda each: each.span[0]) - 1)
        found = self.ranges[begin:]
        return [
            each for each in found
            if (span[1] is None or each.span[0] < span[1])
            and (each.span[1] is None or each.span[1] > span[0])
        ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Served:
    """What one look has found. `looked_at`: monotonic time of its begin."""

    logs: Mapping[str, ServedLog] = field(default_factory=dict)
    """By name, in the order of ids."""
    ranges: Mapping[GroupId, ServedRange] = field(default_factory=dict)
    order: Sequence[GroupId] = ()
    """The ranges by id."""
    held: Mapping[str, Held] = field(default_factory=dict)
    """Where the files of the ranges are."""
    looked_at: float = float("-inf")

    @classmethod
    def of(cls, logs: Iterable[ServedLog], looked_at: float) -> "Served":
        """Return what these logs have. There may be 100,000 files: call this in a thread."""
        by_id = sorted(logs, key=lambda each: each.facts.log_id)
        found = {each.facts.name: each for each in by_id}
        ranges = {one.gid: one for each in by_id for one in each.ranges}
        return cls(found, ranges, sorted(ranges), files_of(ranges.values()), looked_at)


class Following:
    """Follows the tier of a cluster. `cluster`: its id. `period_s`: the time between two looks.
    `clock`: monotonic.

    `on_news` is called after each look that found something, before reads see what it found.
    """

    def __init__(
        self, store: TierStore, files: SegmentStore, cluster: str, *, period_s: float,
        on_news: Callable[[Served], None], clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._store = store
        self._files = files
        self.cluster = cluster
        self._period_s = period_s
        self._on_news = on_news
        self._clock = clock
        self._workers = Workers("lognode-serve-tier", 1)
        self._wanted = asyncio.Event()
        self._news = asyncio.Event()
        self.served = Served()
        self.error = ""
        """Why the last look failed; "" after a look that succeeded."""

    async def begin(self) -> None:
        """Look for the first time. Raises the errors of the store."""
        await self._look()

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._period_s):
                    await self._wanted.wait()
            self._wanted.clear()
            try:
                await self._look()
            except LognodeError as error:
                if not self.error:
                    fields = {"error": str(error)}
                    log.warning("cannot look at the manifests", extra={"fields": fields})
                self.error = error.message
            await asyncio.sleep(min(_AGAIN_S, self._period_s))

    def stop(self) -> None:
        """Stop. A look under way ends by itself, and nobody waits for it."""
        self._workers.leave()

    def look_soon(self) -> None:
        """Look before the period is over: a file of the present manifests is gone."""
        self._wanted.set()

    def age_s(self) -> float:
        """Return the seconds since the begin of the last look that succeeded."""
        return self._clock() - self.served.looked_at

    async def changed(self, timeout_s: float) -> None:
        """Return after the next look that succeeds. Raises TimeoutError."""
        async with asyncio.timeout(timeout_s):
            await self._news.wait()

    async def _look(self) -> None:
        served = await self._workers.run(partial(self._found, self.served))
        self._on_news(served)
        self.served, self.error = served, ""
        news, self._news = self._news, asyncio.Event()
        news.set()

    def _found(self, before: Served) -> Served:
        """Return what the tier has; in a thread.

        The last log of a name counts: the others were deleted. Logs that the cluster writes by
        itself are left out. A place without the tier, as a directory that is not mounted now, is an
        error and not an empty tier.
        """
        began = self._clock()
        pieces = {
            each.newest.log.name: each
            for each in coverage.logs(self._store.snapshot().heads.values())
            if each.newest.log.name not in log_names.OF_CLUSTER
        }
        if self._store.cluster() != self.cluster:
            raise Unavailable(f"{self._store.place} has the tier of another cluster by now")
        known = {each.source: each for each in before.ranges.values()}
        found = [self._log(each, known) for each in pieces.values()]
        kept = self._kept(found, before)
        names = {each.facts.name for each in kept}
        logs = [*(each for each in found if each.facts.name not in names), *kept]
        # A listing that is known to be old says nothing about the present.
        return Served.of(logs, before.looked_at if kept else began)

    def _log(self, log: LogPieces, known: Mapping[Source, ServedRange]) -> ServedLog:
        ranges = [self._range(head, span, known) for span, head in log.pieces]
        return ServedLog(log.newest.log, ranges)

    def _kept(self, found: Iterable[ServedLog], before: Served) -> list[ServedLog]:
        """Return the logs of the look before that an old listing shows at an earlier state. A
        log whose name a later log has was deleted."""
        now = {each.facts.log_id: each for each in found}
        ids = {each.facts.name: log_id for log_id, each in now.items()}
        return [
            log for log in before.logs.values()
            if ids.get(log.facts.name, 0) <= log.facts.log_id
            and any(self._goes_back(each, now.get(log.facts.log_id)) for each in log.ranges)
        ]  # fmt: skip

    def _goes_back(self, old: ServedRange, log: ServedLog | None) -> bool:
        """Whether the listing is from before the manifest of this range.

        The head of a chain never goes back, and a chain ends when later generations have its keys.
        Without these, the log was deleted, and the manifest is gone; or the listing is old.
        """
        found = [] if log is None else log.of_span(old.span)
        if any(each.source[1:3] < old.source[1:3] for each in found):
            return True
        if not coverage.without(old.span, (each.span for each in found)):
            return False
        range_id, generation, number, _ = old.source
        return self._store.manifest(Chain(range_id, generation), number) is not None

    def _range(
        self, head: Manifest, span: Span, known: Mapping[Source, ServedRange]
    ) -> ServedRange:
        found = known.get(source_of(head, span))
        if found is not None:
            return found
        whole = self._store.manifest(head.chain, head.number)
        if whole is None or whole.base is None:
            raise Unavailable(f"{head.name} was replaced and removed during a look")
        return ServedRange(whole, span, base_pieces.unpack(whole.base), self._files)


def files_of(ranges: Iterable[ServedRange]) -> dict[str, Held]:
    """Return where the files of the ranges are; the last range with a file counts."""
    return {name: held for each in ranges for name, held in each.held.items()}
