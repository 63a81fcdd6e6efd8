"""The entries of a span of keys with seqs in [from_seq, to_seq), wherever the keys are by now.

Which ranges have the keys, and how far each can be read in one pass, may differ from one reading to
the next: ranges are split, merged and moved. What is read is the same, and it can be put into one
order, that of seq and key, with little held back: the part that is furthest behind is read first,
and each page comes with the seq below which nothing is missing any more.
"""

from collections.abc import AsyncIterator, Mapping
from heapq import heappop, heappush
from typing import Any, Final, NamedTuple

from . import limits, wire
from .cluster import Cluster, LogRoutes
from .errors import NotFound, RemoteProtocolError
from .routing import Range
from .types import Consistency

page_bytes: Final = 4 * limits.page_bytes_default
"""Of those who read much: a page costs a round trip."""
_COLUMNS: Final = ("seqs", "timestamps", "values")
Body = dict[str, Any]


class Span(NamedTuple):
    """Keys in [start, end), or from `start` on; seqs in [from_seq, to_seq). With a `lease` what
    that holds, else what is there now."""

    start: bytes
    end: bytes | None
    from_seq: int
    to_seq: int
    lease: str | None = None


class SpanPage(NamedTuple):
    """A page as it travels, and the seq below which all entries of the span have come by now."""

    body: Body
    settled: int


async def span_pages(
    cluster: Cluster,
    routes: LogRoutes,
    span: Span,
    *,
    consistency: Consistency,
    timeout: float,
) -> AsyncIterator[SpanPage]:
    """All of the span; a page's entries are in the order of seq. `timeout`: seconds for a page.

    With the consistency "prefix" any member is asked that has applied as much. Raises NotFound when
    the lease has ended; LogNotFound, Unavailable, Timeout.
    """
    rest = [(span.from_seq, span.start, span.end)] if span.from_seq < span.to_seq else []
    while rest:
        at, start, end = heappop(rest)
        body = {
            "start_key": start, "end_key": end, "start": at, "as_of": span.lease,
            "limit": min(limits.page_entries_max, span.to_seq - at), "bytes": page_bytes,
        }  # fmt: skip
        page, known = await _ask(cluster, routes, span, start, body, consistency, timeout)
        edges = (end, known.end, page.get("end_key"))
        until = min((edge for edge in edges if edge is not None), default=None)
        following = page.get("next") if page.get("more") else span.to_seq
        if type(following) is not int or (until is not None and until <= start):
            raise RemoteProtocolError("a page of a span that ends where it cannot")
        if until is not None and until != end:
            heappush(rest, (at, until, end))
        if following < span.to_seq:
            heappush(rest, (following, start, until))
        settled = rest[0][0] if rest else span.to_seq
        yield SpanPage(_below(page, span.to_seq), settled)


async def _ask(
    cluster: Cluster, routes: LogRoutes, span: Span, key: bytes, body: Body,
    consistency: Consistency, timeout: float,
) -> tuple[Body, Range]:  # fmt: skip
    full = {**body, "consistency": consistency, "timeout_ms": int(1000 * timeout)}
    is_prefix = consistency == "prefix"
    if is_prefix:
        full["through"] = span.to_seq - 1
    try:
        return await cluster.call(
            routes, key, wire.READ_SPAN, full, deadline=cluster.now() + timeout,
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


def _below(page: Mapping[Any, Any], to_seq: int) -> Body:
    """The page without what is not below the seq."""
    seqs = page.get("seqs")
    if type(seqs) is not list:
        raise RemoteProtocolError("a page that is none")
    count = len(seqs)
    while count and seqs[count - 1] >= to_seq:
        count -= 1
    if count == len(seqs):
        return dict(page)
    keys, headers = page.get("keys"), page.get("headers") or {}
    cut = {name: page[name][:count] for name in _COLUMNS}
    return {
        **page,
        **cut,
        "keys": keys if type(keys) is bytes else (keys or [])[:count],
        "headers": {at: header for at, header in headers.items() if at < count} or None,
        "snapshots": [at for at in page.get("snapshots") or () if at < count] or None,
    }
