"""Waiting times, as callers give them and as the wire carries them."""

from .protocol import limits


def milliseconds(seconds: float) -> int:
    """Return a timeout in whole milliseconds, 0 to `timeout_ms_max`. Infinity is allowed."""
    return int(min(max(0.0, 1000 * seconds), limits.timeout_ms_max))
