"""Waiting times and dates, as callers give them and as the wire carries them."""

from .protocol import limits


def milliseconds(seconds: float) -> int:
    """Return a timeout in whole milliseconds, 0 to `timeout_ms_max`. Infinity is allowed."""
    return int(min(max(0.0, 1000 * seconds), limits.timeout_ms_max))


def unix_ms(text: str) -> int:
    """Return a time in ISO 8601, UTC without a zone, as Unix time in milliseconds; 0 for a time
    before 1970. Raises ValueError."""
    from datetime import UTC, datetime  # imported here because it takes long to load

    found = datetime.fromisoformat(text)
    found = found if found.tzinfo else found.replace(tzinfo=UTC)
    return max(0, round(found.timestamp() * 1000))
