"""Keys of a log with Kafka partitions: as users see them, and as the ranges store them.

A stored key has the number of its partition in front (`protocol.key_partitions`). Users of the SDK
neither give nor see it. This module is the only one that knows: `Cluster.call` changes the requests
about one key with `of_request`, the batcher the keys of appends with `stored`, and readers show
entries with `shown_answer` and `shown_entries`. Uses that need an order of keys, or prefixes of
keys, are refused: the partitions stand before the keys.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .protocol import key_partitions
from .protocol.chunks import Chunk
from .protocol.types import Entry

if TYPE_CHECKING:
    from .cluster import Cluster, LogRoutes

Body = dict[str, Any]


def stored(routes: "LogRoutes", key: bytes) -> bytes:
    """Return the stored key of a key. The log is known to the routes. Raises LimitExceeded."""
    count = routes.partitions
    return key if count is None else key_partitions.stored(key, count)


def of_request(routes: "LogRoutes", key: bytes, body: Body) -> tuple[bytes, Body]:
    """Return the stored key of a request about one key, and the request with that key."""
    found = stored(routes, key)
    if "keys" in body:
        return found, {**body, "keys": [[found, before] for _, before in body["keys"]]}
    return found, {**body, "key": found}


async def check_plain(cluster: "Cluster", routes: "LogRoutes", what: str, deadline: float) -> None:
    """Raise Unsupported for a use that a log with Kafka partitions does not have. Raises
    LogNotFound, Unavailable, Timeout."""
    if routes.log_id is None:
        await cluster.refresh(routes.name, deadline, key=b"")
    if routes.partitions is not None:
        raise key_partitions.unsupported(what)


def shown_answer(routes: "LogRoutes", answer: Body, key: bytes) -> Body:
    """Return an answer to a read of one key, with the key of the user in its entries."""
    if routes.partitions is None or "keys" not in answer:
        return answer
    return {**answer, "keys": key}


def shown_key(routes: "LogRoutes", key: bytes) -> bytes:
    """Return the key that users see."""
    return key if routes.partitions is None else key[key_partitions.PREFIX_BYTES :]


def shown_entries(routes: "LogRoutes", entries: Sequence[Entry]) -> Sequence[Entry]:
    """Return entries with the keys that users see."""
    if routes.partitions is None:
        return entries
    return [each._replace(key=each.key[key_partitions.PREFIX_BYTES :]) for each in entries]


def shown_positions(routes: "LogRoutes", positions: Mapping[bytes, int]) -> Mapping[bytes, int]:
    """Return positions by the keys that users see."""
    if routes.partitions is None:
        return positions
    return {shown_key(routes, key): seq for key, seq in positions.items()}


def shown_chunk(routes: "LogRoutes", chunk: Chunk) -> Chunk:
    """Return a chunk of entries with the keys that users see."""
    if routes.partitions is None:
        return chunk
    return chunk.without_heads(key_partitions.PREFIX_BYTES)
