"""Where the ranges of a new log begin: evenly over the byte space, or at given keys."""

from collections.abc import Sequence

from ..client.protocol import limits
from ..client.protocol.errors import InvalidArgument, LimitExceeded
from .model import Span


def even_spans(count: int) -> list[Span]:
    """Return `count` spans that divide the space of the first two key bytes evenly."""
    check_count(count)
    borders = [(i * 65_536 // count).to_bytes(2, "big").rstrip(b"\0") for i in range(1, count)]
    return _spans(borders)


def check_count(count: int) -> None:
    """Raise LimitExceeded when a log cannot have `count` ranges."""
    if not 1 <= count <= limits.ranges_per_log_max:
        raise LimitExceeded(
            f"the log would have {count} ranges; 1 to {limits.ranges_per_log_max} are allowed",
            limit="ranges_per_log_max", value=count, allowed=limits.ranges_per_log_max,
        )  # fmt: skip


def spans_at(keys: Sequence[bytes]) -> list[Span]:
    """Return the spans between these keys; the keys come in any order, without repeats."""
    check_keys(keys)
    return _spans(sorted(keys))


def check_keys(keys: Sequence[bytes]) -> None:
    """Raise LimitExceeded or InvalidArgument if a new log cannot be split at these keys."""
    if len(keys) >= limits.ranges_per_log_max:
        raise LimitExceeded(
            f"{len(keys)} split keys are given; at most {limits.ranges_per_log_max - 1} are "
            "allowed",
            limit="ranges_per_log_max", value=len(keys) + 1, allowed=limits.ranges_per_log_max,
        )  # fmt: skip
    for key in keys:
        if not isinstance(key, bytes) or not 1 <= len(key) <= limits.key_bytes_max:
            raise InvalidArgument(
                f"a split key has {len(key)} bytes; 1 to {limits.key_bytes_max} are allowed",
                what="split_at",
            )
    if len(set(keys)) < len(keys):
        raise InvalidArgument("a split key is given twice; give each key once", what="split_at")


def _spans(borders: Sequence[bytes]) -> list[Span]:
    starts = [b"", *borders]
    ends = [*borders, None]
    return [Span(start, end) for start, end in zip(starts, ends, strict=True)]
