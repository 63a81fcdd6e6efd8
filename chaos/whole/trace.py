"""The trace of a run: one line per event, and the hash that two runs of one seed share.

A line has the virtual seconds since the start, the process or link, and what happened. The hash
also covers every turn of every process and every byte that arrives. A line may contain only
functions of the seed.
"""

import hashlib
from collections import deque
from collections.abc import Callable
from typing import Final

_HASHED_AT_ONCE: Final = 1 << 16
_TAIL_LINES: Final = 60

Sink = Callable[[str], None]


class Trace:
    """Feeds a hash, a short memory of the last lines, and a sink if one is given."""

    def __init__(self, sink: Sink | None = None) -> None:
        self.sink = sink
        self.now_s: Callable[[], float] = lambda: 0.0
        """Virtual seconds since the start of the run."""
        self.tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self._hash = hashlib.blake2b(digest_size=16)
        self._unhashed = bytearray()

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

    def bytes(self, data: bytes | bytearray | memoryview) -> None:
        """Add bytes to the hash: they are part of the run."""
        self._unhashed += data
        if len(self._unhashed) >= _HASHED_AT_ONCE:
            self._take_in()

    def digest(self) -> str:
        """Return the hash of all events so far, in hex."""
        self._take_in()
        return self._hash.hexdigest()

    def _take_in(self) -> None:
        self._hash.update(self._unhashed)
        self._unhashed.clear()
