"""A split: the two ranges that replace one range, or why they cannot."""

from collections.abc import Sequence

from ..client.protocol import key_partitions, limits
from ..client.protocol.errors import InvalidArgument, LimitExceeded
from .model import Descriptor, Output, Span
from .spans import printable


def check_key(range_: Descriptor, at: bytes) -> None:
    """Raise InvalidArgument when the range, which has the key, cannot be split at the key."""
    if not 1 <= len(at) <= limits.key_bytes_max:
        raise InvalidArgument(
            f"the split key has {len(at)} bytes; 1 to {limits.key_bytes_max} are allowed", what="at"
        )
    if at == range_.span.start:
        raise InvalidArgument(
            f"range {range_.range_id} begins at key {printable(at)} already: give a key "
            "inside the range",
            what="at",
        )


def check_count(ranges: int) -> None:
    """Raise LimitExceeded when a log with this number of ranges can have no more."""
    if ranges >= limits.ranges_per_log_max:
        raise LimitExceeded(
            f"the log has {ranges} ranges; at most {limits.ranges_per_log_max} are allowed",
            limit="ranges_per_log_max", value=ranges + 1, allowed=limits.ranges_per_log_max,
        )  # fmt: skip


def children(range_: Descriptor, at: bytes, new_id: int) -> tuple[Output, Output]:
    """Return the two ranges that a split at a key makes. `check_key` has accepted the key."""
    generation, members = range_.generation + 1, range_.members
    left, right = Span(range_.span.start, at), Span(at, range_.span.end)
    return (
        Output(range_.range_id, generation, left, members),
        Output(new_id, generation, right, members),
    )


def check_bounds(keys: Sequence[bytes], partitions: int) -> None:
    """Raise InvalidArgument unless ranges of a log with so many Kafka partitions may begin at these
    keys."""
    for key in keys:
        if not key_partitions.is_bound(key, partitions):
            raise InvalidArgument(
                f"a range would begin at key {printable(key)}, which is not the first key of a "
                f"Kafka partition. Give the two bytes of a partition, 1 to {partitions - 1}",
                what="at",
            )
