"""Sizes and ages in the notation for people."""

from typing import Final

_AGES: Final = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s"))
_SIZES: Final = ("KiB", "MiB", "GiB", "TiB")


def age(ms: int) -> str:
    """Return an age in the largest unit that fits, rounded down: `45s`, `3m`, `2h`, `7d`. A time
    in the future gives 0s, because clocks differ."""
    for unit_ms, unit in _AGES:
        if ms >= unit_ms:
            return f"{ms // unit_ms}{unit}"
    return "0s"


def span(ms: int) -> str:
    """Return a length of time in the largest unit that has no fraction: `90d`, `90m`, `1500ms`."""
    for unit_ms, unit in _AGES:
        if ms and ms % unit_ms == 0:
            return f"{ms // unit_ms}{unit}"
    return f"{ms}ms" if ms else "0s"


def moment(ms: int) -> str:
    """Return Unix time in milliseconds as UTC in ISO 8601; the number for a time that no calendar
    has."""
    from datetime import UTC, datetime, timedelta  # imported here because it takes long to load

    try:
        found = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=ms)
    except OverflowError:
        return str(ms)
    return found.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def size(count: float) -> str:
    """Return a number of bytes as text: `812 B`, `1.5 MiB`."""
    if count < 1024:
        return f"{count:.0f} B"
    at = 0
    while count >= 1023.95 and at < len(_SIZES):
        count, at = count / 1024, at + 1
    return f"{count:.1f} {_SIZES[at - 1]}"
