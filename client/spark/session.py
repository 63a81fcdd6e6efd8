"""One blocking connection to a cluster, for the drivers and tasks of one log."""

import asyncio
import contextlib
import copy
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Sequence,
)
from typing import Any, Final, Self, TypeVar

from ..ahead import ahead
from ..cursor import AsyncKeptCursor
from ..protocol.cluster import METADATA
from ..protocol.errors import LognodeError
from ..protocol.patterns import Patterns, patterns_of
from ..protocol.reads import LAYOUT, READ_SPAN, RESOLVE
from ..protocol.types import Consistency, CursorStart
from ..retry import Attempts
from ..routing import Range
from ..snapshot import AsyncSnapshot, check_log, take
from ..span_pages import Span, SpanPage, span_pages
from ..span_positions import Position, least, overlay, span_positions
from ..stored_keys import check_plain
from ..vector import Vector
from .connection import Connection
from .options import ReadOptions
from .planning import KeySpan, Mark, Weight

asks_at_once: Final = 16
_EVERYTHING: Final[tuple[KeySpan, ...]] = ((b"", None),)
Found = TypeVar("Found")


class Session(Connection):
    """A connection that reads a log.

    `log` may be empty until `of_log` names a log. `timeout`: seconds, for each call. All raise
    LogNotFound, Unavailable, Timeout; the constructor raises InvalidArgument.
    """

    def __init__(self, servers: str, log: str, *, timeout: float) -> None:
        super().__init__(servers)
        self._routes = self._cluster.log(log)
        self._timeout = timeout

    def of_log(self, name: str) -> Self:
        """Return a session of another log of the cluster, which is open as long as this one."""
        other = copy.copy(self)
        other._routes = self._cluster.log(name)
        return other

    def names(self) -> list[str]:
        """Return the names of the cluster's logs, ascending."""

        async def ask() -> list[str]:
            deadline = self._deadline()
            found = await self._retried(lambda: self._cluster.overview(deadline), deadline)
            return sorted(log["name"] for log in found["logs"])

        return self._loop.call(ask())

    def log(self) -> Vector:
        """Return the log, as a vector without parts."""

        async def ask() -> Vector:
            deadline = self._deadline()
            await self._retried(
                lambda: self._cluster.refresh(self._routes.name, deadline), deadline
            )
            await check_plain(self._cluster, self._routes, "reads by Spark", deadline)
            cluster, log_id = self._cluster.pool.cluster or "", self._routes.log_id or 0
            return Vector(cluster, self._routes.name, log_id, "", 0, ())

        return self._loop.call(ask())

    def reach(self) -> None:
        """Ask any node for metadata, of no log. Raises Unauthorized, Unavailable, Timeout."""

        async def ask() -> None:
            deadline = self._deadline()
            await self._retried(
                lambda: self._cluster.look(METADATA, {"limit": 1}, deadline, newer=False), deadline
            )

        self._loop.call(ask())

    def check(self, of: Vector) -> None:
        """Raise InvalidArgument when the vector belongs to another log."""
        self.log()
        self._loop.run(lambda: check_log(self._cluster, self._routes, of))

    def patterns(self, given: Sequence[str | bytes]) -> Patterns:
        """Return the patterns, with the levels of the log's hierarchy. Raises InvalidArgument,
        LimitExceeded."""
        self.log()
        return patterns_of(self._routes.hierarchy, given)

    def cursor(self, options: ReadOptions, start: CursorStart, holder: int) -> AsyncKeptCursor:
        """Return the kept cursor that the options name, for `call`. `holder`: the number of this
        reader if it has opened the cursor before, or 0."""
        return AsyncKeptCursor(
            self._cluster, self._routes, options.cursor or "", keys=options.keys,
            prefix=options.prefix, pattern=options.patterns, start=start, timeout=self._timeout,
            holder=holder,
        )  # fmt: skip

    def call(self, asked: Coroutine[Any, Any, Found]) -> Found:
        """Return the result of a call of the SDK."""
        return self._loop.call(asked)

    def snapshot(self, lease_s: float) -> Vector:
        """Take a committed prefix of every range, held by a lease."""

        async def ask() -> Vector:
            await self._ranges()
            return (await take(self._cluster, self._routes, lease_s, self._timeout)).vector

        return self._loop.call(ask())

    def renew(self, vector: Vector, lease_s: float) -> None:
        """Extend the vector's lease. Raises NotFound when the lease has ended."""
        snapshot = AsyncSnapshot(self._cluster, self._routes, vector, timeout=self._timeout)
        self._loop.call(snapshot.renew(lease_s))

    def release(self, vector: Vector) -> None:
        """End the vector's lease, since nobody will read it; if this fails, the lease expires."""
        snapshot = AsyncSnapshot(self._cluster, self._routes, vector, timeout=1.0)
        with contextlib.suppress(LognodeError):
            self._loop.call(snapshot.release())

    def positions(self, start: Any, spans: Sequence[KeySpan] = _EVERYTHING) -> list[Position]:
        """Return the positions of a start, `latest`, `earliest` or `["ts", ms]`, for all keys of
        the spans."""

        async def ask(known: Range, low: bytes, high: bytes | None) -> list[Position]:
            return await span_positions(
                self._cluster, self._routes, start, low, high, deadline=self._deadline()
            )

        return self._loop.call(self._each(spans, ask))

    def marks(self) -> list[Mark]:
        """Return what each range has applied now, linearizably, in the order of keys."""

        async def ask(known: Range, low: bytes, high: bytes | None) -> list[Mark]:
            found: list[Mark] = []
            at: bytes | None = low
            while at is not None:
                body = {"start": "latest", "start_key": at, "end_key": high}
                answer, now = await self._cluster.call(
                    self._routes, at, RESOLVE, body, deadline=self._deadline()
                )
                until = _following(now.end, high)
                found.append(
                    Mark(at, now.range_id, now.generation, answer["seq"], answer.get("applied"))
                )
                at = until
            return found

        return self._loop.call(self._each(_EVERYTHING, ask))

    def layout(self, spans: Sequence[KeySpan] = _EVERYTHING) -> list[Weight]:
        """Return the approximate bytes from each key on, ascending by key."""

        async def ask(known: Range, low: bytes, high: bytes | None) -> list[Weight]:
            found: list[Weight] = []
            at: bytes | None = low
            while at is not None:
                body = {"start_key": at, "end_key": high, "consistency": "prefix"}
                answer, now = await self._cluster.call(
                    self._routes, at, LAYOUT, body, deadline=self._deadline(),
                    any_replica=True,
                )  # fmt: skip
                found += ((key, size) for key, size in answer.get("weights") or ())
                at = _following(now.end, high)
            return found

        return self._loop.call(self._each(spans, ask))

    def first_times(self, spans: Sequence[Position]) -> list[int]:
        """Return the timestamp of the first entry of each span from its seq on, where there is
        an entry, in Unix milliseconds."""
        gate = asyncio.Semaphore(asks_at_once)

        async def ask(low: bytes, high: bytes | None, seq: int) -> list[int]:
            body = {
                "start_key": low, "end_key": high, "start": seq, "limit": 1, "bytes": 1,
                "consistency": "prefix",
            }  # fmt: skip
            async with gate:
                page, _ = await self._cluster.call(
                    self._routes, low, READ_SPAN, body, deadline=self._deadline(),
                    any_replica=True,
                )  # fmt: skip
            return list(page["timestamps"][:1])

        async def every() -> list[int]:
            return [ms for found in await asyncio.gather(*(ask(*s) for s in spans)) for ms in found]

        return self._loop.call(every())

    def stored(self) -> tuple[int, int]:
        """Return the approximate stored bytes of all remaining entries, and their seqs."""
        size = sum(size for _, size in self.layout())
        bounds = overlay(self.positions("earliest"), self.positions("latest"))
        return size, sum(last - first for _, _, first, last in bounds)

    def pages(
        self, span: Span, consistency: Consistency, of: Vector
    ) -> Generator[SpanPage, None, None]:
        """Yield the pages of a span of the log; the next page is fetched while the caller works.
        Raises the errors of `span_pages` and `check`."""
        source = self._loop.run(lambda: self._pages(span, consistency, of))
        try:
            while True:
                try:
                    page = self._loop.following(source)
                except StopIteration:
                    return
                yield page
        finally:
            self._loop.call(source.aclose())

    async def _pages(
        self, span: Span, consistency: Consistency, of: Vector
    ) -> AsyncGenerator[SpanPage, None]:
        pages = ahead(
            span_pages(
                self._cluster, self._routes, span, consistency=consistency, timeout=self._timeout
            )
        )
        async with contextlib.aclosing(pages):
            async for page in pages:
                check_log(self._cluster, self._routes, of)
                yield page

    async def _each(
        self,
        spans: Sequence[KeySpan],
        ask: Callable[[Range, bytes, bytes | None], Awaitable[list[Any]]],
    ) -> list[Any]:
        """Return the rows that `ask` finds for each range within the spans, in the order of
        keys."""
        gate = asyncio.Semaphore(asks_at_once)

        async def one(known: Range, low: bytes, high: bytes | None) -> list[Any]:
            async with gate:
                return await ask(known, low, high)

        asked = [
            one(known, max(low, known.start), least(high, known.end))
            for low, high in spans for known in await self._ranges((low, high))
        ]  # fmt: skip
        return [row for rows in await asyncio.gather(*asked) for row in rows]

    async def _ranges(self, span: KeySpan = _EVERYTHING[0]) -> list[Range]:
        deadline = self._deadline()
        return await self._retried(
            lambda: self._cluster.all_ranges(self._routes, deadline, span), deadline
        )

    async def _retried(self, ask: Callable[[], Awaitable[Found]], deadline: float) -> Found:
        """Return the result of `ask`, retried until the deadline while it may succeed."""
        name = self._routes.name
        what = f"metadata of log {name!r}" if name else "metadata of all logs"
        attempts = Attempts(what, deadline, writes=False)
        while True:
            try:
                return await ask()
            except LognodeError as error:
                step = attempts.failed(error, self._cluster.now())
            await asyncio.sleep(step.delay_s)

    def _deadline(self) -> float:
        return self._cluster.now() + self._timeout


def _following(until: bytes | None, end: bytes | None) -> bytes | None:
    """Return the key after which to continue, or None at the end."""
    return None if until is None or (end is not None and until >= end) else until
