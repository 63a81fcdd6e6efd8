"""A connection through the proxy: two streams, each with a chain of stages.

Bytes of a stream without toxics go from one socket to the other in one step. What a stream holds
is bounded: its source is not read while a stage holds more than its room, or the destination's
buffer is above its mark. The end of a stream closes its destination, as Toxiproxy does; there are
no half-closed connections.
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
    """One socket of a connection. Reads into a stream, and is written to by the other one."""

    def __init__(self) -> None:
        self.out: Stream | None = None
        """Takes what is read here; nothing is read before it is set."""
        self.full = False
        self.on_room: Callable[[], None] = lambda: None
        self.on_made: Callable[[End], None] = lambda _: None
        self.on_lost: Callable[[], None] = lambda: None
        self.lost = False
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Silent until `out` is there."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.pause_reading()
        self.on_made(self)

    def data_received(self, data: bytes) -> None:
        """Into the stream."""
        if self.out is not None:
            self.out.received(data)

    def eof_received(self) -> bool:
        """The stream ends; this socket is closed when the other stream has ended, too."""
        if self.out is not None:
            self.out.ended()
        return True

    def connection_lost(self, error: Exception | None) -> None:
        """No more bytes from here, and none to here."""
        self.lost = True
        if self.out is not None:
            self.out.ended()
        self.on_room()
        self.on_lost()

    def pause_writing(self) -> None:
        """The buffer is above its mark."""
        self.full = True

    def resume_writing(self) -> None:
        """It is below."""
        self.full = False
        self.on_room()

    def write(self, data: bytes) -> None:
        """Dropped when the socket is gone."""
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)

    def read(self, wanted: bool) -> None:
        """Go on or stop reading. A socket that closes can do neither."""
        if self.transport is not None and not self.transport.is_closing():
            if wanted:
                self.transport.resume_reading()
            else:
                self.transport.pause_reading()

    def close(self) -> None:
        """After what was written."""
        if self.transport is not None:
            self.transport.close()

    def abort(self) -> None:
        """Now."""
        if self.transport is not None:
            self.transport.abort()

    def resets(self) -> None:
        """Closing sends a reset from now on."""
        if self.transport is not None and not self.transport.is_closing():
            peer: socket.socket = self.transport.get_extra_info("socket")
            with contextlib.suppress(OSError):  # the peer may have gone already
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
        """From the source."""
        if self._stages:
            self._stages[0].put(Chunk(data, self._loop.time()))
        else:
            self._sink.write(data)
        self._relieve()

    def ended(self) -> None:
        """The source ends. Idempotent."""
        if not self._over:
            self._over = True
            end = Chunk(None, self._loop.time())
            if self._stages:
                self._stages[0].put(end)
            else:
                self._deliver(end)

    def add(self, toxic: Toxic) -> None:
        """At the end of the chain; what the stages before it hold will pass it."""
        stage = STAGES[toxic.kind](toxic, self._deliver)
        if self._stages:
            self._stages[-1].put_on = stage.put
        self._stages.append(stage)

    def change(self, toxic: Toxic) -> None:
        """It has other attributes."""
        for stage in self._stages:
            if stage.toxic is toxic:
                stage.changed()
        self._relieve()

    def remove(self, toxic: Toxic) -> None:
        """What its stage holds passes on at once."""
        for at, stage in enumerate(self._stages):
            if stage.toxic is toxic:
                stage.removed()
                if at:
                    self._stages[at - 1].put_on = stage.put_on
                del self._stages[at]
                break
        self._relieve()

    def stop(self) -> None:
        """The connection is gone: no timer is left."""
        for stage in self._stages:
            stage.stop()

    def _deliver(self, chunk: Chunk) -> None:
        if chunk.data is None:
            self._sink.close()
        else:
            self._sink.write(chunk.data)
            self._relieve()

    def _relieve(self) -> None:
        """Read on or not, by what is held now."""
        room = all(stage.held <= stage.room for stage in self._stages)
        # Nothing more can be written to a sink that is lost; its end is told by reading on.
        self._source.read(room and (self._sink.lost or not self._sink.full))


class Connection:
    """A client's connection and the one to the upstream, and the streams between them."""

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
        """Let bytes flow. An end that was lost meanwhile takes the other with it."""
        for end in self._ends:
            end.read(True)
            if end.lost and end.out is not None:
                end.out.ended()
        self._lost()

    def abort(self) -> None:
        """Close both ends now."""
        for end in self._ends:
            end.abort()

    def _lost(self) -> None:
        if all(end.lost for end in self._ends):
            for stream in self.streams.values():
                stream.stop()
            self._on_gone(self)
