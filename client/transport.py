"""A socket that speaks frames: what both ends of a connection share.

Frames sent in one turn of the event loop leave in one write. Bytes in and out are counted, the
unsent ones are bounded by what the callers do with `writable`, and `abort` always ends it.

A connection decodes frames and hands them over for at most `turn_s` in one turn of the loop. It
does not read from the socket while frames are left, or while the owner wants no frames.
"""

import asyncio
import socket
import time
from collections.abc import Callable
from typing import Any, Final, cast

from . import frame, limits, wire
from .errors import LocalProtocolError, LognodeError, Unavailable, to_wire
from .frame import Decoder, Frame

_KEEPALIVE_IDLE_S: Final = 60
_USER_TIMEOUT_MS: Final = 30_000
turn_s: Final = 0.002
"""Seconds for which one connection decodes and hands over frames before others have their turn."""


class FrameTransport(asyncio.Protocol):
    """One TCP connection as frames. All calls on the loop's thread.

    `on_frame` gets each frame, in order; `on_lost` is called once, with the reason, after which
    neither is called again; `on_writable` after the send buffer has drained.
    """

    def __init__(self) -> None:
        self.on_frame: Callable[[Frame], None] = _ignore
        self.on_lost: Callable[[LognodeError], None] = _ignore
        self.on_writable: Callable[[], None] = _nothing
        self.bytes_in = 0
        self.bytes_out = 0
        self.last_in_s = 0.0
        """Loop time at which bytes last arrived."""
        self.lost: LognodeError | None = None
        self.peer_address = ""
        self._decoder = Decoder.of_stranger()
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._write_paused = False
        self._closing = False
        self._wants_frames = True
        self._later: asyncio.Handle | None = None
        """The turn in which the frames that are left are decoded."""
        self._closed: asyncio.Future[None] = self._loop.create_future()

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=limits.send_buffer_bytes_max)
        name = transport.get_extra_info("peername")
        self.peer_address = f"{name[0]}:{name[1]}" if name else "?"
        self.last_in_s = self._loop.time()
        _tune(transport.get_extra_info("socket"))

    def data_received(self, data: bytes) -> None:
        self.bytes_in += len(data)
        self.last_in_s = self._loop.time()
        self._decoder.put(data)
        if self._later is None:
            self._hand_over()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lose(Unavailable(f"connection to {self.peer_address} lost", reason=str(exc or "")))
        if not self._closed.done():
            self._closed.set_result(None)

    def pause_writing(self) -> None:
        self._write_paused = True

    def resume_writing(self) -> None:
        self._write_paused = False
        self.on_writable()

    # What the two kinds of connections call.

    @property
    def writable(self) -> bool:
        """Whether the unsent bytes are few enough to add large frames."""
        return not self._write_paused and self._out_bytes < limits.send_buffer_bytes_max

    @property
    def queued_bytes(self) -> int:
        """Bytes handed to `send` that the kernel has not taken."""
        unsent = self._transport.get_write_buffer_size() if self._transport else 0
        return self._out_bytes + unsent

    def trust(self) -> None:
        """The other side has shown who it is: frames of full size are taken from it."""
        self._decoder.trust()

    def send(self, request_id: int, kind: str, body: Any, *, now: bool = False) -> int:
        """Queue one frame for the end of this turn of the loop, or write it `now`, with what is
        queued; returns its bytes. After the end of the connection it goes nowhere.

        Raises LimitExceeded for a frame over its limit; nothing of it was sent.
        """
        data = frame.encode(request_id, kind, body)
        if self.lost is None and not self._closing:
            if not self._out and not now:
                self._loop.call_soon(self._flush)
            self._out.append(data)
            self._out_bytes += len(data)
            if now:
                self._flush()
        return len(data)

    def read_on(self, on: bool) -> None:
        """Stop or go on handing over frames, and reading from the socket."""
        self._wants_frames = on
        if on and self._later is None and self._decoder.pending:
            self._later = self._loop.call_soon(self._hand_over)
        self._read()

    def refuse(self, error: LognodeError) -> None:
        """Tell the other side why, then close."""
        self.send(0, wire.ERROR, to_wire(error))
        self.close(error)

    def close(self, error: LognodeError | None = None) -> None:
        """Send what is queued, then close; nothing more is received."""
        if self._closing or self.lost is not None:
            return
        self._flush()
        self._closing = True
        if self._transport is not None:
            self._transport.close()
        self._lose(error or Unavailable("connection closed", reason="closed"))

    def abort(self, error: LognodeError) -> None:
        """Close at once; what is queued is dropped."""
        if self._transport is not None:
            self._transport.abort()
        self._closing = True
        self._lose(error)

    async def wait_closed(self, timeout_s: float) -> None:
        """Wait until the socket is closed; after `timeout_s` it is closed by force."""
        await asyncio.wait((self._closed,), timeout=timeout_s)
        if not self._closed.done() and self._transport is not None:
            self._transport.abort()

    def _hand_over(self) -> None:
        """Decode frames and hand them over until no frame is left or this turn is over."""
        self._later = None
        until = time.perf_counter() + turn_s
        while self._wants_frames and self.lost is None and not self._closing:
            event = self._decoder.next()
            if isinstance(event, Frame):
                self._give(event)
            elif event is not None:
                self.refuse(event.error)
                return
            elif not self._decoder.in_steps:
                break
            if time.perf_counter() > until:
                if self._decoder.pending:
                    self._later = self._loop.call_soon(self._hand_over)
                break
        self._read()

    def _give(self, message: Frame) -> None:
        try:
            self.on_frame(message)
        except Exception as error:  # a bug ends the connection, and the loop reports the bug
            self.abort(
                LocalProtocolError(f"a frame {message.kind!r} could not be handled: {error}")
            )
            raise

    def _read(self) -> None:
        """Begin or stop to read from the socket, as frames are wanted or left."""
        if self._transport is None or self._transport.is_closing():
            return
        on = self._wants_frames and self._later is None
        if on != self._transport.is_reading():
            if on:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def _flush(self) -> None:
        if not self._out:
            return
        data = self._out[0] if len(self._out) == 1 else b"".join(self._out)
        self._out.clear()
        self._out_bytes = 0
        if self._transport is not None and not self._transport.is_closing():
            self.bytes_out += len(data)
            self._transport.write(data)

    def _lose(self, error: LognodeError) -> None:
        if self.lost is None:
            self.lost = error
            self._out.clear()
            self._out_bytes = 0
            self.on_lost(error)


def _tune(sock: Any) -> None:
    if sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    # The far end of a dead machine sends no FIN: let the kernel find out.
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
