"""Whether the reader at the other end takes the bytes that wait for it. No I/O, no clock."""

from ..protocol import limits


class Reader:
    """The progress of one reader: it takes `reader_progress_bytes` of the waiting bytes, or all
    of them."""

    __slots__ = ("_goal", "_since")

    def __init__(self) -> None:
        self._since = 0.0
        self._goal = -1
        """The bytes that the kernel has taken at the next progress; -1 while nothing waits."""

    def silent_s(self, now: float, taken_bytes: int, unsent_bytes: int) -> float:
        """Return the seconds since the last progress, 0 while nothing waits for the reader.

        `taken_bytes` counts the bytes that the kernel has taken since the connection began. Call it
        about every second, since it sees nothing between two calls.
        """
        if unsent_bytes == 0:
            self._goal = -1
            return 0.0
        if self._goal < 0 or taken_bytes >= self._goal:
            self._since = now
            self._goal = taken_bytes + min(unsent_bytes, limits.reader_progress_bytes)
        return now - self._since
