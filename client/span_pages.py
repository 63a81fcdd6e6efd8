"""The entries of a span of keys with seqs in [from_seq, to_seq), wherever the keys are by now.

Which ranges have the keys, and which files the entries lie in, differs from one reading to the
next. What is read is the same, and it can be put into one order, that of key and seq, with little
held back: each file, and what is in memory, is a band of seqs that comes in that order; all of them
are read side by side, the one that is furthest behind first, and each page comes with the place
below which nothing is missing any more. Each block of a file is decoded once.
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
"""Of those who read much: a page costs a round trip."""
_NO_MORE: Final = (1 << 63) - 1
"""Where to go on behind the bands that are asked for: nowhere."""
Body = dict[str, Any]
Place = tuple[bytes, int]
"""A key and a seq: the order in which all is read."""


class Span(NamedTuple):
    """Keys in [start, end), or from `start` on; seqs in [from_seq, to_seq). With a `lease` what
    that holds, else what is there now."""

    start: bytes
    end: bytes | None
    from_seq: int
    to_seq: int
    lease: str | None = None


class SpanPage(NamedTuple):
    """Some entries, and the place below which all of the span has come; None: all has."""

    chunks: list[Chunk]
    settled: Place | None


class _Band(NamedTuple):
    """Seqs in [first, last), from a place on, of the keys below `end`. They are read in the order
    of places; no two are compared further than `number`."""

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
    """All of the span; of each key in the order of seq. `timeout`: seconds for a page.

    With the consistency "prefix" any member is asked that has applied as much. Raises NotFound when
    the lease has ended; LogNotFound, Unavailable, Timeout.
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
    """Return what is left of the bands of the page."""
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
    if is_prefix:  # a member that is behind has not heard of the lease yet
        return await _ask(cluster, routes, span, key, body, "linearizable", timeout)
    raise NotFound(
        f"the lease of this snapshot of log {routes.name!r} has ended, and what it held may be "
        "gone; take another snapshot, with a longer lease"
    )
