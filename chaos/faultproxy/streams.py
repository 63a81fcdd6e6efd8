"""A connection through the proxy: two streams, each with a chain of stages.

Bytes of a stream without toxics go from one socket to the other in one step. The bytes that a
stream holds are bounded: its source is not read while a stage holds more than its room, or while
the destination's buffer is above its mark. The end of a stream closes its destination, as in
Toxiproxy; there are no half-closed connections.
"""

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable, Iterable
from typing import Final

from .stages import STAGES, Chunk, Stage
from .toxics import DIRECTIONS, Direction, Toxic

_LINGER_0: Final = struct.pack("ii", 1, 0)


class End(asyncio.Protocol):
    """One socket of a connection. It reads into one stream, and the other stream writes to it."""

    def __init__(self) -> None:
        self.out: Stream | None = None
        """The stream that takes the bytes read here; reading begins when it is set."""
        self.full = False
        self.on_room: Callable[[], None] = lambda: None
        self.on_made: Callable[[End], None] = lambda _: None
        self.on_lost: Callable[[], None] = lambda: None
        self.lost = False
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Pause reading until `out` is set.

        The pause comes before the first read, and after the transport has begun to read: CPython
        3.11.2 begins after this call, whatever was called here.
        """
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        asyncio.get_running_loop().call_soon(self.read, False)
        self.on_made(self)

    def data_received(self, data: bytes) -> None:
        """Pass the bytes to the stream."""
        if self.out is not None:
            self.out.received(data)

    def eof_received(self) -> bool:
        """End the stream; this socket is closed when the other stream has ended, too."""
        if self.out is not None:
            self.out.ended()
        return True

    def connection_lost(self, error: Exception | None) -> None:
        """End both streams: no more bytes come from here or go here."""
        self.lost = True
        if self.out is not None:
            self.out.ended()
        self.on_room()
        self.on_lost()

    def pause_writing(self) -> None:
        """Note that the buffer is above its mark."""
        self.full = True

    def resume_writing(self) -> None:
        """Note that the buffer is below its mark."""
        self.full = False
        self.on_room()

    def write(self, data: bytes) -> None:
        """Write the bytes; drop them when the socket is gone."""
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)

    def read(self, wanted: bool) -> None:
        """Resume or stop reading. A closing socket can do neither."""
        if self.transport is not None and not self.transport.is_closing():
            if wanted:
                self.transport.resume_reading()
            else:
                self.transport.pause_reading()

    def close(self) -> None:
        """Close after all written bytes."""
        if self.transport is not None:
            self.transport.close()

    def abort(self) -> None:
        """Close at once."""
        if self.transport is not None:
            self.transport.abort()

    def resets(self) -> None:
        """Make closing send a reset from now on."""
        if self.transport is not None and not self.transport.is_closing():
            peer: socket.socket = self.transport.get_extra_info("socket")
            with contextlib.suppress(OSError):  # the peer may be gone already
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_0)


class Stream:
    """One direction of a connection."""

    def __init__(self, source: End, sink: End, toxics: Iterable[Toxic]) -> None:
        self._source, self._sink = source, sink
        self._loop = asyncio.get_running_loop()
        self._over = False
        self._stages: list[Stage] = []
        for toxic in toxics:
            self.add(toxic)
        source.out = self
        sink.on_room = self._relieve

    def received(self, data: bytes) -> None:
        """Take bytes from the source."""
        if self._stages:
            self._stages[0].put(Chunk(data, self._loop.time()))
        else:
            self._sink.write(data)
        self._relieve()

    def ended(self) -> None:
        """Take the end of the source. Idempotent."""
        if not self._over:
            self._over = True
            end = Chunk(None, self._loop.time())
            if self._stages:
                self._stages[0].put(end)
            else:
                self._deliver(end)

    def add(self, toxic: Toxic) -> None:
        """Add a toxic at the end of the chain; bytes held by earlier stages will pass it."""
        stage = STAGES[toxic.kind](toxic, self._deliver)
        if self._stages:
            self._stages[-1].put_on = stage.put
        self._stages.append(stage)

    def change(self, toxic: Toxic) -> None:
        """Give the toxic other attributes."""
        for stage in self._stages:
            if stage.toxic is toxic:
                stage.changed()
        self._relieve()

    def remove(self, toxic: Toxic) -> None:
        """Remove a toxic; the bytes that its stage holds pass on at once."""
        for at, stage in enumerate(self._stages):
            if stage.toxic is toxic:
                stage.removed()
                if at:
                    self._stages[at - 1].put_on = stage.put_on
                del self._stages[at]
                break
        self._relieve()

    def stop(self) -> None:
        """Stop all timers: the connection is gone."""
        for stage in self._stages:
            stage.stop()

    def _deliver(self, chunk: Chunk) -> None:
        if chunk.data is None:
            self._sink.close()
        else:
            self._sink.write(chunk.data)
            self._relieve()

    def _relieve(self) -> None:
        """Resume or stop reading, depending on the held bytes."""
        room = all(stage.held <= stage.room for stage in self._stages)
        # A lost sink takes no more bytes; only reading on shows the end of the source.
        self._source.read(room and (self._sink.lost or not self._sink.full))


class Connection:
    """A client's connection and the connection to the upstream, and the streams between them."""

    def __init__(
        self,
        client: End,
        upstream: End,
        toxics: dict[Direction, list[Toxic]],
        on_gone: Callable[["Connection"], None],
    ) -> None:
        self._ends = (client, upstream)
        self._on_gone = on_gone
        self.streams: dict[Direction, Stream] = {
            "upstream": Stream(client, upstream, toxics["upstream"]),
            "downstream": Stream(upstream, client, toxics["downstream"]),
        }
        for end in self._ends:
            if any(toxic.kind == "reset_peer" for one in DIRECTIONS for toxic in toxics[one]):
                end.resets()
            end.on_lost = self._lost

    def begin(self) -> None:
        """Let bytes flow. An end that was lost meanwhile closes the other end."""
        for end in self._ends:
            end.read(True)
            if end.lost and end.out is not None:
                end.out.ended()
        self._lost()

    def abort(self) -> None:
        """Close both ends at once."""
        for end in self._ends:
            end.abort()

    def _lost(self) -> None:
        if all(end.lost for end in self._ends):
            for stream in self.streams.values():
                stream.stop()
            self._on_gone(self)
