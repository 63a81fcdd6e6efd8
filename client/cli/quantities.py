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


def size(count: float) -> str:
    """Return a number of bytes as text: `812 B`, `1.5 MiB`."""
    if count < 1024:
        return f"{count:.0f} B"
    at = 0
    while count >= 1023.95 and at < len(_SIZES):
        count, at = count / 1024, at + 1
    return f"{count:.1f} {_SIZES[at - 1]}"
