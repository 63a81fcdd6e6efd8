"""The entries of a span of keys with seqs in [from_seq, to_seq), wherever the keys are by now.

The ranges of the keys, and the files of the entries, differ from one read to the next. The entries
do not. Each file, and the memory of the range, is a band of seqs that comes in the order of key
and seq. Each block of a file is decoded once.

`ordered_pages` reads the bands one after the other: each key's entries come in the order of seq.

`span_pages` reads the bands side by side, the one furthest behind first, and each page carries the
place below which the span is complete. So a small buffer puts all entries into one order by key
and seq. Entries of a key come in any order.
"""

from collections.abc import AsyncGenerator
from heapq import heappop, heappush
from itertools import count
from typing import Any, Final, NamedTuple

from . import progress
from .cluster import Cluster, LogRoutes
from .durations import milliseconds
from .protocol import limits
from .protocol.chunks import Chunk, matching, of_page
from .protocol.errors import NotFound
from .protocol.patterns import Patterns
from .protocol.reads import EXPORT
from .protocol.types import Consistency
from .routing import Range
from .span_positions import least

page_bytes: Final = 4 * limits.page_bytes_default
"""Page size of a read side by side, which holds some pages of each band."""
_NO_MORE: Final = (1 << 63) - 1
"""The `position` beyond the requested bands: nothing follows."""
LINEARIZABLE: Final[Consistency] = "linearizable"
Body = dict[str, Any]
Place = tuple[bytes, int]
"""A key and a seq: the order of the whole read."""


class Span(NamedTuple):
    """Keys in [start, end), or from `start` on, that match the `patterns`; seqs in
    [from_seq, to_seq). With a `lease` the entries that it holds, else the present entries."""

    start: bytes
    end: bytes | None
    from_seq: int
    to_seq: int
    lease: str | None = None
    patterns: Patterns | None = None


class How(NamedTuple):
    """How pages are asked for. `timeout`: seconds for a page. `node`: only the replica there
    answers. `through`: a replica answers once it has applied that seq."""

    consistency: Consistency
    timeout: float
    node: int | None = None
    through: int | None = None


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
    """Yield all entries of the span, and with each page the place below which the span is complete.
    `timeout`: seconds for a page.

    With the consistency "prefix", any member that has applied the span may answer. Raises NotFound
    when the lease has ended; LogNotFound, Unavailable, Timeout.
    """
    how = How(consistency, timeout)
    numbers = count()
    rest: list[_Band] = []
    if span.from_seq < span.to_seq:
        rest = [_Band((span.start, 0), next(numbers), span.from_seq, span.to_seq, span.end)]
    while rest:
        band = heappop(rest)
        key = band.place[0]
        position = [[[band.first, band.last, *band.place]], _NO_MORE]
        page, until = await _page(cluster, routes, span, (key, band.end), position, how)
        if until is not None and until != band.end:
            behind = band._replace(place=(until, 0), number=next(numbers))
            heappush(rest, behind)
        for first, last, place in _bands(page):
            if until is None or place[0] < until:
                place = max(place, (key, 0))
                heappush(rest, _Band(place, next(numbers), first, last, until))
        yield SpanPage(_chunks(page, span), rest[0].place if rest else None)


async def ordered_pages(
    cluster: Cluster, routes: LogRoutes, span: Span, how: How, *, limit: int | None = None
) -> AsyncGenerator[list[Chunk], None]:
    """Yield the entries of the span, each key's in the order of seq; the first `limit` of them.

    The span is cut where a range ends and where one pass can read no further; each rest continues
    from the same position. Raises NotFound when the lease has ended; LogNotFound, Unavailable,
    Timeout, and NodeNotFound when `how.node` has no replica.
    """
    left = limits.page_entries_max if limit is None else limit
    # A lease ends the read where its view ends, and its position can skip what was trimmed.
    first: Any = [[], span.from_seq]
    if span.lease is None:
        first = [[[span.from_seq, span.to_seq, b"", 0]], _NO_MORE]
    rest: list[tuple[bytes, bytes | None, Any]] = []
    if span.from_seq < span.to_seq:
        rest = [(span.start, span.end, first)]
    while rest:
        start, end, position = rest.pop()
        while position is not None:
            if left <= 0:
                return
            page, until = await _page(
                cluster, routes, span, (start, end), position, how,
                entries_max=left, bytes_max=limits.page_bytes_max,
            )  # fmt: skip
            if until is not None and until != end:
                rest.append((until, end, position))
                end = until
            found = _chunks(page, span)
            if limit is not None:
                left -= sum(chunk.rows for chunk in found)
            yield found
            position = page["position"]


async def _page(
    cluster: Cluster, routes: LogRoutes, span: Span, keys: tuple[bytes, bytes | None],
    position: Any, how: How, *, entries_max: int = limits.page_entries_max,
    bytes_max: int = page_bytes,
) -> tuple[Body, bytes | None]:  # fmt: skip
    """Return a page of these keys, and the end of the keys that the page and its position have."""
    start, end = keys
    body = {
        "start_key": start, "end_key": end, "as_of": span.lease, "position": position,
        "limit": min(entries_max, limits.page_entries_max), "bytes": bytes_max,
        "patterns": None if span.patterns is None else span.patterns.to_wire(),
    }  # fmt: skip
    page, known = await _ask(cluster, routes, span, start, body, how)
    return page, least(end, known.end, progress.end_key(page, start))


def _chunks(page: Body, span: Span) -> list[Chunk]:
    """Return the entries of the page that match: a node of an earlier version sends others too."""
    found = of_page(page)
    if span.patterns is None or page.get("matched"):
        return found
    return matching(found, span.patterns)


def _bands(page: Body) -> list[tuple[int, int, Place]]:
    """Return the unread bands of the page."""
    position = page["position"]
    rows = [] if position is None else position[0]
    return [(first, last, (key, seq)) for first, last, key, seq in rows]


async def _ask(
    cluster: Cluster, routes: LogRoutes, span: Span, key: bytes, body: Body, how: How
) -> tuple[Body, Range]:
    is_prefix, through = how.consistency == "prefix", how.through
    if is_prefix:
        through = max(span.to_seq - 1, through or 0)
    full = {
        **body, "consistency": how.consistency, "node": how.node, "through": through,
        "timeout_ms": milliseconds(how.timeout),
    }  # fmt: skip
    try:
        return await cluster.call(
            routes, key, EXPORT, full, deadline=cluster.now() + how.timeout, node=how.node,
            any_replica=is_prefix, waits=through is not None,
        )  # fmt: skip
    except NotFound as error:
        if error.code != NotFound.code or span.lease is None:
            raise
    if is_prefix:  # a member that lags may not know the lease yet
        return await _ask(cluster, routes, span, key, body, how._replace(consistency=LINEARIZABLE))
    raise lease_ended(routes.name)


def lease_ended(log: str) -> NotFound:
    """Return the error of a read of a snapshot without a lease."""
    return NotFound(
        f"the lease of this snapshot of log {log!r} has ended, and its entries may be removed; "
        "take another snapshot, and renew its lease in time"
    )
