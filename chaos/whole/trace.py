"""The trace of a run: one line per event, and the hash that two runs of one seed share.

A line has the virtual seconds since the start, the process or link, and what happened. The hash
also covers every turn of every process and every byte that arrives. A line may contain only
functions of the seed.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from ..trace_hash import TraceHash

_TAIL_LINES: Final = 60

Sink = Callable[[str], None]


class Trace:
    """Feeds a hash, a short memory of the last lines, and a sink if one is given."""

    def __init__(self, sink: Sink | None = None) -> None:
        self.sink = sink
        self.now_s: Callable[[], float] = lambda: 0.0
        """Virtual seconds since the start of the run."""
        self.tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self._hash = TraceHash()
        self.bytes = self._hash.add
        """Adds bytes to the hash: they are part of the run."""
        self.digest = self._hash.digest
        """Returns the hash of all events so far, in hex."""

    def __call__(self, where: str, what: str) -> None:
        """Add an event."""
        line = f"{self.now_s():.6f} {where} {what}"
        self.bytes(line.encode())
        self.tail.append(line)
        if self.sink is not None:
            self.sink(line)

    def note(self, where: str, what: str) -> None:
        """Add a line that is not in the hash, for readers."""
        line = f"{self.now_s():.6f} {where} {what}"
        self.tail.append(line)
        if self.sink is not None:
            self.sink(line)
