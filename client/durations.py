"""Times to wait, as callers give them and as they travel."""

from .protocol import limits


def milliseconds(seconds: float) -> int:
    """A timeout for a request: whole milliseconds, 0 to `timeout_ms_max`. Infinity is allowed."""
    return int(min(max(0.0, 1000 * seconds), limits.timeout_ms_max))
