"""The entries of a span of keys with seqs in [from_seq, to_seq), wherever the keys are by now.

The ranges of the keys, and the files of the entries, differ from one read to the next. The entries
do not, and can be put into one order by key and seq with a small buffer. Each file, and the memory
of the range, is a band of seqs that comes in this order. The bands are read side by side, the one
furthest behind first, and each page carries the place below which the span is complete. Each block
of a file is decoded once.
"""

from collections.abc import AsyncGenerator
from heapq import heappop, heappush
from itertools import count
from typing import Any, Final, NamedTuple

from . import progress
from .cluster import Cluster, LogRoutes
from .durations import milliseconds
from .protocol import limits
from .protocol.chunks import Chunk, of_page
from .protocol.errors import NotFound
from .protocol.reads import EXPORT
from .protocol.types import Consistency
from .routing import Range

page_bytes: Final = 4 * limits.page_bytes_default
"""Page size for bulk reads: a page costs a round trip."""
_NO_MORE: Final = (1 << 63) - 1
"""The `position` beyond the requested bands: nothing follows."""
Body = dict[str, Any]
Place = tuple[bytes, int]
"""A key and a seq: the order of the whole read."""


class Span(NamedTuple):
    """Keys in [start, end), or from `start` on; seqs in [from_seq, to_seq). With a `lease` the
    entries that it holds, else the present entries."""

    start: bytes
    end: bytes | None
    from_seq: int
    to_seq: int
    lease: str | None = None


class SpanPage(NamedTuple):
    """Some entries, and the place below which the span is complete; None: all of it is."""

    chunks: list[Chunk]
    settled: Place | None


class _Band(NamedTuple):
    """Seqs in [first, last), from a place on, of the keys below `end`. Bands are ordered by
    place, and then by the unique `number`."""

    place: Place
    number: int
    first: int
    last: int
    end: bytes | None


async def span_pages(
    cluster: Cluster,
    routes: LogRoutes,
    span: Span,
    *,
    consistency: Consistency,
    timeout: float,
) -> AsyncGenerator[SpanPage, None]:
    """Yield all entries of the span; each key's in the order of seq. `timeout`: seconds for a page.

    With the consistency "prefix", any member that has applied the span may answer. Raises NotFound
    when the lease has ended; LogNotFound, Unavailable, Timeout.
    """
    numbers = count()
    rest: list[_Band] = []
    if span.from_seq < span.to_seq:
        rest = [_Band((span.start, 0), next(numbers), span.from_seq, span.to_seq, span.end)]
    while rest:
        band = heappop(rest)
        key = band.place[0]
        body = {
            "start_key": key, "end_key": band.end, "as_of": span.lease,
            "position": [[[band.first, band.last, *band.place]], _NO_MORE],
            "limit": limits.page_entries_max, "bytes": page_bytes,
        }  # fmt: skip
        page, known = await _ask(cluster, routes, span, key, body, consistency, timeout)
        edges = (band.end, known.end, progress.end_key(page, key))
        until = min((edge for edge in edges if edge is not None), default=None)
        if until is not None and until != band.end:
            behind = band._replace(place=(until, 0), number=next(numbers))
            heappush(rest, behind)
        for first, last, place in _bands(page):
            if until is None or place[0] < until:
                place = max(place, (key, 0))
                heappush(rest, _Band(place, next(numbers), first, last, until))
        yield SpanPage(of_page(page), rest[0].place if rest else None)


def _bands(page: Body) -> list[tuple[int, int, Place]]:
    """Return the unread bands of the page."""
    position = page["position"]
    rows = [] if position is None else position[0]
    return [(first, last, (key, seq)) for first, last, key, seq in rows]


async def _ask(
    cluster: Cluster, routes: LogRoutes, span: Span, key: bytes, body: Body,
    consistency: Consistency, timeout: float,
) -> tuple[Body, Range]:  # fmt: skip
    full = {**body, "consistency": consistency, "timeout_ms": milliseconds(timeout)}
    is_prefix = consistency == "prefix"
    if is_prefix:
        full["through"] = span.to_seq - 1
    try:
        return await cluster.call(
            routes, key, EXPORT, full, deadline=cluster.now() + timeout,
            any_replica=is_prefix, waits=is_prefix,
        )  # fmt: skip
    except NotFound as error:
        if error.code != NotFound.code or span.lease is None:
            raise
    if is_prefix:  # a member that lags may not know the lease yet
        return await _ask(cluster, routes, span, key, body, "linearizable", timeout)
    raise NotFound(
        f"the lease of this snapshot of log {routes.name!r} has ended, and its entries may "
        "be removed; take another snapshot with a longer lease"
    )
