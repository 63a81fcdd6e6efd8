"""Following: entries as they are committed, of some keys, of a span of keys, or of a whole log.

Each range has one reader, which holds a stream of pushes and the positions it has reached. When the
range is split, merged or moved, or the connection is lost, the reader continues from its positions
at the new place of the keys; no entry is skipped and none comes twice. A position counts as reached
when the caller has taken the batch, so a cursor never runs ahead of its reader.
"""

import asyncio
import math
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from types import TracebackType
from typing import Any, Final, Self

from . import progress
from .appends import checked_key, to_key
from .cluster import Cluster, LogRoutes
from .follow_shared import SharedFollows, Sharer, shared_from, shared_keys_max
from .follow_span import FollowSpan, Push, joined, joined_seqs_max, may_join
from .pages import read_page
from .positions import Positions
from .protocol import limits
from .protocol.errors import InvalidArgument, LognodeError, Timeout, Unavailable
from .protocol.key_spans import prefix_span
from .protocol.reads import FOLLOW, RESOLVE
from .protocol.types import Cursor, Entry, FollowBatch, FollowStart, Tail, Timestamp
from .retry import Attempts
from .routing import Range

credit_bytes_min: Final = 64 * limits.KIB
queued_pushes_max: Final = 4
resolves_at_once: Final = 16


class AsyncFeed:
    """An open follow: `async for batch in feed`. Made by `AsyncLog.follow`; a context manager.

    Batches come in the order of seq per key. A slow caller slows the servers down; memory stays
    bounded.
    """

    def __init__(
        self,
        cluster: Cluster,
        log: LogRoutes,
        *,
        keys: Iterable[bytes | str] | None,
        prefix: bytes | str | None,
        start: FollowStart,
        timeout: float,
    ) -> None:
        if keys is not None and prefix is not None:
            raise InvalidArgument(
                "keys and prefix are both given; give only one of the two", what="prefix"
            )
        self._cluster = cluster
        self._log = log
        self._start = start
        self._timeout = timeout
        self._keys = None if keys is None else list(dict.fromkeys(map(checked_key, keys)))
        if isinstance(start, Cursor) and start.keys is not None:
            self._start = start.keys
        if self._keys is None and isinstance(self._start, Mapping):
            self._keys = list(map(checked_key, self._start))
        if self._keys is not None and not self._keys:
            raise InvalidArgument("follow got no keys; give at least one key", what="keys")
        if self._keys is not None and isinstance(start, Cursor) and start.keys is None:
            raise InvalidArgument(
                "the cursor is of a span of keys; give a cursor of keys", what="start"
            )
        if self._keys is None and isinstance(start, Tail):
            raise InvalidArgument("Tail(n) counts the entries of a key; give keys", what="start")
        if self._keys is None and self._start == "snapshot":
            raise InvalidArgument("`snapshot` is a position of a key; give keys", what="start")
        self._prefix = to_key(prefix or b"")
        self._positions = Positions({})
        self._spans: list[FollowSpan] = []
        self._queue: asyncio.Queue[Push | LognodeError | None] = asyncio.Queue(queued_pushes_max)
        """The item None: the feed was closed."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._readers: dict[FollowSpan, asyncio.Task[None]] = {}
        self._spans_on: Counter[tuple[int, int]] = Counter()
        """The number of spans read from each range and generation."""
        self._shared: set[FollowSpan] = set()
        """The spans that are read with streams of several follows."""
        self._parked: set[FollowSpan] = set()
        """Shared spans for which there was no room: they are read on when the queue is empty."""
        self._counted: SharedFollows | None = None
        self._opened = False
        self._closed = False

    async def open(self) -> None:
        """Find the starting positions and begin. Entering the context calls `open`.

        Raises LogNotFound, Unavailable, Timeout, and Unauthorized for keys that the client may not
        use.
        """
        if self._opened:
            return
        deadline = self._cluster.now() + self._timeout
        if self._keys is not None:
            ranges = await self._cluster.ranges_of(self._log, self._keys, deadline)
            await self._begin_keys(self._keys, ranges, deadline)
        elif isinstance(self._start, Cursor):
            await self._cluster.routed(self._log, deadline)
            spans = self._start.spans
            self._spans = [FollowSpan(start, end, n, reached=n) for start, end, n in spans]
        else:
            asked = prefix_span(self._prefix)
            ranges = await self._cluster.all_ranges(self._log, deadline, asked)
            await self._begin_spans(ranges, deadline)
        self._opened = True
        self._spans_on[0, 0] = len(self._spans)
        sharing = self._sharing()
        for span in self._spans:
            if sharing is None:
                self._run(span)
            else:
                self._shared.add(span)
                sharing.add(span, Sharer(self._hand_over, self._read_alone))

    async def close(self) -> None:
        """End the follow; the cursor of the last batch says where to continue. The iteration
        ends for every task or thread that waits for a batch."""
        if self._counted is not None and not self._closed:
            self._counted.follows -= 1
            for span in self._shared:
                self._counted.remove(span)
        self._closed = True
        self._wake_reader()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _wake_reader(self) -> None:
        if self._queue.empty():  # else nobody waits
            self._queue.put_nowait(None)

    @property
    def cursor(self) -> Cursor:
        """The position after every batch taken so far."""
        if self._keys is not None:
            return Cursor(keys=self._positions.view())
        spans = sorted(self._spans, key=lambda span: span.start)
        return Cursor(spans=tuple(piece for span in spans for piece in span.pieces))

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> FollowBatch:
        await self.open()
        while True:
            if self._closed:
                raise StopAsyncIteration
            push = await self._queue.get()
            if push is None:
                self._wake_reader()  # another task may wait too
                continue
            if isinstance(push, LognodeError):
                raise push
            if self._parked and self._queue.empty():
                self._unpark()
            was = self.caught_up
            push.span.caught_up = push.caught_up
            push.span.taken(push, push.cuts)
            if self._keys is not None:
                self._positions.advance((entry.key, entry.seq + 1) for entry in push.entries)
            if push.caught_up and self._queue.empty():
                self._join(push.span)
            if push.entries or self.caught_up != was:
                return FollowBatch(
                    tuple(push.entries), self.caught_up, self.cursor, self._staleness_ms(push)
                )

    def _staleness_ms(self, push: Push) -> int | None:
        if push.fresh_at is None:
            return None
        return max(0, math.ceil(1000 * (self._cluster.now() - push.fresh_at)))

    @property
    def caught_up(self) -> bool:
        """Whether the caller has taken everything that was committed when the last pushes left.
        False while a range is followed nowhere, and while its member is cut off from the other
        members."""
        return all(span.caught_up for span in self._spans)

    async def entries(self) -> AsyncIterator[Entry]:
        """Yield the entries of all batches."""
        async for batch in self:
            for entry in batch:
                yield entry

    # Where to begin.

    async def _begin_keys(self, keys: list[bytes], ranges: list[Range], deadline: float) -> None:
        start = self._start
        if isinstance(start, Mapping):
            given = {to_key(key): seq for key, seq in start.items()}
            positions = {key: given.get(key, 1) for key in keys}
        elif isinstance(start, Tail):
            positions = await self._resolve_keys(keys, ["tail", start.n], deadline)
        elif isinstance(start, Timestamp):
            # After a merge, timestamps rise only within each key (x2.21).
            positions = await self._resolve_keys(keys, ["ts", start.ms], deadline)
        elif start == "snapshot":
            positions = await self._resolve_keys(keys, "snapshot", deadline)
        elif start == "latest" and self._log.spans is not None:
            # The client may not ask for the end of a range, which has other keys as well.
            positions = await self._resolve_keys(keys, "latest", deadline)
        else:
            positions = {}
            for known in ranges:
                own = [key for key in keys if known.contains(key)]
                if own:
                    seq, _ = await self._resolve(known.start, deadline)
                    positions.update(dict.fromkeys(own, seq))
        self._positions = Positions(positions)
        for known in ranges:
            own_keys = sorted(key for key in positions if known.contains(key))
            for at in range(0, len(own_keys), limits.follow_keys_max):
                some = own_keys[at : at + limits.follow_keys_max]
                keyed = {key: positions[key] for key in some}
                self._spans.append(FollowSpan(some[0], None, keys=keyed, reached_keys=dict(keyed)))

    async def _resolve_keys(
        self, keys: list[bytes], start: Any, deadline: float
    ) -> dict[bytes, int]:
        gate = asyncio.Semaphore(resolves_at_once)

        async def one(key: bytes) -> int:
            async with gate:
                body, end = {"key": key, "start": start}, None
                while True:
                    answer, _ = await self._cluster.call(
                        self._log, key, RESOLVE, body, deadline=deadline
                    )
                    if not answer["more"]:
                        return int(answer["seq"])
                    body["end"] = end = progress.lower(answer, "seq", end)

        return dict(zip(keys, await asyncio.gather(*map(one, keys)), strict=True))

    async def _begin_spans(self, ranges: list[Range], deadline: float) -> None:
        first, end = self._prefix, prefix_end(self._prefix)
        for known in ranges:
            if not known.overlaps(first, end):
                continue
            low: bytes | None = max(known.start, first)
            high = min((e for e in (known.end, end) if e is not None), default=None)
            while low is not None:
                seq, until = await self._resolve(low, deadline, high)
                self._spans.append(FollowSpan(low, until or high, seq, reached=seq))
                low = until

    async def _resolve(
        self, key: bytes, deadline: float, end_key: bytes | None = None
    ) -> tuple[int, bytes | None]:
        """Return the seq of the start for the keys of one range from `key` on and below
        `end_key`, and the key at which this answer ends, None for all: after a merge, timestamps
        rise with seqs only within each merged part (x2.21)."""
        start = self._start
        if start == "earliest":
            return 1, None
        if isinstance(start, int):
            return max(1, start), None
        how: Any = ["ts", start.ms] if isinstance(start, Timestamp) else "latest"
        if how == "latest" and start != "latest":
            raise InvalidArgument(
                f"start is {start!r}; give a seq, 'earliest', 'latest', 'snapshot', Tail, "
                "Timestamp, a mapping or a cursor",
                what="start",
            )
        body = {"key": None, "start": how, "start_key": key, "end_key": end_key}
        answer, _ = await self._cluster.call(self._log, key, RESOLVE, body, deadline=deadline)
        return answer["seq"], progress.end_key(answer, key)

    # Sharing streams with other follows.

    def _sharing(self) -> SharedFollows | None:
        """Return the shared streams, if this follow is to read with them."""
        if self._keys is None or len(self._keys) > shared_keys_max:
            return None
        if self._log.shared_follows is None:
            self._log.shared_follows = SharedFollows(self._cluster, self._log)
        self._counted = self._log.shared_follows
        self._counted.follows += 1
        return self._counted if self._counted.follows > shared_from else None

    def _hand_over(
        self, span: FollowSpan, entries: list[Entry], *, caught_up: bool, fresh_at: float | None
    ) -> bool:
        """Take entries of a shared stream; False: the queue is full, and nothing was taken."""
        if self._queue.full():
            self._parked.add(span)
            return False
        self._queue.put_nowait(Push(span, len(span.rests), entries, span.next, caught_up, fresh_at))
        self._advance(span, entries)
        span.told_caught_up = caught_up
        return True

    def _read_alone(self, span: FollowSpan) -> None:
        """Read the span with a stream of its own from now on."""
        self._shared.discard(span)
        if not self._closed:
            self._run(span)

    def _unpark(self) -> None:
        assert self._counted is not None
        parked, self._parked = self._parked, set()
        for span in parked:
            self._counted.add(span, Sharer(self._hand_over, self._read_alone))

    def _advance(self, span: FollowSpan, entries: list[Entry]) -> None:
        """Note that the reader of the span has these entries."""
        if span.keys is not None:
            span.keys.update((entry.key, entry.seq + 1) for entry in entries)
            span.moves += len(entries)

    # Reading.

    def _run(self, span: FollowSpan) -> None:
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
        self._run(rest)

    def _settle(self, span: FollowSpan, on: tuple[int, int]) -> None:
        """Note that the span is read from this generation; (0, 0) for no generation."""
        self._spans_on[span.on] -= 1
        if not self._spans_on[span.on]:
            del self._spans_on[span.on]
        span.on = on
        self._spans_on[on] += 1

    def _join(self, span: FollowSpan) -> None:
        """Join the span with another span of the same range, now that no push of either is on
        its way to the caller."""
        if self._spans_on[span.on] < 2 or self._shared:
            return
        for other in self._spans:
            if other is span or not may_join(span, other):
                continue
            lower = min(span, other, key=lambda each: each.reached)
            if abs(span.reached - other.reached) <= joined_seqs_max:
                for each in (span, other):
                    self._stop(each)
                    self._settle(each, (0, 0))
                    self._spans.remove(each)
                self._divided(joined(span, other))
            elif not lower.asked:
                lower.asked = True  # a span without new entries reports its position when it opens
                self._stop(lower)
                self._run(lower)
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
        credit = max(credit_bytes_min, limits.follow_credit_bytes_max // len(self._spans))
        body = {
            "keys": span.keys,
            "prefix": self._prefix,
            "start_key": span.start,
            "end_key": span.end,
            "from_seq": span.next,
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
                entries = span.fresh(page.entries)
                staleness_ms, caught_up = push.get("staleness_ms"), push["caught_up"]
                fresh_at = (
                    None if staleness_ms is None else self._cluster.now() - staleness_ms / 1000
                )
                made = Push(span, len(span.rests), entries, following, caught_up, fresh_at)
                await self._queue.put(made)
                span.told_caught_up = caught_up
                span.next = following
                self._advance(span, page.entries)
        finally:
            stream.cancel()
        raise Unavailable(f"the node ended the follow of {known}", reason="ended")

    def _narrow(self, span: FollowSpan, end_key: bytes | None) -> None:
        """Read the merged range in the order of seq only up to this key: beyond it, entries from
        before the merge have their own seqs."""
        if end_key is not None and (span.end is None or end_key < span.end):
            self._divided(span.cut_at(end_key))


def prefix_end(prefix: bytes) -> bytes | None:
    """Return the first key after all keys with the prefix; None when no key follows."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes((stripped[-1] + 1,)) if stripped else None
