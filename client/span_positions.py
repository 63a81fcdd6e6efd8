"""Positions of whole spans of keys: the ranges of a span answer each for its own keys.

Seqs count within a range. So one start, such as a time, is another seq in each part of a span. A
later split or merge does not change what a seq means for a key (S6).
"""

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from . import progress
from .cluster import Cluster, LogRoutes
from .protocol.patterns import Patterns
from .protocol.reads import RESOLVE
from .protocol.types import Consistency

Position = tuple[bytes, bytes | None, int]
"""The keys in [start, end), and a seq."""
One = TypeVar("One")
Other = TypeVar("Other")


async def span_positions(
    cluster: Cluster, routes: LogRoutes, start: Any, low: bytes, high: bytes | None, *,
    deadline: float, consistency: Consistency = "linearizable", node: int | None = None,
    through: int | None = None, patterns: Patterns | None = None,
) -> list[Position]:  # fmt: skip
    """Return the seqs of a start, `latest`, `earliest` or `["ts", ms]`, for the keys in
    [low, high), in the order of keys.

    `node`: only the replica there answers. `through`: a replica answers once it has applied that
    seq. `patterns`: what the caller reads of the keys, for its permission. Raises LogNotFound,
    Unavailable, Timeout, and NodeNotFound when `node` has no replica.
    """
    found: list[Position] = []
    at: bytes | None = low
    while at is not None and (high is None or at < high):
        body = {
            "key": None, "start": start, "start_key": at, "end_key": high,
            "consistency": consistency, "node": node, "through": through,
            "patterns": None if patterns is None else patterns.to_wire(),
        }  # fmt: skip
        answer, known = await cluster.call(
            routes, at, RESOLVE, body, deadline=deadline, node=node,
            any_replica=consistency == "prefix", waits=through is not None,
        )  # fmt: skip
        until = least(known.end, high, progress.end_key(answer, at))
        found.append((at, until, answer["seq"]))
        at = until
    return found


def overlay(
    one: Iterable[tuple[bytes, bytes | None, One]],
    other: Iterable[tuple[bytes, bytes | None, Other]],
) -> Iterator[tuple[bytes, bytes | None, One, Other]]:
    """Yield the intersections of two lists of spans, with the values of both; each list is
    ascending and disjoint."""
    left, right = list(one), list(other)
    i = j = 0
    while i < len(left) and j < len(right):
        start = max(left[i][0], right[j][0])
        end = least(left[i][1], right[j][1])
        if end is None or start < end:
            yield start, end, left[i][2], right[j][2]
        if end is None:
            return
        i, j = i + (left[i][1] == end), j + (right[j][1] == end)


def least(*ends: bytes | None) -> bytes | None:
    """Return the first of the ends of spans; None lies behind all keys."""
    return min((end for end in ends if end is not None), default=None)
