"""Where the log of a replica is kept for members that are fetching a base."""


class LogPins:
    """Indexes after which the log is kept, by the name of the work that needs the entries."""

    def __init__(self) -> None:
        self._pins: dict[object, int] = {}

    def pin(self, name: object, index: int) -> None:
        """Keep the log after the index until `unpin` gets the name."""
        self._pins[name] = index

    def unpin(self, name: object) -> None:
        """Undo `pin`; do nothing for a name that pins nothing."""
        self._pins.pop(name, None)

    def clear(self) -> None:
        """Undo each `pin`: the log takes too many files."""
        self._pins.clear()

    def indexes(self) -> list[int]:
        """Return the pinned indexes."""
        return list(self._pins.values())
