"""The keys of a read of many keys: those with a prefix, those that match patterns, or all keys."""

from typing import NamedTuple

from .appends import to_key
from .cluster import Cluster, LogRoutes
from .protocol.errors import InvalidArgument
from .protocol.key_spans import Span, prefix_span
from .protocol.patterns import Patterns, patterns_of
from .protocol.types import Pattern
from .stored_keys import check_plain


class KeyChoice(NamedTuple):
    """The keys that begin with one of the prefixes and match the patterns, if there are any."""

    prefixes: tuple[bytes, ...]
    """In order; none begins with another."""
    patterns: Patterns | None = None

    @property
    def spans(self) -> list[Span]:
        """The spans of the prefixes: disjoint, in the order of keys."""
        return list(map(prefix_span, self.prefixes))


async def chosen(
    cluster: Cluster, routes: LogRoutes, prefix: bytes | str | None, pattern: Pattern | None,
    deadline: float,
) -> KeyChoice:  # fmt: skip
    """Return the keys of a read. The levels of patterns are those of the log's hierarchy.

    Raises InvalidArgument for a pattern that is not valid, and for a prefix beside patterns;
    LimitExceeded, LogNotFound, Unavailable, Timeout, Unsupported for a log with Kafka partitions.
    """
    check_one_choice(prefix, pattern)
    if prefix or pattern is not None:
        await check_plain(cluster, routes, "prefixes and patterns of keys", deadline)
    if pattern is None:
        return KeyChoice((to_key(prefix or b""),))
    await cluster.routed(routes, deadline)
    patterns = patterns_of(routes.hierarchy, pattern)
    return KeyChoice(patterns.prefixes, patterns)


def check_one_choice(prefix: object, pattern: object) -> None:
    """Raise InvalidArgument when a read names both a prefix and patterns."""
    if prefix and pattern is not None:
        raise InvalidArgument(
            "a prefix and a pattern are both given; give only one of the two. A pattern has a "
            "prefix of its own",
            what="pattern",
        )
