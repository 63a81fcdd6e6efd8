"""Ask a range where its Kafka partitions begin and end, and remove their first entries."""

from typing import Any

from .cluster import Cluster, LogRoutes
from .durations import milliseconds
from .protocol.key_partitions import span
from .protocol.partitions import TAILS, TRIM_PARTITION
from .protocol.types import Consistency
from .routing import Range

TIMEOUT_S = 5.0
"""How long a range may take for its answer, besides the wait that the request allows."""


async def tails(
    cluster: Cluster, routes: LogRoutes, start: bytes, end: bytes | None, deadline: float, *,
    consistency: Consistency = "linearizable", above: int = 0, wait_ms: int = 0,
) -> tuple[dict[str, Any], Range]:  # fmt: skip
    """Return the answer of the range of the stored key `start`, and the range.

    The answer is about the partitions in [start, end) that lie in the range and have an entry of
    the seq `above` or a higher one. The range waits up to `wait_ms` for such an entry. Raises
    LogNotFound, Unavailable, Timeout, and InvalidArgument for a log without partitions.
    """
    body = {
        "start_key": start, "end_key": end, "above": above, "wait_ms": wait_ms,
        "consistency": consistency, "timeout_ms": milliseconds(TIMEOUT_S),
    }  # fmt: skip
    return await cluster.call(routes, start, TAILS, body, deadline=deadline, waits=bool(wait_ms))


async def trim_partition(
    cluster: Cluster, routes: LogRoutes, partition: int, before: int, deadline: float
) -> int:
    """Remove the entries of a partition below a seq; return where the partition begins then.

    Raises LogNotFound, Unavailable, Timeout, Overloaded, and InvalidArgument for a seq beyond the
    end.
    """
    start, end = span(partition)
    body = {"start_key": start, "end_key": end, "before": before}
    answer, _ = await cluster.call(routes, start, TRIM_PARTITION, body, deadline=deadline)
    begin: int = answer["begin"]
    return begin
