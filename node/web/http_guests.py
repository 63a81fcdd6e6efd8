"""Bound the connections to the HTTP port: few, and none for longer than its requests need.

aiohttp waits for a request without a timeout, and has no bound on connections. So each connection
is watched from the outside. Its next request must begin by a deadline. When all places are taken,
the connection that has waited longest gives its place to a new connection. Probes and scrapes
connect again by themselves; a client that only holds a connection loses it.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final, cast

from ...client.protocol import limits

_HEAD_END: Final = b"\r\n\r\n"
Closed = Callable[[str, str], None]


class HttpGuests:
    """Bounds the connections. `make` makes aiohttp's protocol of a connection. `on_closed` gets the
    reason and the address of each connection that is closed here; `on_end` gets that connection,
    which may have no transport yet. `on_gone` gets each connection that is closed."""

    def __init__(
        self,
        make: Callable[[], asyncio.BaseProtocol],
        *,
        connections_max: int,
        on_closed: Closed,
        on_gone: Callable[[asyncio.BaseProtocol], None],
        on_end: Callable[[asyncio.BaseProtocol], None] = lambda _: None,
    ) -> None:
        self.on_closed = on_closed
        self._make = make
        self._connections_max = connections_max
        self._on_gone = on_gone
        self._on_end = on_end
        self._guests: dict[asyncio.BaseProtocol, _Guest] = {}
        """Connections by aiohttp's protocol, which is how a request names its connection."""
        self._waiting: dict[_Guest, None] = {}
        """Connections that serve no request, the one that has waited longest first."""

    def __len__(self) -> int:
        return len(self._guests)

    def arrive(self) -> asyncio.BaseProtocol | None:
        """Return the protocol of a new connection, or None if all others serve requests."""
        if len(self._guests) >= self._connections_max:
            if not self._waiting:
                self.on_closed("http_full", "")
                return None
            longest = next(iter(self._waiting))
            self.end(longest, "http_displaced")
        guest = _Guest(self, cast(asyncio.Protocol, self._make()))
        self._guests[guest.inner] = guest
        self._wait(guest, limits.http_first_request_s)
        return guest

    def begun(self, protocol: asyncio.BaseProtocol, *, bounded: bool = False) -> None:
        """Note that a request has begun on the connection of aiohttp's protocol. `bounded`: its
        handler bounds the time of the request."""
        guest = self._guests.get(protocol)
        if guest is not None:
            self._waiting.pop(guest, None)
            guest.expect(None if bounded else limits.http_next_request_s)

    def served(self, protocol: asyncio.BaseProtocol) -> None:
        """Note that a request's answer is ready: the connection counts as waiting from now on."""
        guest = self._guests.get(protocol)
        if guest is not None:
            self._waiting[guest] = None
            guest.head_begins()
            if not guest.expects:
                guest.expect(limits.http_next_request_s)

    def address(self, protocol: asyncio.BaseProtocol) -> str:
        """Return the address of the other side."""
        guest = self._guests.get(protocol)
        return "?" if guest is None else guest.address

    def end(self, guest: "_Guest", reason: str) -> None:
        """Close the connection."""
        self.on_closed(reason, guest.address)
        self._forget(guest)
        guest.abort()
        self._on_end(guest)

    def left(self, guest: "_Guest") -> None:
        """Forget a closed connection."""
        self._forget(guest)
        self._on_gone(guest)

    def _wait(self, guest: "_Guest", seconds: float) -> None:
        self._waiting[guest] = None
        guest.expect(seconds)

    def _forget(self, guest: "_Guest") -> None:
        self._guests.pop(guest.inner, None)
        self._waiting.pop(guest, None)


class _Guest(asyncio.Protocol):
    """A connection: aiohttp's protocol, and the deadline for its next request."""

    def __init__(self, among: HttpGuests, inner: asyncio.Protocol) -> None:
        self.inner = inner
        self.address = ""
        self._among = among
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._ended = False
        self._head_bytes: int | None = 0
        """Bytes of the head of the next request; None: the head is complete."""
        self._tail = b""

    @property
    def expects(self) -> bool:
        """Whether the next request must begin by a deadline."""
        return self._timer is not None

    def expect(self, seconds: float | None) -> None:
        """Set the seconds within which the next request must begin; None: no bound."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._ended and seconds is not None:
            self._timer = self._loop.call_later(seconds, self._among.end, self, "http_slow")

    def head_begins(self) -> None:
        """Note that the next bytes are those of the head of a request."""
        self._head_bytes, self._tail = 0, b""

    def abort(self) -> None:
        """Close at once."""
        self._ended = True
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._transport.abort()

    # asyncio calls these.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        name: Any = transport.get_extra_info("peername")
        self.address = f"{name[0]}:{name[1]}" if name else "?"
        self.inner.connection_made(transport)
        if self._ended:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._head_bytes is not None:
            known = self._tail + data
            end = known.find(_HEAD_END)
            self._head_bytes += len(data) if end < 0 else end - len(self._tail)
            if self._head_bytes > limits.http_head_bytes_max:
                self._among.end(self, "http_bad")
                return
            if end >= 0:
                self._head_bytes = None
            self._tail = known[1 - len(_HEAD_END) :]
        self.inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self.inner.eof_received()

    def pause_writing(self) -> None:
        self.inner.pause_writing()

    def resume_writing(self) -> None:
        self.inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended = True
        if self._timer is not None:
            self._timer.cancel()
        # Even if the connection never had a transport: aiohttp breaks its reference cycles here.
        self.inner.connection_lost(exc)
        self._transport = self._timer = None
        self._among.left(self)
