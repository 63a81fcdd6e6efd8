"""A socket that speaks frames: what both ends of a connection share.

Frames sent in one turn of the event loop leave in one write. Frames that the kernel does not take
wait here. asyncio's buffer holds only one piece of them, so the transport knows each piece that
leaves. The transport counts bytes in and out; its users bound the unsent bytes by `writable`, and
`abort` always ends the connection.

Received bytes are decrypted, decoded and handed over in turns (see `fair_turns`): the sender pays
for the time that TLS takes. While received bytes wait, or the owner wants no more frames, nothing
is read from the socket. So the transport sees the end of the other side's data after its last
frame, also when TLS reports the end.
"""

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from typing import Any, Final, cast

from .fair_turns import OWN_TURNS, Turns
from .protocol import frame, frames, http_instead, limits, name_of
from .protocol.errors import (
    LocalProtocolError,
    LognodeError,
    RemoteProtocolError,
    Unavailable,
    bare,
    to_wire,
)
from .protocol.frame import Decoder, Frame
from .protocol.tls import Channel, NotTls

_KEEPALIVE_IDLE_S: Final = 60
_USER_TIMEOUT_MS: Final = 30_000
_PIECE_BYTES: Final = 256 * limits.KIB
_OPENED_BYTES: Final = 64 * limits.KIB
"""TLS bytes that are decrypted between two looks at the clock: a tenth of a millisecond."""
_COUNTED_BYTES: Final = 16 * limits.KIB
"""Encrypting fewer bytes takes no longer than measuring the time."""
_BUFFER_LOW_BYTES: Final = 16 * limits.KIB
"""The next piece is written when at most these bytes of the last piece are left in asyncio's
buffer."""
_BUFFER_HIGH_BYTES: Final = 64 * limits.KIB
linger_s: Final = 5.0
"""How long a closed connection may take to send its queued bytes."""


class FrameTransport(asyncio.Protocol):
    """One TCP connection as frames, inside TLS where there is a `channel`. All calls run on the
    loop's thread.

    `on_frame` gets each frame, in order. `on_lost` gets the reason of the end, once; no call
    follows. `on_writable` is called when queued bytes have left, or may have. `on_decoded` is
    called when all received bytes are decoded, with the length of the frame that they have begun, 0
    for none.
    """

    def __init__(self, channel: Channel | None = None) -> None:
        self.channel = channel
        self.turns: Turns = OWN_TURNS
        """The turns in which frames are handed over."""
        self.on_frame: Callable[[Frame], None] = _ignore
        self.on_lost: Callable[[LognodeError], None] = _ignore
        self.on_writable: Callable[[], None] = _nothing
        self.on_decoded: Callable[[int], None] = _ignore
        self.bytes_in = 0
        self.plain_in = 0
        """Received bytes of frames; with TLS, the bytes inside TLS."""
        self.bytes_out = 0
        self.turns_s = 0.0
        """The time that its turns have taken so far."""
        self.last_in_s = 0.0
        """Loop time at which bytes last arrived."""
        self.lost: LognodeError | None = None
        self.peer_address = ""
        self._decoder = Decoder.of_stranger()
        self._sealed: deque[memoryview] = deque()
        """Received bytes that are not decrypted yet."""
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._out: deque[bytes | bytearray | memoryview] = deque()
        """Frames, and pieces of up to `_PIECE_BYTES` joined from small frames."""
        self._out_bytes = 0
        self._left_bytes = 0
        """Bytes of the first frame that have left; their memory stays until the whole frame has
        left."""
        self._flushes = False
        """Whether `_flush` runs at the end of this turn."""
        self._write_paused = False
        self._closing = False
        self._wants_frames = True
        self._in_line = False
        """Whether the rest of the received frames waits for its turn."""
        self._linger: asyncio.TimerHandle | None = None
        self._closed: asyncio.Future[None] = self._loop.create_future()

    # Called by asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_BUFFER_HIGH_BYTES, low=_BUFFER_LOW_BYTES)
        name = transport.get_extra_info("peername")
        self.peer_address = f"{name[0]}:{name[1]}" if name else "?"
        self.last_in_s = self._loop.time()
        _tune(transport.get_extra_info("socket"))
        if self.channel is not None:
            self._write(self.channel.begin())

    def data_received(self, data: bytes) -> None:
        self.bytes_in += len(data)
        self.last_in_s = self._loop.time()
        if self.channel is None:
            self._take(data)
        else:
            self._sealed.append(memoryview(data))
        if not self._in_line:
            until = self.turns.begin(self._in_turn)
            if until is None:
                self._in_line = True
                self._read()
            else:
                self._hand_over(until)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lose(
            Unavailable(f"the connection to {self.peer_address} was lost", reason=str(exc or ""))
        )
        if self._linger is not None:
            self._linger.cancel()
        if self.channel is not None:
            self.channel.drop()
        if not self._closed.done():
            self._closed.set_result(None)

    def pause_writing(self) -> None:
        self._write_paused = True

    def resume_writing(self) -> None:
        self._write_paused = False
        self._flush()

    # Called by both kinds of connections.

    @property
    def writable(self) -> bool:
        """Whether there are so few unsent bytes that large frames may be added."""
        return self.queued_bytes < limits.send_buffer_bytes_max

    @property
    def queued_bytes(self) -> int:
        """Bytes handed to `send` that the kernel has not taken."""
        return self._out_bytes + self._buffered_bytes

    @property
    def kept_bytes(self) -> int:
        """The memory that unsent frames take."""
        return self._left_bytes + self.queued_bytes

    @property
    def taken_bytes(self) -> int:
        """Bytes that the kernel has taken since the connection began."""
        return self.bytes_out - self._buffered_bytes

    @property
    def _buffered_bytes(self) -> int:
        return self._transport.get_write_buffer_size() if self._transport else 0

    def forget_owner(self) -> None:
        """Drop the callbacks. Owner and transport refer to each other, and cyclic memory stays
        until the next garbage collection. Call only after the close."""
        self.turns = OWN_TURNS
        self.on_frame = self.on_lost = self.on_decoded = _ignore
        self.on_writable = _nothing

    def trust(self) -> None:
        """Accept frames of full size: the other side has proved its identity."""
        self._decoder.trust()

    def send(self, request_id: int, kind: int, body: Any, *, now: bool = False) -> int:
        """Queue one frame for the end of this turn of the loop, or write it `now` with the queued
        frames; return its bytes. After the end of the connection the frame is dropped.

        Raises LimitExceeded for a frame over its limit, and sends nothing of that frame.
        """
        data = frame.encode(request_id, kind, body)
        if self.lost is None and not self._closing:
            self._queue(data)
            if now:
                self._flush()
            elif not self._write_paused:
                self._flush_soon()
        return len(data)

    def read_on(self, on: bool) -> None:
        """Stop or resume handing over frames and reading from the socket."""
        self._wants_frames = on
        if on and not self._in_line and self.has_more:
            self._stand_in_line()
        self._read()

    def refuse(self, error: LognodeError) -> None:
        """Send the error to the other side, then close. Before the end of the TLS handshake
        nothing can be sent."""
        if self.channel is not None and not self.channel.secured:
            self.abort(error)
            return
        self.send(0, frames.ERROR, to_wire(error))
        self.close(error)

    def _refuse_stream(self, error: LognodeError) -> None:
        """End a stream that is not one of frames, with an answer that its sender understands."""
        http = http_instead.answer(error)
        if http:
            self._queue(http)
            self.close(error)
        else:
            self.refuse(error)

    def close(self, error: LognodeError | None = None) -> None:
        """Send the queued bytes, then close; nothing more is received."""
        if self._closing or self.lost is not None:
            return
        while self._out and self._may_send:
            self._write_piece()
        self._closing = True
        if self._transport is not None:
            if self.channel is not None:
                self._write(self.channel.end())
            self._transport.close()
            # A peer that does not read would keep the queued bytes here for ever.
            self._linger = self._loop.call_later(linger_s, self._transport.abort)
        self._lose(error or Unavailable("the connection is closed", reason="closed"))

    def abort(self, error: LognodeError) -> None:
        """Close at once; queued bytes are dropped."""
        if self._transport is not None:
            self._transport.abort()
        self._closing = True
        self._lose(error)

    async def wait_closed(self, timeout_s: float) -> None:
        """Wait until the socket is closed; after `timeout_s` it is closed by force."""
        await asyncio.wait((self._closed,), timeout=timeout_s)
        if not self._closed.done() and self._transport is not None:
            self._transport.abort()

    @property
    def has_more(self) -> bool:
        """Whether received bytes are not handed over yet."""
        return bool(self._sealed) or self._decoder.pending

    def _take(self, data: bytes) -> None:
        """Take received bytes of frames."""
        self.plain_in += len(data)
        self._decoder.put(data)

    def _open_some(self, channel: Channel) -> bool:
        """Decrypt a part of the received bytes; return False when this ended the connection."""
        data = self._sealed.popleft()
        if len(data) > _OPENED_BYTES:
            self._sealed.appendleft(data[_OPENED_BYTES:])
            data = data[:_OPENED_BYTES]
        plain = self._opened(channel, data)
        if plain:
            self._take(plain)
        return self.lost is None

    def _opened(self, channel: Channel, data: memoryview) -> bytes:
        """Return the decrypted bytes; a failed channel ends the connection."""
        secured = channel.secured
        try:
            plain = channel.receive(data)
        except LognodeError as error:
            told = _plain_answer(error, data) if isinstance(error, NotTls) else b""
            self._write(told or channel.outgoing())
            self._closing = True
            if self._transport is not None:
                self._transport.close()
            self._lose(type(error)(f"{self.peer_address}: {error.message}"))
            return b""
        said = channel.outgoing()
        if said and not self.writable:
            # Key updates are answered: a peer that never reads could make the answers pile up.
            self.abort(RemoteProtocolError(f"{self.peer_address} does not read its answers"))
            return b""
        self._write(said)
        if channel.secured and not secured:
            self._flush()
        return plain

    def _in_turn(self, until: float) -> None:
        """Hand over the frames that waited for this turn."""
        self._in_line = False
        self._hand_over(until)

    def _hand_over(self, until: float) -> None:
        """Decode frames and hand them over, until no frame is left or the turn is over."""
        turns = self.turns  # a frame may end the handshake, after which `turns` differ
        began = turns.clock()
        self._hand_over_some(until)
        took = turns.clock() - began
        self.turns_s += took
        turns.spent(took)
        self._read()

    def _hand_over_some(self, until: float) -> None:
        while self._wants_frames and self.lost is None and not self._closing:
            if (
                self._sealed
                and self.channel is not None
                and not self._decoder.pending
                and not self._open_some(self.channel)
            ):
                return
            event = self._decoder.next() if self._decoder.pending else None
            if isinstance(event, Frame):
                self._give(event)
            elif event is not None:
                self._refuse_stream(event.error)
                return
            elif not self._decoder.in_steps and not self._sealed:
                self.on_decoded(self._decoder.incomplete)
                return
            if self.has_more and self.turns.clock() > until:
                self._stand_in_line()
                return

    def _stand_in_line(self) -> None:
        if not self._in_line:
            self._in_line = True
            self.turns.later(self._in_turn)

    def _give(self, message: Frame) -> None:
        try:
            self.on_frame(message)
        except Exception as error:  # a bug: the loop reports it, and the connection ends
            self.abort(
                LocalProtocolError(
                    f"a frame {name_of(message.kind)!r} could not be handled: {error}"
                )
            )
            raise

    def _read(self) -> None:
        """Start or stop reading from the socket, according to the state of the frames."""
        if self._transport is None or self._transport.is_closing():
            return
        on = self._wants_frames and not self._in_line
        if on and self.channel is not None and self.channel.ended:
            # Only now: earlier frames may have waited for their turn.
            self._transport.close()
            return
        if on != self._transport.is_reading():
            if on:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def _flush(self) -> None:
        """Write one piece of the queued bytes, as far as the socket takes it, and the next piece
        in the next turn of the loop: copying a large answer into the kernel takes milliseconds."""
        self._flushes = False
        if self._may_flush:
            self._write_piece()
        if self._may_flush:
            self._flush_soon()
        self.on_writable()

    def _flush_soon(self) -> None:
        if not self._flushes:
            self._flushes = True
            self._loop.call_soon(self._flush)

    @property
    def _may_flush(self) -> bool:
        return bool(self._out) and self._may_send and not self._write_paused

    @property
    def _may_send(self) -> bool:
        return self.channel is None or self.channel.secured

    def _queue(self, data: bytes) -> None:
        # Sent alone, a small frame would take several times its bytes.
        self._out_bytes += len(data)
        last = self._out[-1] if self._out else data
        if last is data or len(last) + len(data) > _PIECE_BYTES:
            self._out.append(data)
        elif isinstance(last, bytearray):
            last += data
        else:
            self._out[-1] = bytearray(last) + data

    def _write_piece(self) -> None:
        piece = self._out.popleft()
        if len(piece) > _PIECE_BYTES:
            whole = memoryview(piece)
            piece = whole[:_PIECE_BYTES]
            self._out.appendleft(whole[_PIECE_BYTES:])
            self._left_bytes += _PIECE_BYTES
        else:
            self._left_bytes = 0
        self._out_bytes -= len(piece)
        if self.channel is None:
            self._write(piece)
        elif len(piece) < _COUNTED_BYTES:
            self._write(self.channel.seal(piece))
        else:
            began = self.turns.clock()
            self._write(self.channel.seal(piece))
            self.turns.spent(self.turns.clock() - began)

    def _write(self, data: bytes | bytearray | memoryview) -> None:
        if data and self._transport is not None and not self._transport.is_closing():
            self.bytes_out += len(data)
            self._transport.write(data)

    def _lose(self, error: LognodeError) -> None:
        if self.lost is None:
            self.lost = bare(error)  # else the connection would be in the frames of its own error
            self._sealed.clear()
            self._out.clear()
            self._out_bytes = 0
            self.on_lost(error)


def _plain_answer(error: NotTls, data: memoryview) -> bytes:
    """Return the answer to a dialler that began without TLS."""
    is_http = http_instead.recognised(bytes(data[: frame.HEADER.size]))
    told = None if is_http is None else http_instead.answer(is_http)
    return told or frame.encode(0, frames.ERROR, to_wire(error))


def _tune(sock: Any) -> None:
    if sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    # asyncio sets this for sockets that name their protocol; accepted sockets do not. Otherwise a
    # small frame would wait for the acknowledgement of the last frame: 40 ms, or until more bytes
    # come (Nagle's algorithm against delayed acknowledgements).
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # A dead machine sends no FIN: let the kernel find out.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", _KEEPALIVE_IDLE_S),
        ("TCP_USER_TIMEOUT", _USER_TIMEOUT_MS),
    ):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _ignore(_event: Any) -> None:
    return


def _nothing() -> None:
    return
