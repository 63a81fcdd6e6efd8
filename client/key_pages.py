"""Keys of a log, page by page."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from . import progress
from .cluster import Cluster, LogRoutes
from .durations import milliseconds
from .key_choice import KeyChoice
from .protocol import limits
from .protocol.errors import LogNotFound
from .protocol.reads import KEYS
from .protocol.types import Consistency
from .stored_keys import check_plain


async def key_pages(
    cluster: Cluster, routes: LogRoutes, choice: KeyChoice, after: bytes | None,
    limit: int | None, consistency: Consistency, node: int | None, timeout: float,
) -> AsyncGenerator[list[bytes], None]:  # fmt: skip
    """Yield the chosen keys behind `after`, in byte order; the first `limit` of them.

    `timeout` is for each page, in seconds. Raises LogNotFound, Unavailable, Timeout, and
    Unsupported for a log with Kafka partitions.
    """
    await check_plain(cluster, routes, "lists of keys", cluster.now() + timeout)
    log_id, left = routes.log_id, limit
    for prefix in choice.prefixes:
        part = choice._replace(prefixes=(prefix,))
        pages = _of_prefix(cluster, routes, part, after, left, consistency, node, timeout)
        async with aclosing(pages):
            async for found in pages:
                if choice.patterns is not None and routes.log_id != log_id:
                    raise LogNotFound(
                        f"the log {routes.name!r} was deleted during this read, and a log with "
                        "this name was created later. Start the read again"
                    )
                yield found
                if left is not None:
                    left -= len(found)


async def _of_prefix(
    cluster: Cluster, routes: LogRoutes, choice: KeyChoice, after: bytes | None, left: int | None,
    consistency: Consistency, node: int | None, timeout: float,
) -> AsyncGenerator[list[bytes], None]:  # fmt: skip
    """Yield the keys of one span, page by page; the first `left` of them."""
    patterns = choice.patterns
    (first, end), (prefix,) = choice.spans[0], choice.prefixes
    at = first if after is None else max(first, after)
    while left is None or left > 0:
        if end is not None and at >= end:
            return
        body = {
            "prefix": prefix, "start_after": after,
            "limit": min(left or limits.keys_page_max, limits.keys_page_max),
            "patterns": None if patterns is None else patterns.to_wire(),
            "consistency": consistency, "node": node, "timeout_ms": milliseconds(timeout),
        }  # fmt: skip
        answer, known = await cluster.call(
            routes, at, KEYS, body, deadline=cluster.now() + timeout, node=node,
            any_replica=consistency == "prefix",
        )  # fmt: skip
        found: list[bytes] = answer["keys"]
        if patterns is not None and not answer.get("matched"):
            found = patterns.matching(found)  # the node is of an earlier version
        yield found
        if left is not None:
            left -= len(found)
        if answer["more"]:  # more keys may follow a short or empty page
            at = after = progress.later_key(answer, "after", after)
        elif known.end is None or (end is not None and known.end >= end):
            return
        else:
            at = known.end
