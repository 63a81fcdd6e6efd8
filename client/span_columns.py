"""The entries of a span of keys as columns, in a snapshot or as they are now."""

from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing

from .ahead import ahead
from .cluster import Cluster, LogRoutes
from .entry_columns import EntryColumns
from .key_choice import KeyChoice
from .protocol.chunks import Chunk
from .protocol.errors import InvalidArgument, LogNotFound
from .protocol.patterns import Patterns
from .protocol.types import End, Start, Timestamp
from .span_pages import How, Span, ordered_pages
from .span_positions import Position, overlay, span_positions
from .stored_keys import shown_chunk


async def columns_of_spans(
    cluster: Cluster, routes: LogRoutes, spans: Iterable[Span], how: How,
    check: Callable[[], None], *, limit: int | None = None,
) -> AsyncGenerator[EntryColumns, None]:  # fmt: skip
    """Yield the entries of the spans, one span after the other, at most `limit`; each key's come in
    the order of seq. The next page is fetched while the caller works.

    `check` is called after each page, and raises an error when the pages are no longer of the same
    log. Raises the errors of `ordered_pages`.
    """
    async with aclosing(ahead(_chunks(cluster, routes, spans, how, limit))) as pages:
        async for found in pages:
            check()
            for chunk in found:
                yield EntryColumns(shown_chunk(routes, chunk))


async def scan_span(
    cluster: Cluster, routes: LogRoutes, keys: KeyChoice, start: Start, end: End,
    how: How, *, limit: int | None = None,
) -> AsyncGenerator[EntryColumns, None]:  # fmt: skip
    """Yield the present entries of keys in [start, end), as `columns_of_spans` does.

    Raises InvalidArgument for a start that only one key has, and LogNotFound when the log is
    deleted meanwhile.
    """
    check_consistency(how.consistency)
    await cluster.routed(routes, cluster.now() + how.timeout)
    check = _same_log(routes)
    spans: list[Span] = []
    for each in keys.spans:
        found_spans = await _present_spans(cluster, routes, each, keys.patterns, start, end, how)
        spans += [span._replace(patterns=keys.patterns) for span in found_spans]
    check()
    async with aclosing(columns_of_spans(cluster, routes, spans, how, check, limit=limit)) as found:
        async for columns in found:
            yield columns


def check_one_of(key: object, prefix: object, pattern: object) -> None:
    """Raise InvalidArgument when a read names a key and a prefix or a pattern."""
    if key is not None and pattern is not None:
        raise InvalidArgument(
            "a key and a pattern are both given; give only one of the two", what="pattern"
        )
    if key is not None and prefix is not None:
        raise InvalidArgument(
            "a key and a prefix are both given; give only one of the two", what="prefix"
        )


def check_consistency(consistency: str) -> None:
    """Raise InvalidArgument for a consistency that no read has."""
    if consistency not in ("linearizable", "prefix"):
        raise InvalidArgument(
            f"consistency is {consistency!r}; give 'linearizable' or 'prefix'",
            what="consistency",
        )


async def _present_spans(
    cluster: Cluster, routes: LogRoutes, keys: tuple[bytes, bytes | None],
    patterns: Patterns | None, start: Start, end: End, how: How,
) -> list[Span]:  # fmt: skip
    """Return the spans of the entries that these keys have now, with seqs in [start, end).

    Each range tells its last seq, so that the read has an end while others append, and has all that
    was acknowledged before the call (S7). Raises InvalidArgument for a start that only one key has.
    """

    async def positions(of: object) -> list[Position]:
        return await span_positions(
            cluster, routes, of, *keys, deadline=cluster.now() + how.timeout,
            consistency=how.consistency, node=how.node, through=how.through, patterns=patterns,
        )  # fmt: skip

    async def bound(given: int | Timestamp) -> list[Position]:
        if isinstance(given, Timestamp):
            return await positions(["ts", given.ms])
        return [(*keys, max(1, given))]

    if start == "earliest":
        start = 1
    if not isinstance(start, int | Timestamp):
        raise InvalidArgument(
            f"start is {start!r}; a scan of many keys starts at a seq, 'earliest' or Timestamp. "
            "Name a key, or give such a start",
            what="start",
        )
    if end is not None and not isinstance(end, int | Timestamp):
        raise InvalidArgument(f"end is {end!r}; give a seq or Timestamp", what="end")
    begins = await bound(start)
    ends = await positions("latest")
    bounds = ends if end is None else await bound(end)
    found = []
    for low, high, begin, top in overlay(begins, ends):
        for low_, high_, _, until in overlay([(low, high, 0)], bounds):
            found.append(Span(low_, high_, begin, min(top, until)))
    return found


def _same_log(routes: LogRoutes) -> Callable[[], None]:
    """Return a check that raises LogNotFound once another log has the name of this one."""
    log_id = routes.log_id

    def check() -> None:
        if routes.log_id != log_id:
            raise LogNotFound(
                f"the log {routes.name!r} was deleted during this scan, and a log with this name "
                "was created later. Start the scan again"
            )

    return check


async def _chunks(
    cluster: Cluster, routes: LogRoutes, spans: Iterable[Span], how: How, limit: int | None
) -> AsyncGenerator[list[Chunk], None]:
    left = limit
    for span in spans:
        if left is not None and left <= 0:
            return
        async with aclosing(ordered_pages(cluster, routes, span, how, limit=left)) as pages:
            async for found in pages:
                if left is not None:
                    left -= sum(chunk.rows for chunk in found)
                yield found
