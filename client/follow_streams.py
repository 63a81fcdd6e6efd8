"""The streams of one follow: a reader for each span, which goes on wherever the keys are."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from itertools import compress
from typing import Any, Final

from . import progress
from .cluster import Cluster, LogRoutes
from .follow_queue import PushQueue
from .follow_span import FollowSpan, Push, joined, joined_seqs_max, joins_at, may_join
from .pages import read_page
from .protocol import limits
from .protocol.errors import LognodeError, Timeout, Unavailable
from .protocol.patterns import Patterns
from .protocol.reads import FOLLOW
from .protocol.types import Entry
from .retry import Attempts
from .routing import Range

credit_bytes_min: Final = 64 * limits.KIB


class OwnStreams:
    """Reads spans into the queue. A span that is cut or joined changes in `spans` too."""

    def __init__(
        self,
        cluster: Cluster,
        log: LogRoutes,
        spans: list[FollowSpan],
        queue: PushQueue,
        prefix: bytes,
        patterns: Patterns | None,
        timeout: float,
    ) -> None:
        self._cluster = cluster
        self._log = log
        self._spans = spans
        self._queue = queue
        self._prefix = prefix
        self._patterns = patterns
        self._timeout = timeout
        self._tasks: set[asyncio.Task[None]] = set()
        self._readers: dict[FollowSpan, asyncio.Task[None]] = {}
        self._spans_on = Counter(span.on for span in spans)
        """The number of spans read from each range and generation."""

    async def close(self) -> None:
        """End all readers."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def run(self, span: FollowSpan) -> None:
        """Begin to read the span."""
        task = self._readers[span] = asyncio.create_task(self._read(span))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _stop(self, span: FollowSpan) -> None:
        """Stop the reader of the span, which hands nothing over from now on."""
        self._readers.pop(span).cancel()

    def _divided(self, rest: FollowSpan) -> None:
        """Start a reader for the rest of a span that was cut."""
        self._spans.append(rest)
        self._spans_on[rest.on] += 1
        self.run(rest)

    def _settle(self, span: FollowSpan, on: tuple[int, int]) -> None:
        """Note that the span is read from this generation; (0, 0) for no generation."""
        self._spans_on[span.on] -= 1
        if not self._spans_on[span.on]:
            del self._spans_on[span.on]
        span.on = on
        self._spans_on[on] += 1

    def join(self, span: FollowSpan) -> None:
        """Join the span with another span of the same range, now that no push of either is on
        its way to the caller."""
        if self._spans_on[span.on] < 2:
            return
        for other in self._spans:
            if other is span or not may_join(span, other):
                continue
            lower = min(span, other, key=lambda each: each.reached)
            is_near = abs(span.reached - other.reached) <= joined_seqs_max
            if is_near and lower.reached >= joins_at(span, other):
                for each in (span, other):
                    self._stop(each)
                    self._settle(each, (0, 0))
                    self._spans.remove(each)
                self._divided(joined(span, other))
            elif not lower.asked:
                lower.asked = True  # a span without new entries reports its position when it opens
                self._stop(lower)
                self.run(lower)
            return

    async def _read(self, span: FollowSpan) -> None:
        """Follow one span for ever; errors that cannot be retried go to the caller."""
        attempts = self._fresh_attempts()
        while True:
            known, tried, before = None, 0, (span.next, span.moves)
            now = self._cluster.now()
            try:
                known = await self._cluster.locate(self._log, span.start, now + self._timeout)
                if not span.within(known):
                    self._divided(span.cut(known))
                self._settle(span, (known.range_id, known.generation))
                tried = self._cluster.target(known)
                await self._read_from(span, known, tried)
                continue
            except LognodeError as error:
                if isinstance(error, (Unavailable, Timeout)) and span.told_caught_up:
                    await self._lost(span)
                if (span.next, span.moves) != before:
                    attempts = self._fresh_attempts()  # the follow made progress
                news = known is not None and self._cluster.heed(self._log, known, tried, error)
                try:
                    step = attempts.failed(error, self._cluster.now(), news=news)
                    if known is not None:
                        await self._cluster.prepare(
                            self._log, known, tried, step, self._cluster.now() + self._timeout
                        )
                    elif step.delay_s:
                        await asyncio.sleep(step.delay_s)
                except LognodeError as final:
                    await self._queue.put(final)
                    return
            except Exception as error:  # a bug: the caller must not wait for ever
                await self._queue.put(LognodeError(f"internal error: {error!r}"))
                raise

    async def _lost(self, span: FollowSpan) -> None:
        """Report that the span is no longer known to be caught up."""
        span.told_caught_up = False
        await self._queue.put(Push(span, len(span.rests), [], span.next, False))

    def _fresh_attempts(self) -> Attempts:
        return Attempts(f"follow of log {self._log.name!r}", float("inf"), writes=False)

    async def _read_from(self, span: FollowSpan, known: Range, node: int) -> None:
        credit = max(credit_bytes_min, self._cluster.follow_bytes_max // len(self._spans))
        body = {
            "keys": span.keys,
            "prefix": self._prefix,
            "start_key": span.start,
            "end_key": span.end,
            "from_seq": span.next,
            "patterns": None if self._patterns is None else self._patterns.to_wire(),
        }
        deadline = self._cluster.now() + self._timeout
        stream = await self._cluster.stream(
            known, FOLLOW, body, deadline, node=node, credit_bytes=credit
        )
        try:
            async for push in stream:
                page = read_page(push["page"])
                self._narrow(span, progress.end_key(push, span.start))
                self._cluster.remember(self._log, known, push)
                following = push["next"]
                if type(following) is dict:  # positions per key: the entries carry them too
                    following = span.next
                entries = span.fresh(self._matching(page.entries, push))
                staleness_ms, caught_up = push.get("staleness_ms"), push["caught_up"]
                fresh_at = (
                    None if staleness_ms is None else self._cluster.now() - staleness_ms / 1000
                )
                made = Push(span, len(span.rests), entries, following, caught_up, fresh_at)
                await self._queue.put(made)
                span.told_caught_up = caught_up
                span.next = following
                span.read_to(page.entries)
        finally:
            stream.cancel()
        raise Unavailable(f"the node ended the follow of {known}", reason="ended")

    def _matching(self, entries: list[Entry], push: Mapping[Any, Any]) -> list[Entry]:
        """Return the entries that match: a node of an earlier version pushes others too."""
        if self._patterns is None or push.get("matched"):
            return entries
        flags = self._patterns.flags([entry.key for entry in entries])
        return list(compress(entries, flags))

    def _narrow(self, span: FollowSpan, end_key: bytes | None) -> None:
        """Read the merged range in the order of seq only up to this key: beyond it, entries from
        before the merge have their own seqs."""
        if end_key is not None and (span.end is None or end_key < span.end):
            rest = span.cut_at(end_key)
            rest.apart = span.next + 1
            self._divided(rest)
