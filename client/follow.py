"""Following: entries as they are committed, of some keys, of a span of keys, or of a whole log.

Each range has one reader, which holds a stream of pushes and the positions it has reached. When the
range is split, merged or moved, or the connection is lost, the reader continues from its positions
at the new place of the keys; no entry is skipped and none comes twice. A position counts as reached
when the caller has taken the batch, so a cursor never runs ahead of its reader.
"""

import math
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from . import progress
from .appends import checked_key, to_key
from .cluster import Cluster, LogRoutes
from .cursor import AsyncKeptCursor
from .cursor_commits import CursorCommits
from .follow_ends import RangeEnds
from .follow_queue import PushQueue
from .follow_shared import SharedFollows, shared_from, shared_keys_max
from .follow_span import FollowSpan, Push
from .follow_streams import OwnStreams
from .gathering import each
from .key_choice import KeyChoice, check_one_choice, chosen
from .positions import Positions
from .protocol import limits
from .protocol.errors import InvalidArgument, LognodeError
from .protocol.key_spans import Span
from .protocol.patterns import Patterns
from .protocol.reads import RESOLVE
from .protocol.types import Cursor, Entry, FollowBatch, FollowStart, Pattern, Tail, Timestamp
from .routing import Range
from .stored_keys import shown_entries, shown_positions, stored


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
        pattern: Pattern | None,
        start: FollowStart,
        timeout: float,
        cursor: AsyncKeptCursor | None = None,
        commit_every_ms: int | None = None,
    ) -> None:
        if keys is not None and pattern is not None:
            raise InvalidArgument(
                "keys and a pattern are both given; give only one of the two", what="pattern"
            )
        check_one_choice(prefix, pattern)
        if keys is not None and prefix is not None:
            raise InvalidArgument(
                "keys and prefix are both given; give only one of the two", what="prefix"
            )
        self._cluster = cluster
        self._log = log
        self._start = start
        self._timeout = timeout
        self._keys = None if keys is None else tuple(dict.fromkeys(map(checked_key, keys)))
        if isinstance(start, Cursor) and start.keys is not None:
            self._start = start.keys
        if self._keys is None and isinstance(self._start, Mapping):
            self._keys = tuple(map(checked_key, self._start))
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
        if self._keys is not None and pattern is not None:
            raise InvalidArgument(
                "the start has keys, and a pattern is given; give a seq or a cursor of a span",
                what="pattern",
            )
        self._prefix = to_key(prefix or b"")
        self._pattern = pattern
        self._patterns: Patterns | None = None
        self._kept: CursorCommits | None = None
        if cursor is not None:
            self._kept = CursorCommits(cursor, commit_every_ms, self._put_error)
        self._positions = Positions({})
        self._spans: list[FollowSpan] = []
        self._queue = PushQueue()
        self._streams: OwnStreams | None = None
        """The streams of this follow alone, once there is one."""
        self._sharer: _FeedSharer | None = None
        """How shared streams hand entries over, if spans are read with shared streams."""
        self._parked = False
        """Whether a shared span is parked."""
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
        kept = None if self._kept is None else await self._kept.begin(self._timeout)
        if isinstance(kept, list):
            choice = await chosen(self._cluster, self._log, self._prefix, self._pattern, deadline)
            self._patterns = choice.patterns
            self._spans = kept
        elif self._keys is not None:
            self._start = self._start if kept is None else kept
            ranges = await self._cluster.ranges_of(self._log, self._keys, deadline)
            if self._log.partitions is not None:
                self._keys = tuple(stored(self._log, key) for key in self._keys)
                ranges = await self._cluster.ranges_of(self._log, self._keys, deadline)
            await self._begin_keys(self._keys, ranges, deadline)
        else:
            choice = await chosen(self._cluster, self._log, self._prefix, self._pattern, deadline)
            self._patterns = choice.patterns
            await self._begin_choice(choice, deadline)
        self._opened = True
        sharing = self._sharing()
        if sharing is None:
            for span in list(self._spans):
                self._own_streams().run(span)
            return
        self._sharer = _FeedSharer(self)
        for span in self._spans:
            span.shared = True
            sharing.add(span, self._sharer)

    async def close(self) -> None:
        """End the follow; the cursor of the last batch says where to continue. The iteration
        ends for every task or thread that waits for a batch."""
        if self._counted is not None and not self._closed:
            self._counted.follows -= 1
            for span in self._shared:
                self._counted.remove(span)
        self._closed = True
        self._queue.wake_readers()
        if self._kept is not None:
            await self._kept.end()
        if self._streams is not None:
            await self._streams.close()

    @property
    def cursor(self) -> Cursor:
        """The position after every batch taken so far."""
        if self._keys is not None:
            return Cursor(keys=shown_positions(self._log, self._positions.view()))
        spans = sorted(self._spans, key=lambda span: span.start)
        return Cursor(spans=tuple(piece for span in spans for piece in span.pieces))

    async def commit(
        self, batch: FollowBatch | None = None, *, timeout: float | None = None
    ) -> None:
        """Keep the position behind the batch in the cursor of the follow; None: behind all batches
        taken so far.

        When the call returns, a majority has the position on disk. Raises the errors of
        `AsyncKeptCursor.commit`, and InvalidArgument for a follow without `cursor`.
        """
        if self._kept is None:
            raise InvalidArgument(
                "the follow has no cursor to commit; give follow(cursor=NAME)", what="cursor"
            )
        await self._kept.cursor.commit(batch or self.cursor, timeout=timeout)

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
        if self._kept is not None:
            self._kept.done(self.cursor)
        while True:
            if self._closed:
                raise StopAsyncIteration
            if not self._queue.qsize():
                await self._queue.news()
                continue
            push = self._queue.get_nowait()
            if isinstance(push, LognodeError):
                raise push
            if self._parked and not self._queue.qsize():
                self._unpark()
            was = self.caught_up
            push.span.caught_up = push.caught_up
            reached = push.span.reached
            push.span.taken(push, push.cuts)
            if self._keys is not None:
                self._positions.advance((entry.key, entry.seq + 1) for entry in push.entries)
            if push.caught_up and self._streams is not None and not self._queue.qsize():
                self._join(push.span)
            if push.entries or self.caught_up != was:
                return FollowBatch(
                    tuple(shown_entries(self._log, push.entries)),
                    self.caught_up,
                    self.cursor,
                    self._staleness_ms(push),
                )
            if self._kept is not None and push.span.reached > reached:
                self._kept.done(self.cursor)  # no entry matches up to here

    def _staleness_ms(self, push: Push) -> int | None:
        if push.fresh_at is None:
            return None
        return max(0, math.ceil(1000 * (self._cluster.now() - push.fresh_at)))

    def _own_streams(self) -> OwnStreams:
        if self._streams is None:
            self._streams = OwnStreams(
                self._cluster,
                self._log,
                self._spans,
                self._queue,
                self._prefix,
                self._patterns,
                self._timeout,
            )
        return self._streams

    def _join(self, span: FollowSpan) -> None:
        if not self._shared:
            self._own_streams().join(span)

    @property
    def caught_up(self) -> bool:
        """Whether the caller has taken everything that was committed when the last pushes left.
        False while a range is followed nowhere, and while its member is cut off from the other
        members."""
        return all(span.caught_up for span in self._spans)

    async def _put_error(self, error: LognodeError) -> None:
        await self._queue.put(error)

    async def entries(self) -> AsyncIterator[Entry]:
        """Yield the entries of all batches."""
        async for batch in self:
            for entry in batch:
                yield entry

    # Where to begin.

    async def _begin_keys(
        self, keys: Sequence[bytes], ranges: list[Range], deadline: float
    ) -> None:
        start = self._start
        if isinstance(start, Mapping):
            given = {stored(self._log, to_key(key)): seq for key, seq in start.items()}
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
                    if start == "latest":
                        seq = await self._ends().end_of(known, deadline)
                    else:
                        seq, _ = await self._resolve(known.start, deadline)
                    positions.update(dict.fromkeys(own, seq))
        self._positions = Positions(positions)
        for known in ranges:
            own_keys = sorted(key for key in positions if known.contains(key))
            for at in range(0, len(own_keys), limits.follow_keys_max):
                some = own_keys[at : at + limits.follow_keys_max]
                keyed = {key: positions[key] for key in some}
                self._spans.append(FollowSpan(some[0], None, keys=keyed, reached_keys=dict(keyed)))

    def _ends(self) -> RangeEnds:
        if self._log.range_ends is None:
            self._log.range_ends = RangeEnds(self._cluster, self._log)
        return self._log.range_ends

    async def _resolve_keys(
        self, keys: Sequence[bytes], start: Any, deadline: float
    ) -> dict[bytes, int]:
        async def one(key: bytes) -> int:
            body, end = {"key": key, "start": start}, None
            while True:
                answer, _ = await self._cluster.call(
                    self._log, key, RESOLVE, body, deadline=deadline
                )
                if not answer["more"]:
                    return int(answer["seq"])
                body["end"] = end = progress.lower(answer, "seq", end)

        return dict(zip(keys, await each(keys, one), strict=True))

    async def _begin_choice(self, choice: KeyChoice, deadline: float) -> None:
        if isinstance(self._start, Cursor):
            await self._cluster.routed(self._log, deadline)
            spans = self._start.spans
            self._spans = [FollowSpan(start, end, n, reached=n) for start, end, n in spans]
            return
        for asked in choice.spans:
            ranges = await self._cluster.all_ranges(self._log, deadline, asked)
            await self._begin_span(asked, ranges, deadline)

    async def _begin_span(self, asked: Span, ranges: list[Range], deadline: float) -> None:
        first, end = asked
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
        body: dict[str, Any] = {"key": None, "start": how, "start_key": key, "end_key": end_key}
        if self._patterns is not None:
            body["patterns"] = self._patterns.to_wire()
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

    @property
    def _shared(self) -> list[FollowSpan]:
        """The spans that are read with streams of several follows."""
        return [span for span in self._spans if span.shared]

    def _hand_over(
        self, span: FollowSpan, entries: list[Entry], *, caught_up: bool, fresh_at: float | None
    ) -> bool:
        """Take entries of a shared stream; False: the queue is full, and nothing was taken."""
        if self._queue.full():
            self._parked = span.parked = True
            return False
        self._queue.put_nowait(Push(span, len(span.rests), entries, span.next, caught_up, fresh_at))
        span.read_to(entries)
        span.told_caught_up = caught_up
        return True

    def _read_alone(self, span: FollowSpan) -> None:
        """Read the span with a stream of its own from now on."""
        span.shared = span.parked = False
        if not self._closed:
            self._own_streams().run(span)

    def _unpark(self) -> None:
        """Read the parked spans on."""
        assert self._counted is not None
        assert self._sharer is not None
        self._parked = False
        for span in self._spans:
            if span.parked:
                span.parked = False
                self._counted.add(span, self._sharer)


class _FeedSharer:
    """A feed as the shared streams know it."""

    __slots__ = ("_feed",)

    def __init__(self, feed: AsyncFeed) -> None:
        self._feed = feed

    def hand_over(
        self, span: FollowSpan, entries: list[Entry], *, caught_up: bool, fresh_at: float | None
    ) -> bool:
        """Take entries of a span; return False when there is no room, and nothing was taken."""
        return self._feed._hand_over(span, entries, caught_up=caught_up, fresh_at=fresh_at)

    def read_alone(self, span: FollowSpan) -> None:
        """Read the span with a stream of its own from now on."""
        self._feed._read_alone(span)
