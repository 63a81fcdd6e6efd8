"""Simulated sockets: a listening socket, an accepted one, and asyncio's transport of a connection.

A transport behaves as asyncio's does over TCP: bytes arrive in order, in pieces of any size; what
the window does not take waits in the buffer, and the protocol is asked to pause. A close sends the
buffer first, an abort resets the connection. The kernel closes the sockets of a process that ends.
"""

import asyncio
import errno
import os
import socket
import struct
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from .process import Process

if TYPE_CHECKING:
    from .network import Network

_WINDOW_BYTES: Final = 256 * 1024
_READ_BYTES: Final = 256 * 1024
_HIGH_BYTES: Final = 64 * 1024
_SPLIT: Final = 0.1
"""The share of writes that arrive in two pieces."""
_END: Final = b""
_LENGTH: Final = struct.Struct(">I")


class Listening:
    """A listening socket of a process."""

    family = socket.AF_INET

    def __init__(
        self, network: "Network", process: Process, address: tuple[str, int], number: int
    ) -> None:
        self.process = process
        self.address = address
        self._network = network
        self._number = number
        self._backlog: deque[Accepted] = deque()
        self._watcher: tuple[Callable[..., object], tuple[Any, ...]] | None = None
        self._is_posted = False

    def fileno(self) -> int:
        """Return a number that no descriptor of this process has."""
        return self._number

    def setblocking(self, flag: bool) -> None:
        """Do nothing: the socket never blocks."""

    def getsockname(self) -> tuple[str, int]:
        """Return the address."""
        return self.address

    def queue(self, accepted: "Accepted") -> None:
        """Add a connection that waits to be accepted."""
        self._backlog.append(accepted)
        self._tell()

    def accept(self) -> tuple["Accepted", tuple[str, int]]:
        """Return the next connection. Raises BlockingIOError."""
        if not self._backlog:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        accepted = self._backlog.popleft()
        return accepted, accepted.transport.peername

    def watch(self, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        """Call back in each turn of the loop while a connection waits."""
        self._watcher = callback, args
        self._tell()

    def unwatch(self) -> bool:
        """Stop calling back; return whether there was a callback."""
        had, self._watcher = self._watcher is not None, None
        return had

    def close(self) -> None:
        """Close, and reset the connections that wait."""
        self._network.unlisten(self)
        self.unwatch()
        while self._backlog:
            self._backlog.popleft().close()

    def _tell(self) -> None:
        if self._backlog and self._watcher is not None and not self._is_posted:
            self._is_posted = True
            self._network.loop.post(self.process, self._told)

    def _told(self) -> None:
        self._is_posted = False
        if self._backlog and self._watcher is not None:
            callback, args = self._watcher
            callback(*args)
            self._tell()


class Accepted:
    """An accepted socket, before it has a transport."""

    def __init__(self, transport: "SimTransport") -> None:
        self.transport = transport

    def setblocking(self, flag: bool) -> None:
        """Do nothing: the socket never blocks."""

    def shutdown(self, how: int) -> None:
        """End the connection."""
        self.transport.abort()

    def close(self) -> None:
        """End the connection."""
        self.transport.abort()

    async def attach(
        self, protocol: asyncio.BaseProtocol
    ) -> tuple["SimTransport", asyncio.BaseProtocol]:
        """Give the protocol its transport."""
        await self.transport.attach(protocol)
        return self.transport, protocol


class SimTransport(asyncio.Transport):
    """One end of a connection. `peer` is the other end."""

    peer: "SimTransport"

    def __init__(
        self, network: "Network", process: Process, remote: str,
        sockname: tuple[str, int], peername: tuple[str, int],
    ) -> None:  # fmt: skip
        super().__init__({"sockname": sockname, "peername": peername})
        self.process = process
        self.place = process.place
        self.remote = remote
        self.peername = peername
        self.number = network.loop.next_number()
        self._network = network
        self._protocol: Any = None
        self._due = 0.0
        """When the last sent piece arrives."""
        self._flying: deque[bytes | None] = deque()
        """Sent pieces, `_END`, and None for a reset."""
        self._sent_bytes = 0
        """Bytes that the other side's protocol has not taken yet."""
        self._buffer = bytearray()
        self._high, self._low = _HIGH_BYTES, _HIGH_BYTES // 4
        self._paused_protocol = False
        self._inbox: deque[bytes] = deque()
        self._other_ended = False
        self._told_end = False
        self._reads = False
        self._is_posted = False
        self._closing = False
        self._lost = False
        """Whether the kernel has no such connection any more."""

    # Of the product.

    def get_protocol(self) -> Any:
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def is_closing(self) -> bool:
        return self._closing

    def is_reading(self) -> bool:
        return self._reads and not self._closing

    def pause_reading(self) -> None:
        self._reads = False

    def resume_reading(self) -> None:
        if not self._closing:
            self._reads = True
            self._read_soon()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = _HIGH_BYTES if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_size(self) -> int:
        return len(self._buffer)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._closing or not data:
            return
        self._buffer += data
        self._flush()
        if len(self._buffer) > self._high and not self._paused_protocol:
            self._paused_protocol = True
            self._protocol.pause_writing()

    def can_write_eof(self) -> bool:
        return False

    def close(self) -> None:
        if self._closing:
            return
        self._closing, self._reads = True, False
        if not self._buffer:
            self._finish(None)

    def abort(self) -> None:
        self.fail(None)

    # Of the network.

    async def attach(self, protocol: asyncio.BaseProtocol) -> None:
        """Give the transport its protocol, and begin to read, in the next turn."""
        loop = self._network.loop
        made = loop.create_future()
        self._protocol = protocol
        loop.call_soon(protocol.connection_made, self)
        if self._lost:  # it was reset before it was accepted
            reset = ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
            loop.call_soon(protocol.connection_lost, reset)
        loop.call_soon(self._begin, made)
        await made

    def fail(self, error: Exception | None) -> None:
        """End at once; without an error this side resets the connection."""
        if self._lost:
            return
        self._closing, self._reads = True, False
        self._buffer.clear()
        if error is None:
            self._put(None)
        self._over(error)

    def left_by_kernel(self, *, says_nothing: bool) -> None:
        """Close after the end of the process: with a reset if something is unread."""
        self._lost = self._closing = True
        self._network.gone(self)
        if not says_nothing:
            self._put(None if self._inbox or self._network.rng.random() < 0.5 else _END)

    def arrived_reset(self) -> None:
        """Take a reset of the connection."""
        error = ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
        self._network.loop.post(self.process, self.fail, error)

    def _begin(self, made: "asyncio.Future[None]") -> None:
        if not self._closing:
            self._reads = True
            self._read_soon()
        if not made.done():
            made.set_result(None)

    def _flush(self) -> None:
        room = _WINDOW_BYTES - self._sent_bytes
        if room > 0 and self._buffer:
            data = bytes(self._buffer[:room])
            del self._buffer[:room]
            self._sent_bytes += len(data)
            at = len(data)
            if self._network.rng.random() < _SPLIT:
                at = int(self._network.rng.random() * len(data))
            for piece in (data[:at], data[at:]):
                if piece:
                    self._put(piece)

    def _put(self, piece: bytes | None) -> None:
        network = self._network
        delay_s = network.delay_s(self.place, self.remote)
        self._due = max(self._due, network.loop.time() + delay_s)
        self._flying.append(piece)
        network.carry(self.place, self.remote, self._due, self._arrive)

    def _arrive(self) -> None:
        piece = self._flying.popleft()
        if self.remote not in self._network.off:
            self.peer._came(piece)

    def _came(self, piece: bytes | None) -> None:
        trace = self._network.trace
        if self._lost or not self.process.alive:
            if piece is not None and not self._told_end:
                self._told_end = True
                self._put(None)
            return
        if piece is None:
            trace(self.process.name, f"reset by {self.peer.process.name}")
            self.arrived_reset()
        elif piece == _END:
            self._other_ended = True
            self._read_soon()
        else:
            trace.bytes(_LENGTH.pack(len(piece)) if self._network.is_sealed else piece)
            self._inbox.append(piece)
            self._read_soon()

    def _read_soon(self) -> None:
        ready = self._inbox or self._other_ended
        if ready and self._reads and not self._is_posted:
            self._is_posted = True
            self._network.loop.post(self.process, self._read)

    def _read(self) -> None:
        self._is_posted = False
        if not self._reads or self._closing:
            return
        if self._inbox:
            self._give(self._protocol)
        elif self._other_ended:
            self._reads = False
            if not self._protocol.eof_received():
                self.close()
        self._read_soon()

    def _give(self, protocol: Any) -> None:
        """Hand over what one call of `recv` would bring."""
        if isinstance(protocol, asyncio.BufferedProtocol):
            room = memoryview(protocol.get_buffer(-1))
            data = self._taken(len(room))
            room[: len(data)] = data
            protocol.buffer_updated(len(data))
        else:
            protocol.data_received(self._taken(_READ_BYTES))

    def _taken(self, most: int) -> bytes:
        if most <= 0:
            raise RuntimeError("get_buffer() returned an empty buffer")
        data = bytearray()
        while self._inbox and len(data) < most:
            piece = self._inbox.popleft()
            if len(piece) > most - len(data):
                cut = most - len(data)
                self._inbox.appendleft(piece[cut:])
                piece = piece[:cut]
            data += piece
        peer = self.peer
        peer._sent_bytes -= len(data)
        self._network.loop.post(peer.process, peer._has_room)
        return bytes(data)

    def _has_room(self) -> None:
        if self._lost:
            return
        self._flush()
        if self._paused_protocol and len(self._buffer) <= self._low:
            self._paused_protocol = False
            self._protocol.resume_writing()
        if self._closing and not self._buffer:
            self._finish(None)

    def _finish(self, error: Exception | None) -> None:
        if not self._lost:
            self._put(_END)
            self._over(error)

    def _over(self, error: Exception | None) -> None:
        self._lost = True
        self._network.gone(self)
        if self._protocol is not None:
            self._network.loop.post(self.process, self._protocol.connection_lost, error)


def connected(
    network: "Network", process: Process, opened: Listening,
    near_name: tuple[str, int], far_name: tuple[str, int],
) -> tuple[SimTransport, SimTransport]:  # fmt: skip
    """Return the two ends of a new connection: of the process, and of the listening process."""
    near = SimTransport(network, process, opened.process.place, near_name, far_name)
    far = SimTransport(network, opened.process, process.place, far_name, near_name)
    near.peer, far.peer = far, near
    network.opened(near)
    network.opened(far)
    return near, far
