"""The effect of each kind of toxic on the bytes of one stream of one connection.

A stage receives chunks and, last, None for the end of the stream. It holds them in order, and
passes each chunk on when it is due. No stage reorders chunks, just as TCP does not.
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from .toxics import Toxic

_KIB: Final = 1024
_PIECE_S: Final = 0.1
"""The duration of the pieces in which a slow stream is fed."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Bytes of a stream, or its end."""

    data: bytes | None
    stamp: float
    """The time of reading, in seconds of the loop's clock, plus the latencies so far."""

    @property
    def size(self) -> int:
        """The number of bytes."""
        return len(self.data or b"")


class Stage:
    """One toxic on one stream. This base passes everything on at once."""

    room = 64 * _KIB
    """Above this number of held bytes the stream is not read further."""

    def __init__(self, toxic: Toxic, put: Callable[[Chunk], None]) -> None:
        """`put` receives the bytes that have passed."""
        self.toxic = toxic
        self.put_on = put
        self.held = 0
        self.closed = False
        self._loop = asyncio.get_running_loop()
        self._pending: deque[Chunk] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._due: float | None = None
        self._spared = False
        self._draw()

    def put(self, chunk: Chunk) -> None:
        """Take the next bytes, or the end. Bytes after the stage closed the stream are dropped."""
        if self.closed:
            return
        pieces = (chunk,) if self._spared or chunk.data is None else self.pieces(chunk)
        for piece in pieces:
            self._pending.append(piece)
            self.held += piece.size
        if self._timer is None:
            self._pump()

    def changed(self) -> None:
        """Apply other attributes or another toxicity of the toxic: draw anew, as of now."""
        self._draw()
        self._stop_timer()
        self._pump()

    def removed(self) -> None:
        """Pass on everything that is held, in order."""
        self._stop_timer()
        self._spared = True
        self._pump()

    def stop(self) -> None:
        """Stop: the connection is gone."""
        self.closed = True
        self._stop_timer()
        self._pending.clear()
        self.held = 0

    def pieces(self, chunk: Chunk) -> Iterable[Chunk]:
        """Break the chunk into pieces."""
        return (chunk,)

    def due(self, chunk: Chunk) -> float:
        """Return when the first held chunk passes; called once, unless the toxic changes."""
        return chunk.stamp

    def passes(self, chunk: Chunk, due: float) -> None:
        """Pass the chunk, which is due."""
        self.put_on(chunk)

    def close(self) -> None:
        """End the stream here."""
        if not self.closed:
            self.stop()
            self.put_on(Chunk(None, self._loop.time()))

    def _draw(self) -> None:
        self._spared = random.random() >= self.toxic.toxicity

    def _stop_timer(self) -> None:
        self._due = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _pump(self) -> None:
        self._timer = None
        while self._pending:
            chunk = self._pending[0]
            if self._spared:
                due = chunk.stamp
            else:
                due = self._due = self.due(chunk) if self._due is None else self._due
                if due > self._loop.time():
                    self._timer = self._loop.call_at(due, self._pump)
                    return
            self._due = None
            self._pending.popleft()
            self.held -= chunk.size
            if self._spared:
                self.put_on(chunk)
            else:
                self.passes(chunk, due)


class Latency(Stage):
    """Each chunk passes `latency` +/- `jitter` later, and later chunks not before it."""

    room = 4096 * _KIB

    def due(self, chunk: Chunk) -> float:
        if chunk.data is None:
            return chunk.stamp
        jitter = self.toxic["jitter"]
        late = self.toxic["latency"] + (random.randrange(-jitter, jitter) if jitter else 0)
        return chunk.stamp + late / 1000

    def passes(self, chunk: Chunk, due: float) -> None:
        self.put_on(Chunk(chunk.data, due))


class Bandwidth(Stage):
    """Passes at most `rate` kB/s; nothing at all at a rate of 0."""

    def __init__(self, toxic: Toxic, put: Callable[[Chunk], None]) -> None:
        super().__init__(toxic, put)
        self._free_at = 0.0

    def pieces(self, chunk: Chunk) -> Iterator[Chunk]:
        data = chunk.data or b""
        size = int(self.toxic["rate"] * 1000 * _PIECE_S) or len(data)
        return (Chunk(data[at : at + size], chunk.stamp) for at in range(0, len(data), size))

    def due(self, chunk: Chunk) -> float:
        begin = max(self._free_at, chunk.stamp)
        if chunk.data is None:
            return begin
        rate = self.toxic["rate"]
        return begin + chunk.size / (rate * 1000) if rate else float("inf")

    def passes(self, chunk: Chunk, due: float) -> None:
        self._free_at = due
        self.put_on(chunk)

    def changed(self) -> None:
        """Count the new rate from now: an earlier, lower rate leaves no arrears."""
        self._free_at = self._loop.time()
        super().changed()


class Slicer(Stage):
    """Breaks chunks into pieces of about `average_size` bytes, with `delay` us after each."""

    def __init__(self, toxic: Toxic, put: Callable[[Chunk], None]) -> None:
        super().__init__(toxic, put)
        self._free_at = 0.0

    def pieces(self, chunk: Chunk) -> Iterator[Chunk]:
        data, at = chunk.data or b"", 0
        average, variation = self.toxic["average_size"], self.toxic["size_variation"]
        while at < len(data):
            size = average + (random.randint(-variation, variation) if variation else 0)
            yield Chunk(data[at : at + max(1, size)], chunk.stamp)
            at += max(1, size)

    def due(self, chunk: Chunk) -> float:
        return self._free_at

    def passes(self, chunk: Chunk, due: float) -> None:
        self._free_at = self._loop.time() + self.toxic["delay"] / 1_000_000
        self.put_on(chunk)


class SlowClose(Stage):
    """The end of the stream passes `delay` ms later."""

    def due(self, chunk: Chunk) -> float:
        return chunk.stamp + (self.toxic["delay"] / 1000 if chunk.data is None else 0.0)


class Timeout(Stage):
    """Drops all bytes, and ends the stream after `timeout` ms without bytes; 0: never."""

    def __init__(self, toxic: Toxic, put: Callable[[Chunk], None]) -> None:
        super().__init__(toxic, put)
        self._silence: asyncio.TimerHandle | None = None
        self._wait()

    def passes(self, chunk: Chunk, due: float) -> None:
        if chunk.data is None:
            self.close()
        else:
            self._wait()

    def changed(self) -> None:
        super().changed()
        self._wait()

    def removed(self) -> None:
        """End the stream: bytes are missing, so the connection cannot go on."""
        if self._spared:
            super().removed()
        else:
            self.close()

    def stop(self) -> None:
        super().stop()
        if self._silence is not None:
            self._silence.cancel()

    def _wait(self) -> None:
        if self._silence is not None:
            self._silence.cancel()
            self._silence = None
        if self.toxic["timeout"] and not self._spared and not self.closed:
            self._silence = self._loop.call_later(self.toxic["timeout"] / 1000, self.close)


class ResetPeer(Stage):
    """Ends the stream `timeout` ms after its first bytes.

    `streams.py` makes this a reset for connections that are opened while this toxic is there.
    """

    def due(self, chunk: Chunk) -> float:
        return chunk.stamp + self.toxic["timeout"] / 1000

    def passes(self, chunk: Chunk, due: float) -> None:
        self.close()


class LimitData(Stage):
    """Ends the stream after `bytes` bytes."""

    def __init__(self, toxic: Toxic, put: Callable[[Chunk], None]) -> None:
        super().__init__(toxic, put)
        self._passed = 0

    def passes(self, chunk: Chunk, due: float) -> None:
        if chunk.data is None:
            self.close()
            return
        data = chunk.data[: max(0, self.toxic["bytes"] - self._passed)]
        self._passed += len(data)
        if data:
            self.put_on(Chunk(data, chunk.stamp))
        if self._passed >= self.toxic["bytes"]:
            self.close()


STAGES: Final[dict[str, type[Stage]]] = {
    "latency": Latency,
    "bandwidth": Bandwidth,
    "slow_close": SlowClose,
    "timeout": Timeout,
    "reset_peer": ResetPeer,
    "slicer": Slicer,
    "limit_data": LimitData,
}
"""The stage of each kind of toxic."""
