"""How a log is kept bounded: the values of its rule `cleanup`."""

from typing import Final

COMPACT_AND_DELETE: Final = "compact,delete"
CLEANUPS: Final = ("delete", "compact", COMPACT_AND_DELETE)


def compacts(cleanup: str | None) -> bool:
    """Return whether only the last entry of each key stays."""
    return cleanup in ("compact", COMPACT_AND_DELETE)
