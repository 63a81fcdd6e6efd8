"""Whether the reader at the other end takes what waits for it. No I/O, no clock."""

from ..protocol import limits


class Reader:
    """The progress of one reader: it takes `reader_progress_bytes` of what waits, or all of it."""

    __slots__ = ("_goal", "_since")

    def __init__(self) -> None:
        self._since = 0.0
        self._goal = -1
        """What the kernel has taken at the next progress; -1 while nothing waits."""

    def silent_s(self, now: float, taken_bytes: int, unsent_bytes: int) -> float:
        """Seconds since the last progress, 0 while nothing waits for the reader.

        `taken_bytes` counts what the kernel has taken since the connection began. Between two
        calls nothing is known: call it every second or so.
        """
        if unsent_bytes == 0:
            self._goal = -1
            return 0.0
        if self._goal < 0 or taken_bytes >= self._goal:
            self._since = now
            self._goal = taken_bytes + min(unsent_bytes, limits.reader_progress_bytes)
        return now - self._since
